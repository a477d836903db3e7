//! The heart that all operations and background tasks share.

use std::future::Future;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_cache::{Cache, Lease};
use forebay_meta::record::InodeRecord;
use forebay_meta::{Catalog, StoreError};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{ClientId, Error, Result, Timestamp, Trouble, Troubles, Verifier, Waiting};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::FsConfig;
use crate::aside;
use crate::change::Open;
use crate::checkpoint::Checkpoints;
use crate::client_shares::ClientShares;
use crate::damage::Damages;
use crate::dedup::Sharing;
use crate::environment::Environment;
use crate::fetch::PackStore;
use crate::journal::Journal;
use crate::log_failure::LogHealth;
use crate::names::known::Room;
use crate::names::moves::Moves;
use crate::node::{Node, NodeTable};
use crate::numbers::InodeNumbers;
use crate::quota::Accounts;
use crate::scrub::Scrubs;

/// How long a call that waits for room waits at most before it checks again, and asks for a checkpoint again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The memory of a changed node: its state, its places in the table and in the list of its checkpoint, its record as
/// bytes.
pub(crate) const NODE_BYTES: u64 = size_of::<Node>() as u64 + 300;
/// The additional memory of a record while it is published: handles in the batch and in its copy, SlateDB's
/// entry in memory, and its bytes in a table that is being built and sent.
pub(crate) const PUBLISHING_BYTES: u64 = 640;
/// How many more copies of a key and its value exist during a publication: in the block of a table that is being built, in the
/// part of the table, and in the bytes that are being sent.
pub(crate) const PUBLISHING_COPIES: u64 = 3;
/// About the memory of a CREATE: its node, and the publication of an object, a name and a cookie. A client is charged
/// this for each change of names or attributes.
const CHANGE_BYTES: u64 = NODE_BYTES + 3 * PUBLISHING_BYTES;
/// For how long, up to twice that, a buffer that was let go waits for somebody to use it again.
const UNUSED_FOR: Duration = Duration::from_secs(5);

/// Why a volume takes no more changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Another gateway has opened it.
    #[error(
        "another gateway has taken over this volume; this one has stopped writing. Its unpublished changes are in its log alone"
    )]
    Fenced,
    /// The bucket or the metadata in it cannot be used.
    #[error("the volume has stopped: {0}")]
    Failed(String),
}

/// Why a flush cannot confirm that the bucket holds everything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The volume has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Objects of the metadata, or the descriptor, are not in the bucket any more. Nothing is published before they are
    /// put back.
    #[error("{0}")]
    Gone(String),
    /// Everything is published, but a pack that files need is not in the bucket any more.
    #[error("{0}; `forebay scrub --status` lists the lost bytes")]
    PackGone(String),
}

/// State shared by operations and background tasks of one volume.
pub(crate) struct Core {
    pub(crate) config: FsConfig,
    pub(crate) environment: Environment,
    pub(crate) catalog: Catalog,
    pub(crate) cache: Arc<Cache>,
    pub(crate) nodes: NodeTable,
    pub(crate) packs: PackStore,
    pub(crate) sharing: Arc<Sharing>,
    /// Of the names that directories in memory know of.
    pub(crate) names_room: Arc<Room>,
    /// Lock order: names of directories, states of nodes, the gate, everything else.
    pub(crate) gate: RwLock<Open>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) log_health: LogHealth,
    pub(crate) accounts: Accounts,
    pub(crate) damages: Damages,
    pub(crate) scrubs: Scrubs,
    /// Which directories were moved to others. Locked after states of nodes and before the gate.
    pub(crate) moves: Mutex<Moves>,
    /// Set when recovery is done.
    journal: OnceLock<Journal>,
    /// Up to where recovery has come.
    replayed: AtomicU64,
    pub(crate) numbers: InodeNumbers,
    pub(crate) verifier: Mutex<Verifier>,
    /// Bytes that admitted writers are about to take from the cache.
    admitted: AtomicU64,
    /// Which clients have written to block buffers.
    pub(crate) data_shares: ClientShares,
    /// Which clients have changed names and attributes.
    pub(crate) name_shares: ClientShares,
    /// Wakes writers that wait for memory.
    freed: Notify,
    /// How many there are.
    writers_waiting: AtomicUsize,
    stopped: tokio::sync::watch::Sender<Option<Stopped>>,
    /// Counts of waiting calls, by their reason.
    pub(crate) troubles: Arc<Troubles>,
}

