//! How far a check has come, for whoever shows it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a check is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Opening the metadata.
    Opening = 0,
    /// Objects that the metadata consist of.
    Metadata,
    /// Attributes of objects.
    Objects,
    /// Names.
    Names,
    /// Names by cookie.
    Cookies,
    /// Block maps.
    Blocks,
    /// What the bucket has.
    Bucket,
    /// What packs say of themselves.
    Packs,
    /// Frames.
    Data,
    /// Paths of what was found.
    Paths,
    /// Deleting orphans.
    Deleting,
}

const STAGES: [Stage; 11] = [
    Stage::Opening,
    Stage::Metadata,
    Stage::Objects,
    Stage::Names,
    Stage::Cookies,
    Stage::Blocks,
    Stage::Bucket,
    Stage::Packs,
    Stage::Data,
    Stage::Paths,
    Stage::Deleting,
];

impl Stage {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Opening => "opening the metadata",
            Stage::Metadata => "objects of the metadata",
            Stage::Objects => "objects",
            Stage::Names => "names",
            Stage::Cookies => "names by cookie",
            Stage::Blocks => "block maps",
            Stage::Bucket => "objects in the bucket",
            Stage::Packs => "packs",
            Stage::Data => "data",
            Stage::Paths => "paths of what was found",
            Stage::Deleting => "deleting orphans",
        }
    }

    /// Whether it counts bytes; all others count things.
    pub fn counts_bytes(self) -> bool {
        self == Stage::Data
    }
}

/// How far a check has come. Written by the check, read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// What is being done, how much of it is done, and how much there is about, if that is known.
    pub fn now(&self) -> (Stage, u64, Option<u64>) {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        let stage = STAGES.get(stage).copied().unwrap_or(Stage::Opening);
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        (stage, done, (total > 0).then_some(total))
    }

    /// A stage begins, with so much to do; 0 if that is not known.
    pub(crate) fn begin(&self, stage: Stage, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_read_as_it_was_written() {
        let progress = Progress::default();
        for stage in STAGES {
            progress.begin(stage, 0);
            progress.add(3);
            assert_eq!(progress.now(), (stage, 3, None));
        }
    }
}
