//! Leaving early: blocks that a sequential writer has filled go to the bucket while their checkpoint is open.
//!
//! ```text
//!   whole ------------> on its way ------------> clean, its place known to the node ------> published
//!    | a stream has       | its snapshot is        | may be evicted; what is written
//!    | filled it          | encoded and put        | to it from here on is dirty anew
//!    |                    |
//!    |                    | changed meanwhile: dirty as before, and what was put is dead from the start
//! ```
//!
//! One task beside the publisher drives them. Both share the uploads that may be under way at once. A
//! checkpoint that has closed waits for what is still on its way of it, so that the publisher never
//! meets a block whose bytes somebody else answers for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_cache::{BlockVersion, Lease};
use forebay_meta::record::BlockMap;
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, CheckpointId};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedRwLockReadGuard, mpsc};
use tokio::task::JoinSet;

use super::dirty::DirtyBlock;
use super::upload::{AT_ONCE_BESIDE, Landed, PutPack};
use super::{Halted, pack_plan};
use crate::core::{Core, Stopped};
use crate::node::Node;

/// Blocks that may wait to leave. What finds no place goes with its checkpoint.
const MAX_WAITING: usize = 1024;

/// How long who finds no memory waits at most before he looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What writers and the two tasks tell one another.
#[derive(Default)]
pub(crate) struct Leaving {
    waiting: Mutex<VecDeque<(Arc<Node>, BlockIndex)>>,
    wake: Notify,
    /// Packs on their way.
    under_way: AtomicUsize,
    /// Packs in the bucket whose checkpoints are not published.
    packs: Mutex<BTreeMap<CheckpointId, Vec<PutPack>>>,
}

impl Leaving {
    /// A stream has filled these blocks: they may leave. Each does so once in a checkpoint at most: who writes the same bytes
    /// over and over pays for them twice.
    pub(crate) fn tell(&self, node: &Arc<Node>, blocks: impl IntoIterator<Item = BlockIndex>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let room = MAX_WAITING.saturating_sub(waiting.len());
        waiting.extend(blocks.take(room).map(|block| (node.clone(), block)));
        self.wake.notify_one();
    }

    /// Whether something leaves whose memory becomes free when it has arrived.
    pub(crate) fn is_busy(&self, pack_bytes: u64) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
            || self.waiting.lock().len() >= blocks_of_pack(pack_bytes)
    }

    /// The packs that have left before this checkpoint closed.
    pub(super) fn take_packs(&self, checkpoint: CheckpointId) -> Vec<PutPack> {
        self.packs.lock().remove(&checkpoint).unwrap_or_default()
    }

    /// As many blocks as fill a pack of so many bytes; none if there are not so many.
    fn take_group(&self, pack_bytes: u64) -> Option<Vec<(Arc<Node>, BlockIndex)>> {
        let mut waiting = self.waiting.lock();
        let count = blocks_of_pack(pack_bytes);
        (waiting.len() >= count).then(|| waiting.drain(..count).collect())
    }
}

fn blocks_of_pack(pack_bytes: u64) -> usize {
    pack_bytes.div_ceil(BLOCK_SIZE).max(1) as usize
}

/// Blocks of one checkpoint on their way.
struct Departure {
    checkpoint: CheckpointId,
    /// Until they have arrived, the checkpoint is not published.
    not_published: OwnedRwLockReadGuard<()>,
    nodes: Vec<(Arc<Node>, BlockVersion)>,
    blocks: Vec<DirtyBlock>,
}

/// A pack that leaves, from the first look for its memory until it has arrived.
struct UnderWay(Arc<Core>);

impl UnderWay {
    fn new(core: &Arc<Core>) -> UnderWay {
        let leaving = &core.checkpoints.leaving;
        leaving.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(core.clone())
    }

    /// Whether no other one is.
    fn is_alone(&self) -> bool {
        self.0.checkpoints.leaving.under_way.load(Ordering::Acquire) == 1
    }

