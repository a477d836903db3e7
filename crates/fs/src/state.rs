//! The state of a volume: everything that changes when a change is recorded.
//!
//! ```text
//!   change          one record in the journal and the same change in memory, under the checkpoint lock
//!   checkpoint      closing: which changes the next publications hold
//!   node            attributes and blocks of one object, newest and as of each closed checkpoint
//!   inode_hash      the hash by which the table of all nodes finds one
//!   memory          block buffers, and admission to them
//!   names_memory    unpublished names and attributes, and admission to them
//!   journal         the log, or only a position
//!   log_bytes       bytes of files that are in the log alone
//!   log_failure     a flush of the log fails
//!   reservoir, pace how fast writers may fill the log
//!   snapshot_list   the snapshots of the volume
//!   trash           when the trash has work
//!   signals         the volume has stopped, the publisher is needed, memory was freed
//!   store_trouble   trouble with the bucket
//! ```
//!
//! Operations on files, in the rooms above, make changes here. The publisher takes closed checkpoints from here and
//! brings them to the bucket; this room depends on neither.

mod change;
mod checkpoint;
mod client_shares;
mod eager;
mod eager_queue;
mod effort;
mod fetch_plan;
mod inode_hash;
mod journal;
mod known_names;
mod log_bytes;
mod log_failure;
mod memory;
mod moves;
mod names_memory;
mod node;
mod node_table;
mod numbers;
mod pace;
mod pack_buffers;
mod passed_cookies;
mod read_streams;
mod reservoir;
mod signals;
mod snapshot_list;
mod store_trouble;
mod trash;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use forebay_environment::{Environment, archived_log};
use forebay_meta::record::{InodeRecord, VolumeState};
use forebay_meta::{Catalog, StoreError};
use forebay_quota::Accounts;
use forebay_types::{CheckpointId, Inode, Lsn};
use forebay_vfs::{Error, Result, Timestamp, Trouble, Troubles, Verifier};
use forebay_waits::{For, blocking};
use forebay_wal::Recovery;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::Semaphore;

use crate::FsConfig;

use checkpoint::ClosedCheckpoints;
use effort::Pauses;
use journal::OwnLog;
use pace::Pace;

pub(crate) use change::{NameChange, Refusal};
pub(crate) use checkpoint::{Closed, OpenCheckpoint, TakenOver};
pub(crate) use client_shares::ClientShares;
pub(crate) use eager::MayUpload;
pub(crate) use eager_queue::EagerUploads;
#[cfg(test)]
pub(crate) use effort::Effort;
pub(crate) use effort::{EFFORT_LOOK, Foreground};
pub(crate) use fetch_plan::{FetchPlan, by_block};
pub(crate) use journal::{Journal, Position};
pub(crate) use known_names::{KnownNames, Room};
pub(crate) use log_bytes::{LoggedBytes, RECORDS_AT_ONCE};
pub(crate) use log_failure::LogHealth;
pub(crate) use memory::{Memory, MemoryParts};
pub(crate) use moves::{Ancestors, Moves};
pub(crate) use node::{ClosedNode, Locked, NODE_BYTES, Node, NodeState};
pub(crate) use node_table::NodeTable;
pub(crate) use numbers::{InodeNumbers, LEASE};
pub(crate) use pack_buffers::{AT_ONCE_BESIDE, Buffer, PackBuffers, most};
pub(crate) use passed_cookies::SHORT;
pub(crate) use read_streams::{Stream, steps};
pub(crate) use signals::Signals;
pub use signals::Stopped;
pub use snapshot_list::BadSnapshotName;
pub(crate) use snapshot_list::{Listed, SnapshotList, check_name};
pub(crate) use store_trouble::StoreTrouble;
pub(crate) use trash::{ListedPlace, Trash};

