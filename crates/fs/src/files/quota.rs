//! Quotas as operations on files: sizes for FSSTAT, an operator's changes, and the counting of the objects that were
//! in a directory before it got a quota.
//!
//! ```text
//!   operator   set, remove and list quotas                operator.rs
//!   recount    counts, in steps, what lay in a            recount.rs
//!              directory before it got a quota
//! ```
//!
//! `forebay-quota` keeps the accounts.

mod operator;
mod recount;

use forebay_quota::NO_LIMIT;
use forebay_types::Inode;
use forebay_vfs::{Result, Statistics};

pub use operator::{LimitChange, Quota, QuotaError};

use super::Files;

impl Files {
    /// Sizes of the volume.
    pub(crate) fn statistics(&self) -> Statistics {
        let volume = self.state.accounts.volume();
        let (limit, used) = (volume.limit(), volume.used());
        let (bytes, files) = (free(limit.bytes, used.bytes), free(limit.files, used.files));
        Statistics {
            total_bytes: limit.bytes,
            free_bytes: bytes,
            available_bytes: bytes,
            total_files: limit.files,
            free_files: files,
            available_files: files,
        }
    }

    /// Sizes of the tree in which an object counts, if that has a quota, otherwise of the volume. The available space
    /// is never more than the volume has left.
    pub(crate) async fn statistics_at(&self, inode: Inode) -> Result<Statistics> {
        let volume = self.statistics();
        let node = self.state.node(inode).await?;
        let Some(tree) = node.lock_live()?.charge.tree().cloned() else {
            return Ok(volume);
        };
        let (limit, used) = (tree.limit(), tree.used());
        if limit == NO_LIMIT {
            return Ok(volume);
        }
        let total_bytes = limit.bytes.min(volume.total_bytes);
        let total_files = limit.files.min(volume.total_files);
        let free_bytes = free(total_bytes, used.bytes);
        let free_files = free(total_files, used.files);
        Ok(Statistics {
            total_bytes,
            free_bytes,
            available_bytes: free_bytes.min(volume.free_bytes),
            total_files,
            free_files,
            available_files: free_files.min(volume.free_files),
        })
    }
}

fn free(limit: u64, used: u64) -> u64 {
    limit.saturating_sub(used)
}
