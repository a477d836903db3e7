//! The parts of other rooms that the publisher needs.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_environment::Environment;
use forebay_meta::Catalog;
use forebay_meta::record::{TruncatedBlocks, VolumeState};
use forebay_pack_store::PackStore;
use forebay_quota::Accounts;
use forebay_reduction::dedup::Sharing;
use forebay_types::{BlockIndex, Inode, Lsn};
use forebay_wal::ReadFailed;
use tokio::time::Instant;

use crate::FsConfig;
use crate::damages::Damages;
use crate::fragments::Fragments;
use crate::state::{
    Closed, EagerUploads, Foreground, LoggedBytes, Memory, Node, Signals, SnapshotList,
    StoreTrouble, TakenOver,
};

/// The source of checkpoints.
#[async_trait]
pub(crate) trait CheckpointSource: Send + Sync {
    /// The oldest closed checkpoint that waits to be published; closes the open one if none waits, and returns `None` if
    /// nothing changed in that.
    fn close(&self) -> Option<Closed>;

    /// Number of closed checkpoints that wait to be published.
    fn waiting(&self) -> usize;

    /// The time of the oldest change in the open checkpoint; `None` if there is none.
    fn open_since(&self) -> Option<Instant>;

    /// Whether unpublished names take so much memory that the open checkpoint should close.
    fn wants_to_close(&self) -> bool;

    /// Takes over the blocks that are unchanged since they were offered, for their eager upload; `None` if there are
    /// none.
    fn take_over(&self, blocks: Vec<(Arc<Node>, BlockIndex)>) -> Option<TakenOver>;

    /// Reads the writes into a file that have these records, which ascend: for each the bytes, or why the log cannot
    /// return them.
    async fn read_logged(
        &self,
        inode: Inode,
        records: Vec<Lsn>,
    ) -> Vec<Result<LoggedBytes, ReadFailed>>;

    /// Notes that the oldest closed checkpoint is published, with this next inode number.
    fn published(&self, next_inode: u64);

    /// Notes that the bucket has everything before `end`, with `state` as its published state: the log before it is
    /// no longer needed.
    fn recycle(&self, end: Lsn, state: &VolumeState);

    /// Notes the blocks that are left after truncated blocks of a file were collected.
    fn truncated_collected(&self, inode: Inode, left: TruncatedBlocks);

    /// When to try to restart a failed log; `None` if the log works.
    fn next_log_attempt(&self) -> Option<Instant>;

    /// Restarts the log if it has failed and the bucket has everything.
    async fn restart_log(&self);
}

/// The rooms below the publisher that it uses.
pub(crate) struct Context {
    pub(crate) config: Arc<FsConfig>,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) eager: Arc<EagerUploads>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) trouble: Arc<StoreTrouble>,
    pub(crate) damages: Arc<Damages>,
    pub(crate) fragments: Arc<Fragments>,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) source: Arc<dyn CheckpointSource>,
    pub(crate) foreground: Arc<dyn Foreground>,
}

#[cfg(test)]
pub(super) mod fake {
    use std::sync::atomic::{AtomicU64, Ordering};

    use forebay_types::CheckpointId;
    use forebay_vfs::Timestamp;
    use parking_lot::Mutex;

    use super::*;

    /// A source whose checkpoints hold the changes that a test makes.
    pub(in crate::publisher) struct FakeSource {
        catalog: Arc<Catalog>,
        open: AtomicU64,
        changed: Mutex<Vec<Arc<Node>>>,
        /// The answers of the log, the last one first; without one it does not have the record.
        pub(in crate::publisher) log: Mutex<Vec<Result<LoggedBytes, ReadFailed>>>,
        /// The publisher's calls, in order.
        pub(in crate::publisher) calls: Mutex<Vec<String>>,
    }

    impl FakeSource {
        pub(in crate::publisher) fn new(catalog: Arc<Catalog>) -> FakeSource {
            FakeSource {
                catalog,
                open: AtomicU64::new(1),
                changed: Mutex::default(),
                log: Mutex::default(),
                calls: Mutex::default(),
            }
        }

        /// The number of the open checkpoint.
        pub(in crate::publisher) fn open_checkpoint(&self) -> CheckpointId {
            CheckpointId(self.open.load(Ordering::Relaxed))
        }

        /// Marks the node as changed in the open checkpoint.
        pub(in crate::publisher) fn change(&self, node: &Arc<Node>) {
            self.changed.lock().push(node.clone());
        }
    }

    #[async_trait]
    impl CheckpointSource for FakeSource {
        fn close(&self) -> Option<Closed> {
            let nodes = std::mem::take(&mut *self.changed.lock());
            if nodes.is_empty() {
                return None;
            }
            let id = CheckpointId(self.open.fetch_add(1, Ordering::Relaxed));
            Some(Closed {
                id,
                end: Lsn(100 * id.0),
                at: Timestamp::default(),
                nodes,
                names: self.catalog.overlay().close(),
                next_inode: 10,
                under_way: Arc::default(),
                snapshot: None,
            })
        }

        fn waiting(&self) -> usize {
            0
        }

        fn open_since(&self) -> Option<Instant> {
            (!self.changed.lock().is_empty()).then(Instant::now)
        }

        fn wants_to_close(&self) -> bool {
            false
        }

        fn take_over(&self, _blocks: Vec<(Arc<Node>, BlockIndex)>) -> Option<TakenOver> {
            None
        }

        async fn read_logged(
            &self,
            _inode: Inode,
            records: Vec<Lsn>,
        ) -> Vec<Result<LoggedBytes, ReadFailed>> {
            let mut log = self.log.lock();
            let answers = records.iter().map(|_| log.pop());
            answers
                .map(|answer| answer.unwrap_or(Err(ReadFailed::Gone)))
                .collect()
        }

        fn published(&self, next_inode: u64) {
            self.calls.lock().push(format!("published {next_inode}"));
        }

        fn recycle(&self, end: Lsn, _state: &VolumeState) {
            self.calls.lock().push(format!("recycle {end}"));
        }

        fn truncated_collected(&self, inode: Inode, _left: TruncatedBlocks) {
            self.calls.lock().push(format!("collected {inode}"));
        }

        fn next_log_attempt(&self) -> Option<Instant> {
            None
        }

        async fn restart_log(&self) {}
    }
}
