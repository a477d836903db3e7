//! Eager upload: blocks that a sequential writer has filled go to the bucket while their checkpoint is open.
//!
//! ```text
//!   whole ------------> in flight -------------> clean, its map known to the node --------> published
//!    | a stream has       | its image is        | may be evicted; a write
//!    | filled it          | encoded and put        | makes it dirty again
//!    |                    |
//!    |                    | changed meanwhile: dirty as before, and its uploaded frames are dead
//! ```
//!
//! One task beside the publisher drives the eager uploads. The two share the limit of concurrent uploads. After a
//! checkpoint has closed, the publisher waits for its eager uploads, so that it never meets a block that another task
//! is uploading.

use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Lease;
use forebay_meta::record::BlockMap;
use forebay_object::{Cause, caused};
use forebay_types::{BlockKey, CheckpointId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::dirty::DirtyBlock;
use super::put_pack::PutPack;
use super::upload::Landed;
use super::{Halted, Publisher, pack_plan};
use crate::state::{
    AT_ONCE_BESIDE, EFFORT_LOOK, EagerUploads, Memory, Signals, Stopped, TakenOver,
};

/// The longest time that an upload without memory waits before it checks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A pack of an eager upload, from the first request for its memory until it has arrived.
struct UnderWay {
    eager: Arc<EagerUploads>,
    memory: Arc<Memory>,
    signals: Arc<Signals>,
}

impl UnderWay {
    fn new(publisher: &Publisher) -> UnderWay {
        let context = &publisher.context;
        context.eager.begin_pack();
        UnderWay {
            eager: context.eager.clone(),
            memory: context.memory.clone(),
            signals: context.signals.clone(),
        }
    }

    /// Whether it is the only eager upload.
    fn is_alone(&self) -> bool {
        self.eager.under_way() == 1
    }

    /// Memory for the pack, from the part for uploads. The only upload always gets it, because uploads make memory
    /// free; another one waits for room.
    async fn lease(&self, bytes: u64) -> Lease {
        loop {
            if let Some(lease) = self.memory.try_lease_reserve(bytes) {
                return lease;
            }
            if self.is_alone() {
                return self.memory.lease(bytes);
            }
            self.signals.freed_within(LOOK_AGAIN).await;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.eager.end_pack();
        // The uploaded blocks may be evicted now.
        self.signals.memory_freed();
        // The publisher frees the memory of packs if no other pack follows.
        self.signals.wake_publisher();
    }
}

impl Publisher {
    /// Uploads full packs of blocks that streams have filled, for as long as the volume runs.
    pub(crate) async fn upload_eagerly_forever(self: Arc<Publisher>) {
        let eager = self.context.eager.clone();
        let mut under_way = JoinSet::new();
        loop {
            let wake = eager.offered();
            let at_once = self.eager_at_once();
            while under_way.len() < at_once
                && let Some(group) = eager.take_group()
            {
                let guard = UnderWay::new(&self);
                let lease = guard.lease(pack_plan::whole_blocks(group.len())).await;
                if let Some(taken) = self.context.source.take_over(group) {
                    let upload = self.clone().upload_taken(taken, lease, guard);
                    under_way.spawn(caused(Cause::Publish, Box::pin(upload)));
                }
            }
            tokio::select! {
                biased;
                Some(done) = under_way.join_next() => {
                    if let Err(error) = done {
                        self.context.signals.stop(Stopped::Failed(format!("an upload ended early: {error}")));
                    }
                }
                () = wake => {}
                // Clients may pause, or wait.
                () = tokio::time::sleep(EFFORT_LOOK), if at_once == 0 && eager.has_group() => {}
            }
        }
    }

    /// How many packs of the open checkpoint may be under way now. None while an older one waits, which would be published
    /// later for it.
    fn eager_at_once(&self) -> usize {
        let effort = self.context.foreground.effort();
        match effort.eager && self.context.source.waiting() == 0 {
            true => effort.uploads + AT_ONCE_BESIDE,
            false => 0,
        }
    }

    /// Puts the blocks into the bucket and notes their addresses.
    async fn upload_taken(
        self: Arc<Publisher>,
        taken: TakenOver,
        lease: Lease,
        _under_way: UnderWay,
    ) {
        let TakenOver {
            checkpoint,
            not_published: _not_published,
            blocks,
        } = taken;
        let versions = blocks
            .iter()
            .map(|(node, image)| (node.clone(), image.block(), image.version()));
        let versions: Vec<_> = versions.collect();
        let blocks = blocks.into_iter().map(|(node, image)| DirtyBlock {
            key: BlockKey {
                inode: node.inode,
                block: image.block(),
            },
            node,
            image,
            rewrite: None,
        });
        let blocks = blocks.collect();
        let pack = self.progress.new_pack();
        let (landed, mut landings) = mpsc::unbounded_channel();
        let upload = self
            .clone()
            .upload_pack(checkpoint, pack, blocks, lease, landed);
        let (Ok(()), Some(Landed { pack, frames })) = (upload.await, landings.recv().await) else {
            // The volume has stopped; the log still has the blocks.
            return;
        };
        // Before the block maps, because the publication of a block needs its pack.
        let mut packs = self.eager_packs.lock();
        packs.entry(checkpoint).or_default().extend(pack);
        drop(packs);
        for (node, block, version) in versions {
            let key = BlockKey {
                inode: node.inode,
                block,
            };
            let mut map = BlockMap::new();
            for (_, frame) in frames.iter().filter(|(of, _)| *of == key) {
                if let Err(error) = map.insert(frame.raw_range(), *frame) {
                    self.context
                        .signals
                        .stop(Stopped::Failed(format!("inode {}: {error}", node.inode)));
                    return;
                }
            }
            let mut state = node.lock();
            if state.blocks.uploaded(key.block, checkpoint, version) {
                state.early.insert(checkpoint, key.block, map);
            }
        }
    }

    /// Takes the packs that were uploaded before this checkpoint closed.
    pub(super) fn take_eager_packs(&self, checkpoint: CheckpointId) -> Vec<PutPack> {
        self.eager_packs
            .lock()
            .remove(&checkpoint)
            .unwrap_or_default()
    }

    /// Waits for the eager uploads of a checkpoint that has closed; `Err` if the volume stops meanwhile.
    pub(super) async fn all_arrived(
        &self,
        under_way: &tokio::sync::RwLock<()>,
    ) -> Result<(), Halted> {
        let mut stopped = self.context.signals.watch_stopped();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => Err(Halted),
            _ = under_way.write() => Ok(()),
        }
    }
}
