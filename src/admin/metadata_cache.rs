//! The part of a gateway's status about the memory for metadata that were read.

use serde::{Deserialize, Serialize};

use super::status::of_limit;

/// The memory for metadata that were read from the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataCache {
    /// Bytes of memory.
    pub used_bytes: u64,
    /// Limit for these bytes.
    pub limit_bytes: u64,
    /// Blocks, indexes and filters of tables that were found there since the start.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
}

impl MetadataCache {
    pub(super) fn described(&self) -> String {
        format!(
            "{}, {} of {} parts of tables found since the start",
            of_limit(self.used_bytes, self.limit_bytes),
            self.hits,
            self.hits + self.misses
        )
    }
}
