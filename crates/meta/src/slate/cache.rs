//! The memory for parts of tables that were read, and the counts of what was found there.
//!
//! SlateDB counts the look-ups by itself, with one atomic addition each. The number of bytes is asked for when it is
//! needed: that takes the lock of each shard for as long as reading a number takes.

use std::sync::Arc;

use forebay_metrics::Counter;
use slatedb::DbReaderBuilder;
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::db_cache::{CachedEntry, CachedKey, DbCache, SplitCache};
use slatedb::db_cache_stats::ACCESS_COUNT;
use slatedb_common::metrics::{
    CounterFn, GaugeFn, HistogramFn, MetricsRecorder, NoopMetricsRecorder, UpDownCounterFn,
};

use crate::store::{CacheStatus, Lookups};

/// The scope of keys in a cache: an open store and its kept states have the same tables.
const SCOPE: u64 = 0;

/// Parts with a lock of their own.
const SHARDS: usize = 4;

/// Memory of a reader that is not pinned, for blocks that were looked up; scans keep none.
const BLOCK_CACHE_BYTES: u64 = 32 << 20;
/// The same for indexes and filters of tables, which every look-up needs.
pub(super) const INDEX_CACHE_BYTES: u64 = 128 << 20;

/// A cache. Clones share it.
#[derive(Clone)]
pub(super) struct Cache {
    entries: Arc<dyn DbCache>,
    counts: Arc<Counts>,
}

impl Cache {
    /// Caches of a reader without an open store.
    pub(super) fn of_reader() -> Cache {
        let cache = |bytes| -> Option<Arc<dyn DbCache>> {
            Some(Arc::new(FoyerCache::new_with_opts(FoyerCacheOptions {
                max_capacity: bytes,
                shards: SHARDS,
            })))
        };
        let caches = SplitCache::new()
            .with_block_cache(cache(BLOCK_CACHE_BYTES))
            .with_meta_cache(cache(INDEX_CACHE_BYTES));
        Cache {
            entries: Arc::new(caches.build()),
            counts: Arc::default(),
        }
    }

    /// Lets a reader use this cache.
    pub(super) fn serve<P: Into<object_store::path::Path>>(
        &self,
        reader: DbReaderBuilder<P>,
    ) -> DbReaderBuilder<P> {
        reader
            .with_db_cache(self.entries.clone(), SCOPE)
            .with_metrics_recorder(self.counts.clone())
    }
}

/// The part of the cache that one first look may take, as a divisor.
const FIRST_LOOK_PART: u64 = 4;

/// The cache of an open store.
pub(super) struct OpenCache {
    shared: Cache,
    memory: foyer::Cache<CachedKey, CachedEntry>,
    limit_bytes: u64,
}

impl OpenCache {
    /// A cache of at most `limit_bytes` bytes; `None` for 0.
    pub(super) fn new(limit_bytes: u64) -> Option<OpenCache> {
        let capacity = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        if capacity == 0 {
            return None;
        }
        let memory = foyer::CacheBuilder::new(capacity)
            .with_weighter(|_, entry: &CachedEntry| entry.size())
            .with_shards(SHARDS)
            .build();
        Some(OpenCache {
            shared: Cache {
                entries: Arc::new(FoyerCache::new_with_cache(memory.clone())),
                counts: Arc::default(),
            },
            memory,
            limit_bytes,
        })
    }

    /// The same cache for readers beside the store.
    pub(super) fn shared(&self) -> Cache {
        self.shared.clone()
    }

    /// The most bytes that are read before one look-up, so that it still finds them.
    pub(super) fn first_look_bytes(&self) -> u64 {
        self.limit_bytes / FIRST_LOOK_PART
    }

    /// Lets a store use this cache.
    pub(super) fn serve<P: Into<object_store::path::Path>>(
        &self,
        store: slatedb::DbBuilder<P>,
    ) -> slatedb::DbBuilder<P> {
        store
            .with_db_cache(self.shared.entries.clone(), SCOPE)
            .with_metrics_recorder(self.shared.counts.clone())
    }

    /// Its bytes and counts of now.
    pub(super) fn status(&self) -> CacheStatus {
        let counts = &self.shared.counts;
        CacheStatus {
            used_bytes: self.memory.usage() as u64,
            limit_bytes: self.limit_bytes,
            blocks: counts.blocks.lookups(),
            indexes: counts.indexes.lookups(),
            filters: counts.filters.lookups(),
        }
    }
}

/// The counts of look-ups, for SlateDB to add to.
#[derive(Default)]
struct Counts {
    blocks: Outcomes,
    indexes: Outcomes,
    filters: Outcomes,
}

#[derive(Default)]
struct Outcomes {
    hits: Arc<Count>,
    misses: Arc<Count>,
}

#[derive(Default)]
struct Count(Counter);

impl Outcomes {
    fn lookups(&self) -> Lookups {
        Lookups {
            hits: self.hits.0.get(),
            misses: self.misses.0.get(),
        }
    }
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.add(value);
    }
}

impl Counts {
    /// The counter of look-ups with these labels of SlateDB, if it is one of ours.
    fn of(&self, labels: &[(&str, &str)]) -> Option<Arc<Count>> {
        let label = |name| labels.iter().find(|(key, _)| *key == name);
        let outcomes = match label("entry_kind")?.1 {
            "data_block" => &self.blocks,
            "index" => &self.indexes,
            "filter" => &self.filters,
            _ => return None,
        };
        match label("result")?.1 {
            "hit" => Some(outcomes.hits.clone()),
            "miss" => Some(outcomes.misses.clone()),
            _ => None,
        }
    }
}

/// All other metrics of SlateDB are dropped.
impl MetricsRecorder for Counts {
    fn register_counter(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn CounterFn> {
        match self.of(labels).filter(|_| name == ACCESS_COUNT) {
            Some(count) => count,
            None => NoopMetricsRecorder.register_counter(name, description, labels),
        }
    }

    fn register_gauge(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn GaugeFn> {
        NoopMetricsRecorder.register_gauge(name, description, labels)
    }

    fn register_up_down_counter(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
    ) -> Arc<dyn UpDownCounterFn> {
        NoopMetricsRecorder.register_up_down_counter(name, description, labels)
    }

    fn register_histogram(
        &self,
        name: &str,
        description: &str,
        labels: &[(&str, &str)],
        boundaries: &[f64],
    ) -> Arc<dyn HistogramFn> {
        NoopMetricsRecorder.register_histogram(name, description, labels, boundaries)
    }
}
