//! Blocks that wait for their eager upload.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_types::{BLOCK_SIZE, BlockIndex, to_usize};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::node::Node;

/// How many blocks may wait. A block that finds the queue full is uploaded with its checkpoint.
const MAX_WAITING: usize = 1024;

/// The state that writers and the eager uploads share.
pub(crate) struct EagerUploads {
    waiting: Mutex<VecDeque<(Arc<Node>, BlockIndex)>>,
    wake: Notify,
    /// Packs in flight.
    under_way: AtomicUsize,
    /// Number of blocks that fill a pack.
    blocks_of_pack: usize,
}

impl EagerUploads {
    /// For packs of `pack_bytes` raw bytes.
    pub(crate) fn new(pack_bytes: u64) -> EagerUploads {
        EagerUploads {
            waiting: Mutex::default(),
            wake: Notify::new(),
            under_way: AtomicUsize::new(0),
            blocks_of_pack: to_usize(pack_bytes.div_ceil(BLOCK_SIZE).max(1)),
        }
    }

    /// Offers blocks that a stream has filled for upload. Each block is uploaded at most once in a checkpoint: a
    /// writer that overwrites the same bytes again and again pays for two uploads.
    pub(crate) fn offer(&self, node: &Arc<Node>, blocks: impl IntoIterator<Item = BlockIndex>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let room = MAX_WAITING.saturating_sub(waiting.len());
        waiting.extend(blocks.take(room).map(|block| (node.clone(), block)));
        self.wake.notify_one();
    }

    /// Returns when blocks have been offered.
    pub(crate) fn offered(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Whether packs are in flight, whose memory becomes free when they have arrived, or enough blocks wait for one.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0 || self.has_group()
    }

    /// Whether enough blocks wait for a pack.
    pub(crate) fn has_group(&self) -> bool {
        self.waiting() >= self.blocks_of_pack
    }

    /// Number of blocks that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Takes as many blocks as fill a pack; `None` if there are fewer.
    pub(crate) fn take_group(&self) -> Option<Vec<(Arc<Node>, BlockIndex)>> {
        let mut waiting = self.waiting.lock();
        let count = self.blocks_of_pack;
        (waiting.len() >= count).then(|| waiting.drain(..count).collect())
    }

    /// Counts a pack that is begun; returns the number of packs in flight, with this one.
    pub(crate) fn begin_pack(&self) -> usize {
        self.under_way.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A pack has arrived, or was given up.
    pub(crate) fn end_pack(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Number of packs in flight.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }
}