/// The state of one volume.
pub(crate) struct State {
    pub(crate) config: Arc<FsConfig>,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) nodes: Arc<NodeTable>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) accounts: Arc<Accounts>,
    /// Blocks that may go to the bucket before their checkpoint closes.
    pub(crate) eager: Arc<EagerUploads>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) trouble: Arc<StoreTrouble>,
    /// Counts of waiting calls, by their reason.
    pub(crate) troubles: Arc<Troubles>,
    pub(crate) numbers: InodeNumbers,
    /// Room for the names that directories in memory know.
    pub(crate) names_room: Arc<Room>,
    /// Held shared from before a change's record until the change is made in memory, and exclusively to close the
    /// checkpoint. Lock order: names of directories, states of nodes, moves, this, everything else.
    pub(crate) checkpoint_lock: RwLock<OpenCheckpoint>,
    /// The directories that were moved to other directories.
    pub(crate) moves: Mutex<Moves>,
    pub(crate) log_health: LogHealth,
    /// How much each client has changed of names and attributes.
    name_shares: ClientShares,
    /// Set when recovery is done.
    journal: OnceLock<Journal>,
    /// Set when recovery begins.
    own_log: OnceLock<Arc<OwnLog>>,
    /// Records of the log that may be read into memory.
    log_reads: Arc<Semaphore>,
    /// The position that recovery has reached.
    replayed: AtomicU64,
    verifier: Mutex<Verifier>,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) trash: Trash,
    /// The closed checkpoints that are not published yet.
    closed: ClosedCheckpoints,
    pace: Pace,
    pauses: Pauses,
}

/// The parts of [`State::new`].
pub(crate) struct Parts {
    pub(crate) config: Arc<FsConfig>,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) accounts: Accounts,
    pub(crate) trouble: StoreTrouble,
    pub(crate) next_inode: u64,
    pub(crate) verifier: Verifier,
    pub(crate) start: Lsn,
    pub(crate) snapshots: SnapshotList,
}

impl State {
    pub(crate) fn new(parts: Parts) -> State {
        let config = parts.config;
        let pauses = Pauses::new(parts.start, config.busy_time);
        let nodes = Arc::new(NodeTable::new(config.node_limit));
        let eager = Arc::new(EagerUploads::new(config.pack_bytes));
        let signals = Arc::new(Signals::new());
        let troubles = Arc::<Troubles>::default();
        let memory = Memory::new(MemoryParts {
            limit: config.memory_limit,
            reserve: config.memory_reserve(),
            room_wait: config.room_wait,
            nodes: nodes.clone(),
            eager: eager.clone(),
            pack_buffers: PackBuffers::new(most(&config)),
            signals: signals.clone(),
            troubles: troubles.clone(),
        });
        let opened = parts.environment.clock.now();
        State {
            names_room: Room::beside(config.overlay_limit),
            config,
            environment: parts.environment,
            catalog: parts.catalog,
            nodes,
            memory: Arc::new(memory),
            accounts: Arc::new(parts.accounts),
            eager,
            signals,
            trouble: Arc::new(parts.trouble),
            troubles,
            numbers: InodeNumbers::new(parts.next_inode),
            checkpoint_lock: RwLock::new(OpenCheckpoint::new(CheckpointId(1), parts.start)),
            moves: Mutex::default(),
            log_health: LogHealth::new(),
            name_shares: ClientShares::new(),
            journal: OnceLock::new(),
            own_log: OnceLock::new(),
            log_reads: Arc::new(Semaphore::new(log_bytes::RECORDS_IN_MEMORY)),
            replayed: AtomicU64::new(parts.start.0),
            verifier: Mutex::new(parts.verifier),
            snapshots: Arc::new(parts.snapshots),
            trash: Trash::new(opened),
            closed: ClosedCheckpoints::default(),
            pace: Pace::new(parts.start),
            pauses,
        }
    }

    /// The journal, which records changes.
    ///
    /// # Panics
    ///
    /// Before recovery is done; no operation comes that early.
    pub(crate) fn journal(&self) -> &Journal {
        self.journal
            .get()
            .expect("recovery is done before the first operation")
    }

    /// The log, once recovery is done and if the volume has one.
    pub(crate) fn log(&self) -> Option<&forebay_wal::Wal> {
        self.journal.get().and_then(Journal::wal)
    }

