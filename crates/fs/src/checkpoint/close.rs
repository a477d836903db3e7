//! Closing a checkpoint: fixing its end, and opening the next one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_meta::overlay::Generation;
use forebay_types::{CheckpointId, Lsn};
use tokio::time::Instant;

use crate::change::Open;
use crate::core::{Core, Stopped};
use crate::node::Node;

/// A checkpoint that takes no more changes and is not published yet.
pub(crate) struct Closed {
    pub(crate) id: CheckpointId,
    /// It holds exactly the changes that were recorded before this.
    pub(crate) end: Lsn,
    /// Every object that changed in it.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The names that changed in it.
    pub(crate) names: Arc<Generation>,
    pub(crate) next_inode: u64,
    /// Held shared for what has left early and is not in the bucket yet.
    pub(crate) under_way: Arc<tokio::sync::RwLock<()>>,
}

impl Core {
    /// Closes the open checkpoint; `None` if nothing changed in it.
    pub(crate) fn close_checkpoint(&self) -> Option<Closed> {
        let mut open = self.gate.write();
        let changed = open.take();
        let since = changed.since?;
        // Nobody holds the gate: every recorded change is in memory, and none is half made.
        let names = match self.catalog.overlay().close() {
            Ok(names) => names,
            Err(error) => {
                self.stop(Stopped::Failed(format!(
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
        let bytes = &self.checkpoints.closed_bytes;
        bytes.store(changed.bytes, Ordering::Relaxed);
        *open = Open::new(closed.id.next());
        *self.checkpoints.closed.lock() = Some(since);
        drop(open);
        self.data_shares.checkpoint_closed();
        self.name_shares.checkpoint_closed();
        Some(closed)
    }

    /// Since when the oldest unpublished change waits.
    pub(crate) fn oldest_unpublished(&self) -> Option<Instant> {
        let closed = *self.checkpoints.closed.lock();
        closed.or_else(|| self.gate.read().since())
    }
}
