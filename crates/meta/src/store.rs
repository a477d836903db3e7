//! The store of metadata: what is published.

mod memory;

pub use memory::{MemoryBucket, MemoryStore};

use async_trait::async_trait;
use bytes::Bytes;

use crate::batch::Batch;
use crate::error::StoreError;
use crate::key::KeyRange;

/// An ordered map that lives in the bucket. Opening one for writing fences all earlier ones.
#[async_trait]
pub trait MetaStore: Send + Sync {
    /// The value under `key`.
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Keys and values in `range`, ascending, at most `limit`. Less than `limit` means that the
    /// range has no more. All of it is the state of one moment.
    async fn scan(&self, range: &KeyRange, limit: usize)
    -> Result<Vec<(Bytes, Bytes)>, StoreError>;

    /// Makes all changes of `batch`, or none of them; they are durable in the bucket when it
    /// returns. On [`StoreError::Transient`], and when the call was cancelled, they may be there
    /// or not: the caller commits the same batch again, before any other.
    ///
    /// One commit at a time: a second one waits for the first.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Ends all work in the background. What [`commit`](MetaStore::commit) returned for is in
    /// the bucket whether this is called or not. Later calls fail.
    async fn close(&self) -> Result<(), StoreError>;
}

#[cfg(test)]
pub(crate) mod conformance;
