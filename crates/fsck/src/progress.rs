//! Progress of a check, for display.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A stage of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Opening the metadata.
    Opening = 0,
    /// Reading the objects of the metadata.
    Metadata,
    /// Attributes of objects.
    Objects,
    /// Names.
    Names,
    /// Names by cookie.
    Cookies,
    /// Block maps.
    Blocks,
    /// Block maps of snapshots.
    Snapshots,
    /// Listing the bucket.
    Bucket,
    /// Headers and indexes of packs.
    Packs,
    /// Reading frames.
    Data,
    /// Looking up the paths of findings.
    Paths,
    /// Deleting orphans.
    Deleting,
}

const STAGES: [Stage; 12] = [
    Stage::Opening,
    Stage::Metadata,
    Stage::Objects,
    Stage::Names,
    Stage::Cookies,
    Stage::Blocks,
    Stage::Snapshots,
    Stage::Bucket,
    Stage::Packs,
    Stage::Data,
    Stage::Paths,
    Stage::Deleting,
];

impl Stage {
    /// The stage in words.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Opening => "opening the metadata",
            Stage::Metadata => "objects of the metadata",
            Stage::Objects => "objects",
            Stage::Names => "names",
            Stage::Cookies => "names by cookie",
            Stage::Blocks => "block maps",
            Stage::Snapshots => "block maps of snapshots",
            Stage::Bucket => "objects in the bucket",
            Stage::Packs => "packs",
            Stage::Data => "data",
            Stage::Paths => "paths of the findings",
            Stage::Deleting => "deleting orphans",
        }
    }

    /// Whether the stage counts bytes; all others count things.
    pub fn counts_bytes(self) -> bool {
        self == Stage::Data
    }
}

/// Progress of a check. The check writes it, a display reads it.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// The current stage, the amount done, and the approximate total if it is known.
    pub fn now(&self) -> (Stage, u64, Option<u64>) {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        let stage = STAGES.get(stage).copied().unwrap_or(Stage::Opening);
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        (stage, done, (total > 0).then_some(total))
    }

    /// Begins a stage. `total` is the amount of work, or 0 if it is not known.
    pub fn begin(&self, stage: Stage, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// So much more of the stage is done.
    pub fn add(&self, done: u64) {
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
