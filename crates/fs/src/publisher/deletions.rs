//! Deletions of dead packs, in a task of their own, so that no publication waits for them.
//!
//! [Reclaiming](super::reclaim) orders a group of packs to which nothing will refer any more, and looks again when the
//! group is gone from the bucket: only then does it delete the notes on these packs. A crash in between deletes some packs
//! twice, which the bucket permits.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_types::{CheckpointId, PackId};
use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Publisher;

/// How many packs are deleted at the same time.
const PARALLEL: usize = 8;

/// The deletions of one volume.
#[derive(Default)]
pub(super) struct Deletions {
    inner: Mutex<Inner>,
    ordered: Notify,
}

#[derive(Default)]
struct Inner {
    /// The packs of the current group that the bucket still has.
    group: BTreeSet<PackId>,
    /// Deleted packs whose notes are still there.
    deleted: BTreeSet<PackId>,
    /// The last checkpoint that was published when the group was ordered.
    ordered_at: Option<CheckpointId>,
    /// The same of the last group if the bucket refused one of its deletions: no group begins before another checkpoint is
    /// published.
    refused_at: Option<CheckpointId>,
}

impl Deletions {
    /// Whether a pack is being deleted.
    pub(super) fn is_under_way(&self, pack: PackId) -> bool {
        self.inner.lock().group.contains(&pack)
    }

    /// Whether a pack is gone from the bucket.
    pub(super) fn is_deleted(&self, pack: PackId) -> bool {
        self.inner.lock().deleted.contains(&pack)
    }

    /// Notes that the notes on a deleted pack go.
    pub(super) fn forget(&self, pack: PackId) {
        self.inner.lock().deleted.remove(&pack);
    }

    /// Whether a group may be ordered. `last` is the last checkpoint that is published.
    pub(super) fn may_order(&self, last: CheckpointId) -> bool {
        let inner = self.inner.lock();
        inner.group.is_empty() && inner.refused_at != Some(last)
    }

    /// Orders the deletion of a group of packs, which nothing refers to, and nothing will. `last` is the last checkpoint
    /// that is published.
    pub(super) fn order(&self, packs: BTreeSet<PackId>, last: CheckpointId) {
        let mut inner = self.inner.lock();
        inner.group = packs;
        inner.ordered_at = Some(last);
        drop(inner);
        self.ordered.notify_one();
    }

    fn group(&self) -> Vec<PackId> {
        self.inner.lock().group.iter().copied().collect()
    }

    /// Notes that the bucket does not have the pack any more.
    fn note_deleted(&self, pack: PackId) {
        let mut inner = self.inner.lock();
        inner.group.remove(&pack);
        inner.deleted.insert(pack);
    }

    /// Gives up the rest of the group until a checkpoint is published after the returned one.
    fn refused(&self) -> Option<CheckpointId> {
        let mut inner = self.inner.lock();
        inner.group.clear();
        inner.refused_at = inner.ordered_at;
        inner.ordered_at
    }
}

impl Publisher {
    /// The task that deletes dead packs, until the volume stops.
    pub(crate) async fn delete_forever(self: Arc<Self>) {
        loop {
            self.deletions.ordered.notified().await;
            self.delete_group().await;
        }
    }

    /// Deletes the group that is ordered, and has the publisher delete the notes on its packs.
    pub(super) async fn delete_group(&self) {
        let group = self.deletions.group();
        let mut results = stream::iter(group)
            .map(|pack| async move { (pack, self.context.packs.delete(pack).await) })
            .buffer_unordered(PARALLEL);
        let mut has_news = false;
        while let Some((pack, result)) = results.next().await {
            if let Err(error) = result {
                // Nothing depends on it. Deletions that have begun beside it are repeated.
                tracing::warn!("pack {pack} cannot be deleted: {error}; tried again later");
                let ordered_at = self.deletions.refused();
                self.progress.note_undeleted();
                // The publication that looks at this note may be over.
                has_news |= ordered_at != Some(self.progress.last());
                break;
            }
            self.committer.pack_deleted(pack);
            self.deletions.note_deleted(pack);
            has_news = true;
        }
        if has_news {
            self.progress.tidy();
        }
    }
}
