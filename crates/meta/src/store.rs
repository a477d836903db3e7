//! The store of metadata: the trait for the published part, and its implementation in memory.

mod cache_status;
mod listings;
mod memory;
mod names;
mod ready;

pub use cache_status::{CacheStatus, Lookups};
pub use memory::{MemoryBucket, MemoryStore};
pub use names::NamesInMemory;
pub use ready::{Arrived, Ready};

use std::collections::BTreeSet;
use std::sync::Arc;

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
    /// range has no more. The result is the state of one moment.
    async fn scan(&self, range: &KeyRange, limit: usize)
    -> Result<Vec<(Bytes, Bytes)>, StoreError>;

    /// Makes all changes of `batch`, or none of them; they are durable in the bucket when it
    /// returns. After [`StoreError::Transient`], and after a cancelled call, the changes may or may
    /// not be stored: the caller commits the same batch again, before any other.
    ///
    /// One commit at a time: a second one waits for the first.
    async fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Like [`commit`](MetaStore::commit), for a batch that refers to objects which are still on their way to the
    /// bucket. The store does as much as possible before they arrive; no reader sees any part of the batch before that,
    /// whichever process dies at whichever moment. The wait for them has no limit. If they never arrive, it returns
    /// [`StoreError::Fatal`].
    async fn commit_when(&self, batch: &Batch, ready: &Ready) -> Result<(), StoreError> {
        if !ready.wait().await {
            return Err(never_arrived());
        }
        self.commit(batch).await
    }

    /// Checks that the bucket still has one of the objects, older than the last commit, that the state consists of;
    /// another object with each call. Takes at most one request, unless that object is missing; returns
    /// [`StoreError::Gone`] then. A store that deletes nothing except by commits has nothing to check.
    async fn prove(&self) -> Result<(), StoreError>;

    /// Whether commits wait until tables are merged: then a commit that fails as [`StoreError::Transient`] may succeed when it
    /// is repeated, however well the bucket answers.
    fn is_merging(&self) -> bool {
        false
    }

    /// Keeps the state of the last commit readable under `name`, which no other kept state has, until it is
    /// [released](MetaStore::release). Not beside a commit. After [`StoreError::Transient`] the caller asks again, before
    /// any commit. It may take no request if the batch of that commit [had the name](Batch::keep_as).
    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        let _ = name;
        Err(keeps_nothing())
    }

    /// Ends the keeping of the state under `name`; does nothing if there is none. Its objects are deleted later, in the
    /// background.
    async fn release(&self, name: &str) -> Result<(), StoreError> {
        let _ = name;
        Err(keeps_nothing())
    }

    /// The names under which states are kept.
    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        Ok(BTreeSet::new())
    }

    /// The state that is kept under `name`, for reading; `None` if there is none. Reads fail once it was released.
    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        let _ = name;
        Ok(None)
    }

    /// Keys that divide the entries into pieces with about as many bytes each, for those that read all of them: in any order,
    /// as far as that is known without a request.
    fn divisions(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// The memory for what was read from the bucket; `None` without one.
    fn cache(&self) -> Option<CacheStatus> {
        None
    }

    /// Ends all work in the background. Changes for which [`commit`](MetaStore::commit) returned
    /// are in the bucket whether this is called or not. Later calls fail.
    async fn close(&self) -> Result<(), StoreError>;
}

/// The error of a store that keeps no earlier states.
fn keeps_nothing() -> StoreError {
    StoreError::Fatal("this store of metadata keeps no earlier states".into())
}

/// The error for a batch whose referenced objects have not arrived and never will.
pub(crate) fn never_arrived() -> StoreError {
    StoreError::Fatal("objects that the metadata refer to did not arrive in the bucket".into())
}

#[cfg(test)]
pub(crate) mod conformance;