    /// Memory for the pack, out of what uploads may have. One at a time there is always, for memory becomes free by
    /// uploads; the next one waits for room.
    async fn lease(&self, bytes: u64) -> Lease {
        loop {
            if let Some(lease) = self.0.try_lease_reserve(bytes) {
                return lease;
            }
            if self.is_alone() {
                return self.0.lease(bytes);
            }
            self.0.memory_freed_within(LOOK_AGAIN).await;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let leaving = &self.0.checkpoints.leaving;
        leaving.under_way.fetch_sub(1, Ordering::AcqRel);
        // What has arrived may be evicted.
        self.0.memory_freed();
        // The publisher frees the memory of packs if no further one follows.
        self.0.checkpoints.wake();
    }
}

impl Core {
    /// Lets blocks leave in full packs, for as long as there is a publisher.
    pub(crate) async fn leave_forever(self: Arc<Core>) {
        let leaving = &self.checkpoints.leaving;
        let mut under_way = JoinSet::new();
        loop {
            let wake = leaving.wake.notified();
            while under_way.len() < self.config.upload_parallel + AT_ONCE_BESIDE
                && let Some(group) = leaving.take_group(self.config.pack_bytes)
            {
                let guard = UnderWay::new(&self);
                let lease = guard.lease(pack_plan::whole_blocks(group.len())).await;
                if let Some(departure) = self.depart(group) {
                    under_way.spawn(self.clone().arrive(departure, lease, guard));
                }
            }
            tokio::select! {
                biased;
                Some(done) = under_way.join_next() => {
                    if let Err(error) = done {
                        self.stop(Stopped::Failed(format!("an upload ended early: {error}")));
                    }
                }
                () = wake => {}
            }
        }
    }

    /// Takes over those of the blocks that are as they were when they were told to leave; none if none is.
    fn depart(&self, group: Vec<(Arc<Node>, BlockIndex)>) -> Option<Departure> {
        let mut departure: Option<Departure> = None;
        for (node, index) in group {
            let mut state = node.lock();
            // Under the gate no checkpoint closes: the publisher sees all of it or nothing.
            let open = self.gate.read();
            let other = departure
                .as_ref()
                .is_some_and(|departure| departure.checkpoint != open.id);
            let has_left = state.early.has(open.id, index);
            if other || has_left || !state.blocks.is_whole_in(index, open.id) {
                continue;
            }
            if departure.is_none() {
                departure = Some(Departure {
                    checkpoint: open.id,
                    not_published: open.under_way.clone().try_read_owned().ok()?,
                    nodes: Vec::new(),
                    blocks: Vec::new(),
                });
            }
            let (Some(departure), Some(snapshot)) =
                (&mut departure, state.blocks.snapshot(index, open.id))
            else {
                continue;
            };
            drop(open);
            departure.nodes.push((node.clone(), snapshot.version()));
            let key = BlockKey {
                inode: node.inode,
                block: index,
            };
            departure.blocks.push(DirtyBlock {
                key,
                node: node.clone(),
                snapshot,
                rewrite: None,
            });
        }
        departure
    }

    /// Puts the blocks into the bucket and notes where they lie.
    async fn arrive(self: Arc<Core>, departure: Departure, lease: Lease, _under_way: UnderWay) {
        let Departure {
            checkpoint,
            not_published: _not_published,
            nodes,
            blocks,
        } = departure;
        let keys: Vec<BlockKey> = blocks.iter().map(|block| block.key).collect();
        let pack = self.checkpoints.new_pack();
        let (landed, mut landings) = mpsc::unbounded_channel();
        let upload = self
            .clone()
            .upload_pack(checkpoint, pack, blocks, lease, landed);
        let (Ok(()), Some(Landed { pack, frames })) = (upload.await, landings.recv().await) else {
            // The volume has stopped, and what was on its way is in the log.
            return;
        };
        // Before the blocks, whose publication looks for it.
        let mut packs = self.checkpoints.leaving.packs.lock();
        packs.entry(checkpoint).or_default().extend(pack);
        drop(packs);
        for ((node, version), key) in nodes.into_iter().zip(keys) {
            let mut map = BlockMap::new();
            for (_, frame) in frames.iter().filter(|(of, _)| *of == key) {
                if let Err(error) = map.insert(frame.raw_range(), *frame) {
                    self.stop(Stopped::Failed(format!("inode {}: {error}", node.inode)));
                    return;
                }
            }
            let mut state = node.lock();
            if state.blocks.uploaded(key.block, checkpoint, version) {
                state.early.insert(checkpoint, key.block, map);
            }
        }
    }

    /// Waits for what is on its way of a checkpoint that has closed; `Err` when the volume stops meanwhile.
    pub(super) async fn all_arrived(
        &self,
        under_way: &tokio::sync::RwLock<()>,
    ) -> Result<(), Halted> {
        let mut stopped = self.watch_stopped();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
            _ = under_way.write() => Ok(()),
        }
    }
}