    /// Notes that recovery begins: bytes that are replayed may leave memory while the log has them.
    pub(crate) fn begin_replay(&self, recovery: &Recovery) {
        let log = Arc::new(OwnLog::new(recovery));
        if self.config.spills() {
            self.memory.spill_to(log.clone());
        }
        // Called once, by the opening of the volume.
        let _ = self.own_log.set(log);
    }

    /// Notes that recovery is done: from now on `journal` records changes.
    pub(crate) fn begin(&self, journal: Journal) {
        if let (Journal::Disk(wal), Some(log)) = (&journal, self.own_log.get()) {
            log.begin(wal.clone());
        }
        // Called once, by the opening of the volume.
        let _ = self.journal.set(journal);
        // What was replayed is no work of clients.
        self.pauses.begin(self.position());
        self.signals.begin_serving();
    }

    /// The position after the last change that is in memory. Exact while the checkpoint lock is held
    /// exclusively.
    pub(crate) fn position(&self) -> Lsn {
        match self.journal.get() {
            Some(journal) => journal.next_lsn(),
            None => Lsn(self.replayed.load(Ordering::Acquire)),
        }
    }

    /// Notes that recovery has replayed everything before `lsn`.
    pub(crate) fn replayed(&self, lsn: Lsn) {
        self.replayed.store(lsn.0, Ordering::Release);
    }

    /// The open checkpoint, which is not closed while this is held.
    #[inline]
    pub(crate) fn open_checkpoint(&self) -> RwLockReadGuard<'_, OpenCheckpoint> {
        blocking(
            For::CheckpointLock,
            || self.checkpoint_lock.try_read(),
            || self.checkpoint_lock.read(),
        )
    }

    /// Recycles the log: the bucket has everything before `lsn`, with `state` as its published state.
    pub(crate) fn recycle(&self, lsn: Lsn, state: &VolumeState) {
        self.pace.published(lsn);
        if let Some(journal) = self.journal.get() {
            journal.recycle(lsn);
        }
        if self.log().is_some()
            && let Err(error) = archived_log::set_mark(&*self.environment.local, state)
        {
            // Without it, only a salvage is less exact.
            tracing::debug!("cannot update the mark of the published LSN: {error}");
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.environment.clock.now()
    }

    pub(crate) fn verifier(&self) -> Verifier {
        *self.verifier.lock()
    }

    /// The node of an inode; [`Error::Stale`] if there is no such object.
    pub(crate) async fn node(&self, inode: Inode) -> Result<Arc<Node>> {
        self.nodes.get(inode, || self.load(inode)).await
    }

    async fn load(&self, inode: Inode) -> Result<Arc<Node>> {
        let reading = self.catalog.inode(inode);
        let record = self.troubles.during(Trouble::Bucket, reading).await;
        let record = record.map_err(|error| self.store_failed(error))?;
        let record = record.ok_or(Error::Stale)?;
        Ok(self.loaded(inode, record))
    }

    /// The node of an inode. If it is not in memory, `record` gives its attributes, provided that `holds` says that
    /// they are still the published ones.
    pub(crate) async fn node_from(
        &self,
        inode: Inode,
        record: &InodeRecord,
        holds: impl Fn() -> bool,
    ) -> Result<Arc<Node>> {
        let load = || async {
            // Asked while no other task can load it: every later change is made in this node.
            if holds() {
                Ok(self.loaded(inode, record.clone()))
            } else {
                self.load(inode).await
            }
        };
        self.nodes.get(inode, load).await
    }

    fn loaded(&self, inode: Inode, record: InodeRecord) -> Arc<Node> {
        let charge = self.accounts.charge(&record);
        Node::new(inode, record, true, self.memory.cache.clone(), charge)
    }

    /// The error for a client when the metadata cannot be read.
    pub(crate) fn store_failed(&self, error: StoreError) -> Error {
        match error {
            StoreError::Transient(_) => {
                self.trouble.read_error(&error.to_string());
                Error::Delay
            }
            StoreError::Fenced => {
                self.signals.stop(Stopped::Fenced);
                Error::Delay
            }
            StoreError::Corrupt(_) | StoreError::Gone(_) | StoreError::Fatal(_) => {
                tracing::error!("metadata: {error}");
                Error::Io
            }
        }
    }
}
