//! How SlateDB is set up here, and how it ends.

use slatedb::Db;
use slatedb::config::{CloseOptions, Settings};

use super::{MAX_TABLES, NEVER};

/// Memtables larger than this are flushed before a commit asks for it.
const MEMTABLE_BYTES: usize = 32 << 20;

/// Limit of batches that are not in the bucket yet; above it a commit waits before it writes.
const MAX_UNFLUSHED_BYTES: usize = 64 << 20;

/// Settings of SlateDB for one writer that does its own housekeeping.
pub(super) fn engine_settings() -> Settings {
    Settings {
        wal_enabled: false,
        flush_interval: None,
        manifest_poll_interval: NEVER,
        manifest_update_timeout: NEVER,
        l0_sst_size_bytes: MEMTABLE_BYTES,
        l0_max_ssts: MAX_TABLES,
        l0_max_ssts_per_key: MAX_TABLES,
        l0_flush_parallelism: 1,
        max_unflushed_bytes: MAX_UNFLUSHED_BYTES,
        compactor_options: None,
        garbage_collector_options: None,
        // No limit: with one, SlateDB would give up for good while the bucket is unreachable.
        object_store_max_retries: None,
        ..Settings::default()
    }
}

/// Closes SlateDB without a flush: batches whose commit returned are in the bucket already.
pub(super) async fn close_engine(db: &Db) {
    let options = CloseOptions::default().with_flush_type(None);
    if let Err(error) = db.close_with_options(options).await {
        tracing::debug!(%error, "closing the metadata store");
    }
}
