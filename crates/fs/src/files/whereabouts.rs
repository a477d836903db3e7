//! Where a file or a tree is: in memory, in the log, on the local disk, in the bucket. Also has one published.
//!
//! ```text
//!   lookup   the object at a path
//!   walk     the objects below it, a few at a time, within bounded memory
//!   file     the bytes of one file
//!   report   what the operator gets
//! ```
//!
//! A walk reads names and records past the table of nodes, so that it displaces none, and locks a node for a few blocks at
//! a time. While the bucket does not answer, it takes what is in memory and says what is missing.

mod file;
mod lookup;
mod reading;
mod report;
mod walk;

use std::sync::atomic::AtomicU64;

use forebay_types::CheckpointId;

use super::Files;
pub(crate) use lookup::{Found, names};
pub use report::{FlushedPath, PathError, Unknown, Whereabouts};
use walk::{Aim, Walk};

impl Files {
    /// Where the object at `path` and everything below it is. Adds each object that it has seen to `seen`.
    pub(crate) async fn whereabouts(
        &self,
        path: &[u8],
        seen: &AtomicU64,
    ) -> Result<Whereabouts, PathError> {
        let _turn = self.walks.acquire().await;
        let found = self.find(path).await?;
        let mut walk = Walk::new(self, Aim::Everything, seen, found.kind);
        walk.object_at(path, &found).await?;
        let mut report = walk.report();
        if found.is_unpublished {
            report.is_in_bucket = Some(false);
            report.since = None;
        } else if report.is_in_bucket.is_none() && self.state.oldest_unpublished().is_none() {
            // Whatever is there, no change of the volume is unpublished.
            report.is_in_bucket = Some(true);
        }
        Ok(report)
    }

    /// Returns when the bucket has the object at `path` and everything below it, with all changes that were made
    /// before the call.
    pub(crate) async fn publish_path(&self, path: &[u8]) -> Result<FlushedPath, PathError> {
        let needed = self.unpublished_at(path).await?;
        let published = self.publisher.progress().published();
        let Some(id) = needed.filter(|id| *id > self.publisher.last()) else {
            return Ok(FlushedPath {
                published,
                waited: false,
            });
        };
        let is_open = self.state.is_open(id);
        let published = self.publisher.wait_for_checkpoint(id, is_open).await?;
        Ok(FlushedPath {
            published,
            waited: true,
        })
    }

    /// The checkpoint whose publication brings the object at `path` and everything below it to the bucket; `None` if
    /// it is there.
    async fn unpublished_at(&self, path: &[u8]) -> Result<Option<CheckpointId>, PathError> {
        let found: Found = self.find(path).await?;
        if self.state.oldest_unpublished().is_none() {
            return Ok(None);
        }
        // All changes so far are in this one or before it.
        let newest = self.state.newest_checkpoint();
        if found.is_unpublished {
            return Ok(newest);
        }
        let _turn = self.walks.acquire().await;
        let seen = AtomicU64::new(0);
        let mut walk = Walk::new(self, Aim::Unpublished { enough: newest }, &seen, found.kind);
        walk.object_at(path, &found).await?;
        // What could not be listed may have changed.
        Ok(match walk.is_complete() {
            true => walk.unpublished(),
            false => newest,
        })
    }
}
