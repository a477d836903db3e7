//! What a store keeps in memory of what it read.

/// The memory of a store for what it read from the bucket, and how often that spared a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Limit of these bytes.
    pub limit_bytes: u64,
    /// Look-ups of blocks of keys and values, since the store was opened.
    pub blocks: Lookups,
    /// Look-ups of indexes of tables.
    pub indexes: Lookups,
    /// Look-ups of filters of tables.
    pub filters: Lookups,
}

/// Look-ups by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// It was in memory.
    pub hits: u64,
    /// It was not.
    pub misses: u64,
}
