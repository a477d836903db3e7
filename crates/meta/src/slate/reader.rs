//! The store in the bucket, for reading only: nobody is fenced, and not one object is written.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use slatedb::config::DbReaderOptions;
use slatedb::{DbReader, DbReaderMode};

use super::checksummed::ChecksummedStore;
use super::{NEVER, scan_options, within};
use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::store::MetaStore;

/// A [`MetaStore`] that reads what the bucket holds at the moment of opening, while a gateway may
/// be writing it. What that gateway merges and deletes meanwhile (not before
/// [`retention`](super::SlateSettings::retention) is over) makes calls fail: open it again.
pub struct SlateReader {
    reader: DbReader,
    timeout: Duration,
}

impl SlateReader {
    /// Opens the store under `path`, which must be there. Calls give up waiting for the bucket after
    /// `timeout`.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        timeout: Duration,
    ) -> Result<SlateReader, StoreError> {
        let options = DbReaderOptions {
            // One view to the end.
            manifest_poll_interval: NEVER,
            // The store's own log is off.
            skip_wal_replay: true,
            ..DbReaderOptions::default()
        };
        let store = Arc::new(ChecksummedStore::new(store));
        let build = DbReader::builder(path, store)
            .with_reader_mode(DbReaderMode::FollowLatest)
            .with_options(options)
            .build();
        let reader = within(timeout, build).await?;
        Ok(SlateReader { reader, timeout })
    }
}

#[async_trait]
impl MetaStore for SlateReader {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        within(self.timeout, self.reader.get(key)).await
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        let scan = async {
            let mut found = Vec::new();
            let options = scan_options(limit);
            let mut entries = self
                .reader
                .scan_with_options(range.bounds(), &options)
                .await?;
            while found.len() < limit {
                let Some(entry) = entries.next().await? else {
                    break;
                };
                found.push((entry.key, entry.value));
            }
            Ok(found)
        };
        within(self.timeout, scan).await
    }

    async fn commit(&self, _batch: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Fatal(
            "the metadata are open for reading only".into(),
        ))
    }

    async fn close(&self) -> Result<(), StoreError> {
        within(self.timeout, self.reader.close()).await
    }
}
