//! The data that the server has acknowledged as stable, and must have after any kill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a block of [`Promises::blocks`].
pub const BLOCK_BYTES: usize = 4096;

/// A file that was written once: its bytes are those of [`forebay_crash::random::content`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Seed of its bytes.
    pub seed: u64,
    /// Its length in bytes.
    pub length: usize,
}

/// Everything that was acknowledged, by paths from the root of the volume (`a/b`).
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Files that no client changes any more.
    pub kept: BTreeMap<String, Kept>,
    /// Directories that have exactly those files and no other name.
    pub exact: BTreeSet<String>,
    /// Names of empty files, as [`numbered`] writes them, by directory.
    pub names: BTreeMap<String, BTreeSet<u32>>,
    /// Blocks of files that are written repeatedly: for each block the seeds of its possible contents. There are
    /// several if a WRITE has no answer; `None` stands for zeros.
    pub blocks: BTreeMap<String, BTreeMap<u64, Vec<Option<u64>>>>,
}

/// The name of a numbered file.
pub fn numbered(number: u32) -> String {
    format!("f{number:07}")
}

/// [`Promises`] that clients add to.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Promises>);

impl Ledger {
    fn promises(&self) -> MutexGuard<'_, Promises> {
        // Each change is one step, so that a client that panicked has left no half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data acknowledged so far.
    pub fn so_far(&self) -> Promises {
        self.promises().clone()
    }

    /// Records that all bytes of a file are on stable storage.
    pub fn keep(&self, path: String, kept: Kept) {
        self.promises().kept.insert(path, kept);
    }

    /// Records that a directory must have the kept files below it and no other name.
    pub fn exact(&self, directory: String) {
        self.promises().exact.insert(directory);
    }

    /// Records that a numbered name was made.
    pub fn name(&self, directory: &str, number: u32) {
        let mut promises = self.promises();
        match promises.names.get_mut(directory) {
            Some(names) => names.insert(number),
            None => promises
                .names
                .entry(directory.to_owned())
                .or_default()
                .insert(number),
        };
    }

    /// Records that a block is about to be written: until the answer it may hold the old or the new content.
    pub fn writing(&self, file: &str, block: u64, seed: u64) {
        let mut promises = self.promises();
        let blocks = promises.blocks.entry(file.to_owned()).or_default();
        let seeds = blocks.entry(block).or_insert_with(|| vec![None]);
        seeds.push(Some(seed));
    }

    /// Records that a block was written and is on stable storage.
    pub fn written(&self, file: &str, block: u64, seed: u64) {
        let mut promises = self.promises();
        let blocks = promises.blocks.entry(file.to_owned()).or_default();
        blocks.insert(block, vec![Some(seed)]);
    }
}
