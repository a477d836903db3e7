//! Checkpoints: the open one, which collects changes, and the closed one, which is published.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::Snapshot;
use forebay_meta::overlay::Generation;
use forebay_types::{BlockIndex, CheckpointId, Lsn};
use parking_lot::Mutex;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::Instant;

use super::State;
use super::node::{Node, NodeState};
use super::signals::Stopped;

/// The checkpoint that collects changes.
pub(crate) struct OpenCheckpoint {
    pub(crate) id: CheckpointId,
    /// Held shared by eager uploads of this checkpoint until their blocks are in the bucket.
    pub(crate) under_way: Arc<tokio::sync::RwLock<()>>,
    changed: Mutex<Changed>,
}

/// What changed in a checkpoint.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Memory of these nodes, with their publication.
    pub(crate) bytes: u64,
    /// The time of the first change.
    pub(crate) since: Option<Instant>,
}

impl OpenCheckpoint {
    pub(crate) fn new(id: CheckpointId) -> OpenCheckpoint {
        OpenCheckpoint {
            id,
            under_way: Arc::default(),
            changed: Mutex::default(),
        }
    }

    /// To be called before each change of a node. Returns whether the change is the first of the checkpoint.
    pub(crate) fn begin_change(&self, node: &Arc<Node>, state: &mut NodeState) -> bool {
        if !state.begin_change(self.id) {
            return false;
        }
        let mut changed = self.changed.lock();
        changed.nodes.push(node.clone());
        changed.bytes += node.changed_bytes();
        let first = changed.since.is_none();
        changed.since.get_or_insert_with(Instant::now);
        first
    }

    pub(crate) fn since(&self) -> Option<Instant> {
        self.changed.lock().since
    }

    /// Memory of the changed nodes, with their publication.
    pub(crate) fn changed_bytes(&self) -> u64 {
        self.changed.lock().bytes
    }

    pub(crate) fn take(&self) -> Changed {
        std::mem::take(&mut self.changed.lock())
    }
}

/// A checkpoint that takes no more changes and is not published yet.
pub(crate) struct Closed {
    pub(crate) id: CheckpointId,
    /// The checkpoint holds exactly the changes that were recorded before this position.
    pub(crate) end: Lsn,
    /// Every object that changed in it.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The names that changed in it.
    pub(crate) names: Arc<Generation>,
    pub(crate) next_inode: u64,
    /// Held shared by eager uploads whose blocks are not in the bucket yet.
    pub(crate) under_way: Arc<tokio::sync::RwLock<()>>,
}

/// Blocks of the open checkpoint that are uploaded before it closes.
pub(crate) struct TakenOver {
    pub(crate) checkpoint: CheckpointId,
    /// While this is held, the checkpoint is not published.
    pub(crate) not_published: OwnedRwLockReadGuard<()>,
    pub(crate) blocks: Vec<(Arc<Node>, Snapshot)>,
}

impl State {
    /// Closes the open checkpoint; `None` if nothing changed in it.
    pub(crate) fn close_checkpoint(&self) -> Option<Closed> {
        let mut open = self.checkpoint_lock.write();
        let changed = open.take();
        let since = changed.since?;
        // No task holds the lock shared: every recorded change is in memory, and none is half made.
        let names = match self.catalog.overlay().close() {
            Ok(names) => names,
            Err(error) => {
                self.signals.stop(Stopped::Failed(format!(
                    "two checkpoints are closed at once: {error}"
                )));
                return None;
            }
        };
        let closed = Closed {
            id: open.id,
            end: self.position(),
            nodes: changed.nodes,
            names,
            next_inode: self.numbers.next(),
            under_way: open.under_way.clone(),
        };
        self.closed_bytes.store(changed.bytes, Ordering::Relaxed);
        *open = OpenCheckpoint::new(closed.id.next());
        *self.closed_since.lock() = Some(since);
        drop(open);
        self.memory.checkpoint_closed();
        self.name_shares.checkpoint_closed();
        Some(closed)
    }

    /// The time of the oldest unpublished change.
    pub(crate) fn oldest_unpublished(&self) -> Option<Instant> {
        let closed = *self.closed_since.lock();
        closed.or_else(|| self.checkpoint_lock.read().since())
    }

    /// The newest checkpoint that is not empty, which may be published already; `None` if nothing has changed since the
    /// start.
    pub(crate) fn newest_checkpoint(&self) -> Option<CheckpointId> {
        let open = self.checkpoint_lock.read();
        match open.since() {
            Some(_) => Some(open.id),
            None => open
                .id
                .0
                .checked_sub(1)
                .filter(|id| *id > 0)
                .map(CheckpointId),
        }
    }

    /// Whether this checkpoint still takes changes.
    pub(crate) fn is_open(&self, id: CheckpointId) -> bool {
        self.checkpoint_lock.read().id == id
    }

    /// Takes over the blocks that are still as they were when they were offered for eager upload; `None` if there are
    /// none.
    pub(crate) fn take_over(&self, group: Vec<(Arc<Node>, BlockIndex)>) -> Option<TakenOver> {
        let mut taken: Option<TakenOver> = None;
        for (node, index) in group {
            let mut state = node.lock();
            // No checkpoint closes under the lock: the publisher sees all of it or nothing.
            let open = self.checkpoint_lock.read();
            let other = taken
                .as_ref()
                .is_some_and(|taken| taken.checkpoint != open.id);
            let has_left = state.early.has(open.id, index);
            if other || has_left || !state.blocks.is_whole_in(index, open.id) {
                continue;
            }
            if taken.is_none() {
                taken = Some(TakenOver {
                    checkpoint: open.id,
                    not_published: open.under_way.clone().try_read_owned().ok()?,
                    blocks: Vec::new(),
                });
            }
            let (Some(taken), Some(snapshot)) = (&mut taken, state.blocks.snapshot(index, open.id))
            else {
                continue;
            };
            drop(open);
            taken.blocks.push((node.clone(), snapshot));
        }
        taken
    }

    /// Notes that the closed checkpoint is published; new objects get numbers from `next_inode` on, up to the lease.
    pub(crate) fn checkpoint_published(&self, next_inode: u64) {
        self.numbers.published(next_inode);
        self.closed_bytes.store(0, Ordering::Relaxed);
        *self.closed_since.lock() = None;
    }
}