/// What [`Core::new`] needs beside the configuration.
pub(crate) struct Parts {
    pub(crate) config: FsConfig,
    pub(crate) environment: Environment,
    pub(crate) catalog: Catalog,
    pub(crate) packs: PackStore,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) accounts: Accounts,
    pub(crate) next_inode: u64,
    pub(crate) verifier: Verifier,
    pub(crate) start: Lsn,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Core {
        Core {
            cache: Cache::with_reserve(parts.config.memory_limit, parts.config.memory_reserve()),
            nodes: NodeTable::new(parts.config.node_limit),
            sharing: Arc::new(Sharing::new(parts.config.dedup)),
            names_room: Room::beside(parts.config.overlay_limit),
            config: parts.config,
            environment: parts.environment,
            catalog: parts.catalog,
            packs: parts.packs,
            gate: RwLock::new(Open::new(forebay_types::CheckpointId(1))),
            checkpoints: parts.checkpoints,
            log_health: LogHealth::new(),
            accounts: parts.accounts,
            damages: Damages::default(),
            scrubs: Scrubs::default(),
            moves: Mutex::default(),
            journal: OnceLock::new(),
            replayed: AtomicU64::new(parts.start.0),
            numbers: InodeNumbers::new(parts.next_inode),
            verifier: Mutex::new(parts.verifier),
            admitted: AtomicU64::new(0),
            data_shares: ClientShares::new(),
            name_shares: ClientShares::new(),
            freed: Notify::new(),
            writers_waiting: AtomicUsize::new(0),
            stopped: tokio::sync::watch::Sender::new(None),
            troubles: Arc::default(),
        }
    }

    /// Where changes are recorded.
    ///
    /// # Panics
    ///
    /// Before recovery is done; no operation comes that early.
    pub(crate) fn journal(&self) -> &Journal {
        self.journal
            .get()
            .expect("recovery is done before the first operation")
    }

    /// Whether recovery is done.
    pub(crate) fn is_open(&self) -> bool {
        self.journal.get().is_some()
    }

    /// The log, once recovery is done and if the volume has one.
    pub(crate) fn log(&self) -> Option<&forebay_wal::Wal> {
        self.journal.get().and_then(Journal::wal)
    }

    /// Recovery is done: from now on changes are recorded here.
    pub(crate) fn begin(&self, journal: Journal) {
        // Called once, by the opening of the volume.
        let _ = self.journal.set(journal);
    }

    /// The position after the last change that is in memory. Exact while the gate is held
    /// exclusively.
    pub(crate) fn position(&self) -> Lsn {
        match self.journal.get() {
            Some(journal) => journal.next_lsn(),
            None => Lsn(self.replayed.load(Ordering::Acquire)),
        }
    }

    /// Recovery has replayed everything before `lsn`.
    pub(crate) fn replayed(&self, lsn: Lsn) {
        self.replayed.store(lsn.0, Ordering::Release);
    }

    /// Everything before `lsn` is in the bucket.
    pub(crate) fn recycle(&self, lsn: Lsn) {
        if let Some(journal) = self.journal.get() {
            journal.recycle(lsn);
        }
        if self.log().is_some()
            && let Err(error) = aside::mark(&*self.environment.local, &self.checkpoints.state())
        {
            // Only a salvage is less exact without it.
            tracing::debug!("what is published could not be marked: {error}");
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

    /// The node of an inode, with `record` as its attributes if it is not in memory and `holds` says that they are
    /// still what is published.
    pub(crate) async fn node_from(
        &self,
        inode: Inode,
        record: &InodeRecord,
        holds: impl Fn() -> bool,
    ) -> Result<Arc<Node>> {
        let load = || async {
            // Asked once nobody else can load it: what changes from now on changes in this node.
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
        Node::new(inode, record, true, self.cache.clone(), charge)
    }

    /// Waits for the log, which has no room before its next segment is prepared, or before the next checkpoint is in the
    /// bucket. After [`FsConfig::room_wait`] the call fails with [`Error::Delay`].
    pub(crate) async fn wait_for_log_room(&self, bytes: u64) -> Result<()> {
        self.bounded(self.log_room(bytes)).await
    }

    /// Waits for room no longer than a call may.
    pub(crate) async fn bounded<T>(&self, room: impl Future<Output = Result<T>>) -> Result<T> {
        let waited = tokio::time::timeout(self.config.room_wait, room).await;
        waited.unwrap_or(Err(Error::Delay))
    }

    async fn log_room(&self, bytes: u64) -> Result<()> {
        let _waiting = self.troubles.wait(Trouble::LogFull);
        let room = self.journal().room(bytes);
        tokio::pin!(room);
        let mut stopped = self.stopped.subscribe();
        loop {
            if self.log().is_some_and(forebay_wal::Wal::needs_recycling) {
                self.checkpoints.press();
            }
            tokio::select! {
                biased;
                result = &mut room => return result.map_err(|failed| self.log_failed(&failed)),
                _ = stopped.wait_for(Option::is_some) => return Err(Error::Delay),
                // Others may have filled again what the checkpoint that was asked for gave back.
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Waits until `bytes` of data may be written to the cache, evicting clean blocks. After [`FsConfig::room_wait`]
    /// the call fails with [`Error::Delay`]: a longer wait would keep other calls from the memory that this one holds.
    pub(crate) async fn admit(&self, client: ClientId, bytes: u64) -> Result<Admission<'_>> {
        self.check_running()?;
        let admission = match self.try_admit(client, bytes) {
            Some(admission) => admission,
            None => self.bounded(self.memory_room(client, bytes)).await?,
        };
        self.data_shares.count(client, bytes.max(1));
        Ok(admission)
    }

    async fn memory_room(&self, client: ClientId, bytes: u64) -> Result<Admission<'_>> {
        let _waiting = WaitingWriter::new(self);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the last look, so that no wake-up falls in between.
            freed.as_mut().enable();
            if let Some(admission) = self.try_admit(client, bytes) {
                return Ok(admission);
            }
            // What leaves early makes room without a checkpoint.
            if !self.checkpoints.leaving.is_busy(self.config.pack_bytes) {
                self.checkpoints.press();
            }
            // Who evicts for a reader may have had all that could go in its hands at the moment of
            // our look, and wakes nobody: look again by ourselves.
            let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
            self.check_running()?;
        }
    }

    /// Bytes that admitted writers are about to take.
    pub(crate) fn admitted_bytes(&self) -> u64 {
        self.admitted.load(Ordering::Acquire)
    }

    fn try_admit(&self, client: ClientId, bytes: u64) -> Option<Admission<'_>> {
        // Two ragged ends of a piece each.
        let bytes = bytes + (128 << 10);
        let withheld = self.data_shares.withheld(client, self.config.memory_limit);
        loop {
            // Who is not let in is not counted either: two who fail at the same moment must not
            // both wait for room that there is for one.
            let before = self.admitted.load(Ordering::Acquire);
            // A lone writer is always let in: no limit may be too small for one call.
            let alone = before == 0 && self.cache.dirty_bytes() == 0;
            if !self.make_room(before + bytes + withheld) && !alone {
                return None;
            }
            let taken = self.admitted.compare_exchange(
                before,
                before + bytes,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Some(Admission { core: self, bytes });
            }
        }
    }

    /// Evicts clean blocks, least recently used first, until `bytes` more fit in the cache.
    pub(crate) fn make_room(&self, bytes: u64) -> bool {
        self.evict_until(|| self.cache.has_room(bytes))
    }

    /// Takes `bytes` of the memory of block buffers for something else, evicting what is clean, if that leaves all
    /// writers who were let in what they need, and the part of clients that have written little.
    pub(crate) fn try_lease(&self, bytes: u64) -> Option<Lease> {
        let mut lease = None;
        let reserved = match self.cache.dirty_bytes() > self.config.memory_limit / 2 {
            true => self.data_shares.reserved(self.config.memory_limit),
            // What is evicted makes room for everybody.
            false => 0,
        };
        self.evict_until(|| {
            if self
                .cache
                .has_room(bytes + self.admitted_bytes() + reserved)
            {
                lease = self.cache.try_lease(bytes);
            }
            lease.is_some()
        });
        lease
    }

    /// The same for those without whom nothing goes on: out of the reserve where there is no other room.
    pub(crate) fn try_lease_reserve(&self, bytes: u64) -> Option<Lease> {
        self.try_lease(bytes).or_else(|| self.cache.try_draw(bytes))
    }

    /// The same for those who cannot wait either: where there is none, the limit is exceeded.
    pub(crate) fn lease(&self, bytes: u64) -> Lease {
        self.try_lease_reserve(bytes)
            .unwrap_or_else(|| self.cache.draw(bytes))
    }

    /// The same for those who can do without: not while writers wait, and none after a short while in which nothing
    /// became free.
    pub(crate) async fn lease_spare(&self, bytes: u64) -> Option<Lease> {
        let spare = || match self.writers_waiting.load(Ordering::Relaxed) {
            0 => self.try_lease(bytes),
            _ => None,
        };
        let freed = self.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        if let Some(lease) = spare() {
            return Some(lease);
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
        spare()
    }

    /// Gives back buffers that nobody has needed for [`UNUSED_FOR`], for as long as the volume runs.
    pub(crate) async fn free_unused_forever(self: Arc<Core>) {
        loop {
            tokio::time::sleep(UNUSED_FOR).await;
            self.cache.free_unused();
        }
    }

    /// Whether writers wait for memory.
    pub(crate) fn writers_wait(&self) -> bool {
        self.writers_waiting.load(Ordering::Relaxed) > 0
    }

    fn evict_until(&self, mut enough: impl FnMut() -> bool) -> bool {
        let mut rounds = self.cache.candidates() + 1;
        while !enough() {
            let Some(key) = self.cache.coldest() else {
                if self.checkpoints.buffers.clear() {
                    continue;
                }
                return false;
            };
            if let Some(node) = self.nodes.peek(key.inode) {
                node.lock().blocks.evict(key.block);
            }
            if rounds == 0 {
                return self.checkpoints.buffers.clear() && enough();
            }
            rounds -= 1;
        }
        true
    }

    /// Waits while more names and attributes are unpublished than memory is meant for. After [`FsConfig::room_wait`]
    /// the call fails with [`Error::Delay`].
    pub(crate) async fn admit_names(&self, client: ClientId) -> Result<()> {
        self.check_running()?;
        if self.overlay_is_half_full() {
            // It closes a checkpoint, unless it is at one.
            self.checkpoints.wake();
        }
        if !self.has_room_for_names(client) {
            self.bounded(self.names_in_bound(client)).await?;
        }
        self.name_shares.count(client, CHANGE_BYTES);
        Ok(())
    }

    fn has_room_for_names(&self, client: ClientId) -> bool {
        let limit = self.config.overlay_limit;
        self.unpublished_names_bytes() + self.name_shares.withheld(client, limit) < limit
    }

    async fn names_in_bound(&self, client: ClientId) -> Result<()> {
        let _waiting = self.troubles.wait(Trouble::NamesFull);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.has_room_for_names(client) {
                return Ok(());
            }
            self.checkpoints.press();
            freed.await;
            self.check_running()?;
        }
    }

    /// Whether names and attributes that are unpublished take as much memory as they may.
    pub(crate) fn overlay_is_full(&self) -> bool {
        self.unpublished_names_bytes() >= self.config.overlay_limit
    }

    /// Whether they take half of it: then a checkpoint closes, so that changes go on in the other half while it is
    /// published.
    pub(crate) fn overlay_is_half_full(&self) -> bool {
        self.unpublished_names_bytes() >= self.config.overlay_limit / 2
    }

    /// Memory that unpublished names and attributes take: those of the open checkpoint, and those of the closed one. Each
    /// record counts together with the memory of its publication, so that a checkpoint that closes takes no more
    /// than it did before.
    pub(crate) fn unpublished_names_bytes(&self) -> u64 {
        let open = self.gate.read().changed_bytes();
        let nodes = open + self.checkpoints.closed_bytes.load(Ordering::Relaxed);
        let overlay = self.catalog.overlay();
        let publishing = overlay.len() as u64 * PUBLISHING_BYTES
            + overlay.content_bytes() as u64 * PUBLISHING_COPIES;
        nodes + overlay.bytes() as u64 + publishing
    }

    /// Memory was given back: whoever waits for it looks again.
    pub(crate) fn memory_freed(&self) {
        self.freed.notify_waiters();
    }

    /// Waits until memory was given back, at most so long.
    pub(crate) async fn memory_freed_within(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.freed.notified()).await;
    }

    /// What a client is told when the metadata cannot be read.
    pub(crate) fn store_failed(&self, error: StoreError) -> Error {
        match error {
            StoreError::Transient(_) => {
                self.checkpoints.read_error(&error.to_string());
                Error::Delay
            }
            StoreError::Fenced => {
                self.stop(Stopped::Fenced);
                Error::Delay
            }
            StoreError::Corrupt(_) | StoreError::Gone(_) | StoreError::Fatal(_) => {
                tracing::error!("metadata: {error}");
                Error::Io
            }
        }
    }

    /// Changes are over for this gateway.
    pub(crate) fn stop(&self, why: Stopped) {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert_with(|| why.clone());
            first
        });
        if first {
            tracing::error!("{why}");
        }
        self.memory_freed();
        self.checkpoints.wake();
    }

    /// An orderly end: nothing is wrong.
    pub(crate) fn stop_quietly(&self) {
        self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert_with(|| Stopped::Failed("the gateway is stopping".into()));
            first
        });
        self.memory_freed();
        self.checkpoints.wake();
    }

    pub(crate) fn is_stopped(&self) -> Option<Stopped> {
        self.stopped.borrow().clone()
    }

    pub(crate) fn watch_stopped(&self) -> tokio::sync::watch::Receiver<Option<Stopped>> {
        self.stopped.subscribe()
    }

    /// Changes are refused once the volume has stopped: the client waits for a gateway that works.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.stopped.borrow().is_some() {
            Err(Error::Delay)
        } else {
            Ok(())
        }
    }
}

/// Counts a writer who waits for memory, also when the wait is given up.
struct WaitingWriter<'a> {
    writers: &'a AtomicUsize,
    _trouble: Waiting<'a>,
}

impl WaitingWriter<'_> {
    fn new(core: &Core) -> WaitingWriter<'_> {
        core.writers_waiting.fetch_add(1, Ordering::Relaxed);
        WaitingWriter {
            writers: &core.writers_waiting,
            _trouble: core.troubles.wait(Trouble::MemoryFull),
        }
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room in the cache that a writer may take; given back when dropped, by then the cache itself
/// counts what was written.
pub(crate) struct Admission<'a> {
    core: &'a Core,
    bytes: u64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.core.admitted.fetch_sub(self.bytes, Ordering::AcqRel);
        // It may have been given up unused.
        self.core.memory_freed();
    }
}
