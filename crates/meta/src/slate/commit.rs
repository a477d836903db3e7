//! Commits: one batch at a time is written into SlateDB's memtable and flushed, together with the checkpoint under which its
//! state will be kept, if it will be.

use slatedb::WriteBatch;
use slatedb::config::{FlushOptions, FlushType, WriteOptions};

use super::kept::Keeping;
use super::{MAX_TABLES, SlateStore, sorted, within};
use crate::batch::{Batch, Entry, MAX_KEY_BYTES};
use crate::error::StoreError;
use crate::store::{Ready, never_arrived};

/// A batch that SlateDB has taken and that is not known to be in the bucket.
pub(super) struct Unflushed {
    batch: Batch,
    /// The checkpoint that is made with it.
    keeping: Option<Keeping>,
}

impl SlateStore {
    /// Commits `batch` once what it refers to is `ready`.
    pub(super) async fn commit_one(&self, batch: &Batch, ready: &Ready) -> Result<(), StoreError> {
        let mut unflushed = self.unflushed.lock().await;
        if unflushed.is_none() && batch.is_empty() {
            return Ok(());
        }
        if self.tables().0 >= MAX_TABLES / 2 {
            // Merging has failed for a while, and the flush would wait for it.
            self.changed.notify_one();
        }
        if !self.barrier.close_until(ready) {
            return Err(never_arrived());
        }
        let taken = unflushed.as_ref().map(|unflushed| &unflushed.batch);
        if taken != Some(batch) && !batch.is_empty() {
            if let Err(error) = self.write(batch).await {
                return Err(self.not_in_time(error).await);
            }
            let name = batch.kept_as();
            *unflushed = Some(Unflushed {
                batch: batch.clone(),
                keeping: name.map(|name| self.kept.begin(&self.db, name)),
            });
        }
        self.flush(unflushed.as_mut(), ready).await?;
        *unflushed = None;
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until the batch that SlateDB has taken, and its checkpoint, are in the bucket.
    async fn flush(
        &self,
        unflushed: Option<&mut Unflushed>,
        ready: &Ready,
    ) -> Result<(), StoreError> {
        let flush = async {
            if let Some(unflushed) = unflushed {
                self.kept.end(&self.db, &mut unflushed.keeping).await?;
            }
            let flush_type = FlushType::MemTable;
            let options = FlushOptions { flush_type };
            self.db.flush_with_options(options).await
        };
        tokio::pin!(flush);
        // The objects that the batch refers to may take any time; from then on the bucket has `timeout`.
        let early = tokio::select! {
            biased;
            flushed = &mut flush => Some(flushed),
            _ = ready.wait() => None,
        };
        if let Some(Err(error)) = &early {
            return Err(match ready.has_failed() {
                true => never_arrived(),
                false => sorted(error),
            });
        }
        if !ready.wait().await {
            return Err(never_arrived());
        }
        if early.is_none()
            && let Err(error) = within(self.timeout, flush).await
        {
            return Err(self.not_in_time(error).await);
        }
        Ok(())
    }

    /// The error of a commit that the bucket did not carry out in time: the wait for a merge that cannot read its
    /// tables would have no end.
    async fn not_in_time(&self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Transient(_)) {
            return error;
        }
        let looked = self.presence.look_into_suspicion(&self.db, self.timeout);
        match looked.await {
            Err(gone @ (StoreError::Gone(_) | StoreError::Fenced)) => gone,
            _ => error,
        }
    }

    async fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut write = WriteBatch::new();
        for (key, entry) in batch.changes() {
            // SlateDB would panic on these.
            if key.is_empty() || key.len() > MAX_KEY_BYTES {
                return Err(StoreError::Fatal(
                    "a batch holds a key that is empty or too long, which is a fault of the program".into(),
                ));
            }
            match entry {
                Entry::Value(value) => write.put_bytes(key.clone(), value.clone()),
                Entry::Deleted => write.delete(key),
            }
        }
        let options = WriteOptions::default();
        let write = self.db.write_with_options(write, &options);
        within(self.timeout, write).await?;
        Ok(())
    }
}
