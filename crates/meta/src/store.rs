//! The store of metadata: what is published.

mod listings;
mod memory;
mod names;
mod ready;

pub use memory::{MemoryBucket, MemoryStore};
pub use names::NamesInMemory;
pub use ready::{Arrived, Ready};

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

    /// The same for a batch that refers to objects which are still on their way to the bucket: whatever can be done
    /// before they are there is done, and nobody sees anything of the batch before they are, whoever dies when. The wait
    /// for them has no limit. If they never arrive, this is [`StoreError::Fatal`].
    async fn commit_when(&self, batch: &Batch, ready: &Ready) -> Result<(), StoreError> {
        if !ready.wait().await {
            return Err(never_arrived());
        }
        self.commit(batch).await
    }

    /// Looks whether the bucket still has something older than the last commit that the state consists of, another
    /// object each time: at most one request, unless it is missing. [`StoreError::Gone`] then. A store that deletes
    /// nothing except by commits has nothing to check.
    async fn prove(&self) -> Result<(), StoreError>;

    /// Ends all work in the background. What [`commit`](MetaStore::commit) returned for is in
    /// the bucket whether this is called or not. Later calls fail.
    async fn close(&self) -> Result<(), StoreError>;
}

/// What a batch refers to has not arrived and never will.
pub(crate) fn never_arrived() -> StoreError {
    StoreError::Fatal("what the metadata refer to did not arrive in the bucket".into())
}

#[cfg(test)]
pub(crate) mod conformance;
