//! The bytes of answered READs, by the tier that had them.

use forebay_metrics::{Counter, Samples, Source, table};
use forebay_pack_store::FetchedFrom;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadBytes {
    memory: Counter,
    log: Counter,
    disk_cache: Counter,
    bucket: Counter,
    hole: Counter,
}

/// The bytes of one reply that were not in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetches {
    log: u64,
    disk_cache: u64,
    bucket: u64,
}

impl Fetches {
    /// Counts bytes of records of the log.
    pub(super) fn add_logged(&mut self, bytes: u64) {
        self.log += bytes;
    }

    /// Counts bytes of a frame that came from there.
    pub(super) fn add(&mut self, from: FetchedFrom, bytes: u64) {
        match from {
            FetchedFrom::DiskCache => self.disk_cache += bytes,
            FetchedFrom::Bucket => self.bucket += bytes,
        }
    }
}

impl ReadBytes {
    /// Counts a reply whose bytes were all in memory.
    #[inline]
    pub(super) fn in_memory(&self, bytes: u64) {
        self.memory.add(bytes);
    }

    /// Counts a reply of which `missing` bytes were not in memory; those that were not fetched either are holes.
    pub(super) fn fetched(&self, all: u64, missing: u64, fetches: Fetches) {
        self.memory.add(all.saturating_sub(missing));
        self.log.add(fetches.log);
        self.disk_cache.add(fetches.disk_cache);
        self.bucket.add(fetches.bucket);
        let fetched = fetches.log + fetches.disk_cache + fetches.bucket;
        self.hole.add(missing.saturating_sub(fetched));
    }
}

impl Source for ReadBytes {
    fn collect(&self, samples: &mut Samples) {
        for (tier, bytes) in [
            ("memory", &self.memory),
            ("log", &self.log),
            ("disk_cache", &self.disk_cache),
            ("bucket", &self.bucket),
            ("hole", &self.hole),
        ] {
            samples.counter_of(&table::READ, tier, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_neither_in_memory_nor_fetched_is_a_hole() {
        let read = ReadBytes::default();
        read.in_memory(1000);
        let mut fetches = Fetches::default();
        fetches.add_logged(5);
        fetches.add(FetchedFrom::DiskCache, 10);
        fetches.add(FetchedFrom::Bucket, 20);
        fetches.add(FetchedFrom::Bucket, 30);
        read.fetched(100, 75, fetches);
        let samples = Samples::of([&read as &dyn Source]);
        let of = |tier| samples.number("read_bytes", &[tier]);
        assert_eq!(of("memory"), Some(1025.0));
        assert_eq!(of("log"), Some(5.0));
        assert_eq!(of("disk_cache"), Some(10.0));
        assert_eq!(of("bucket"), Some(50.0));
        assert_eq!(of("hole"), Some(10.0));
    }
}
