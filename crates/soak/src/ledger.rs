//! The data that the server has acknowledged as stable, and so must have after any kill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a block of [`Promises::blocks`].
pub const BLOCK_BYTES: usize = 4096;

/// A file that was written once: its bytes are those of [`forebay_crash::random::content`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where its bytes come from.
    pub seed: u64,
    /// Number of its bytes.
    pub length: usize,
}

/// Everything that was acknowledged, by paths from the root of the volume (`a/b`).
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Files that are not changed any more.
    pub kept: BTreeMap<String, Kept>,
    /// Directories that have exactly those files and no other name.
    pub exact: BTreeSet<String>,
    /// Names of empty files, as [`numbered`] writes them, by directory.
    pub names: BTreeMap<String, BTreeSet<u32>>,
    /// Blocks of files that are written again and again: the seeds of the content that each may hold. More than one
    /// if a WRITE has no answer; none stands for zeros.
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
        // Each change is one step, so a client that panicked has left no half of one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data acknowledged so far.
    pub fn so_far(&self) -> Promises {
        self.promises().clone()
    }

    /// A file has all its bytes on stable storage.
    pub fn keep(&self, path: String, kept: Kept) {
        self.promises().kept.insert(path, kept);
    }

    /// A directory is to have the kept files below it and no other name.
    pub fn exact(&self, directory: String) {
        self.promises().exact.insert(directory);
    }

    /// A numbered name was made.
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

    /// A block is going to be written: until the answer it may hold either.
    pub fn writing(&self, file: &str, block: u64, seed: u64) {
        let mut promises = self.promises();
        let blocks = promises.blocks.entry(file.to_owned()).or_default();
        let seeds = blocks.entry(block).or_insert_with(|| vec![None]);
        seeds.push(Some(seed));
    }

    /// A block was written and is on stable storage.
    pub fn written(&self, file: &str, block: u64, seed: u64) {
        let mut promises = self.promises();
        let blocks = promises.blocks.entry(file.to_owned()).or_default();
        blocks.insert(block, vec![Some(seed)]);
    }
}
