//! Checkpoints: the open one, which collects changes, and closed ones, which are published in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cache::BlockImage;
use forebay_meta::log_record::encode_snapshot;
use forebay_meta::overlay::Generation;
use forebay_meta::record::SnapshotRecord;
use forebay_types::{BlockIndex, CheckpointId, Lsn, SnapshotId};
use forebay_vfs::{Error, Timestamp};
use forebay_wal::RecordKind;
use parking_lot::Mutex;
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::Instant;

use super::State;
use super::change::Refusal;
use super::node::{Node, NodeState};

/// How many closed checkpoints wait for the publisher, at most, before no further snapshot is made. Each keeps the state
/// of the objects that changed in it, and copies of what was overwritten since.
const MAX_WAITING: usize = 64;

/// How many checkpoints that closed because they had grown may wait, at most. Then the open one grows on.
const MAX_GROWN: usize = 128;

/// The checkpoint that collects changes.
pub(crate) struct OpenCheckpoint {
    pub(crate) id: CheckpointId,
    /// The position after the checkpoint before it.
    begins: Lsn,
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
    pub(crate) fn new(id: CheckpointId, begins: Lsn) -> OpenCheckpoint {
        OpenCheckpoint {
            id,
            begins,
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
    /// When it closed.
    pub(crate) at: Timestamp,
    /// Every object that changed in it.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The names that changed in it.
    pub(crate) names: Arc<Generation>,
    pub(crate) next_inode: u64,
    /// Held shared by eager uploads whose blocks are not in the bucket yet.
    pub(crate) under_way: Arc<tokio::sync::RwLock<()>>,
    /// The snapshot that ended it, if one did: its state is the snapshot's. Commit, position and counts of the record
    /// are known when it is published.
    pub(crate) snapshot: Option<(SnapshotId, SnapshotRecord)>,
}

/// The closed checkpoints that are not published yet.
#[derive(Default)]
pub(super) struct ClosedCheckpoints {
    unpublished: Mutex<Unpublished>,
    /// Memory of their nodes, with their publication.
    bytes: AtomicU64,
}

/// What is known of a closed checkpoint until it is published.
struct Account {
    /// The time of its first change.
    since: Instant,
    /// Memory of its nodes.
    bytes: u64,
    /// The position at which it ends.
    end: Lsn,
    /// Whether a snapshot ended it.
    is_snapshot: bool,
}

#[derive(Default)]
struct Unpublished {
    /// Oldest first, with the one that the publisher has taken.
    accounts: VecDeque<Account>,
    /// Those that the publisher has not taken, oldest first.
    waiting: VecDeque<Closed>,
}

impl Unpublished {
    /// Number of waiting ones that a snapshot ended.
    fn snapshots(&self) -> usize {
        let ended = self
            .waiting
            .iter()
            .filter(|closed| closed.snapshot.is_some());
        ended.count()
    }

    /// Number of the other waiting ones.
    fn grown(&self) -> usize {
        self.waiting.len() - self.snapshots()
    }
}

impl ClosedCheckpoints {
    /// Where the oldest one ends; `None` if all are published.
    pub(super) fn oldest_end(&self) -> Option<Lsn> {
        let unpublished = self.unpublished.lock();
        unpublished.accounts.front().map(|account| account.end)
    }

    /// Whether one of them is a snapshot's.
    pub(super) fn have_snapshot(&self) -> bool {
        let unpublished = self.unpublished.lock();
        let mut accounts = unpublished.accounts.iter();
        accounts.any(|account| account.is_snapshot)
    }

    /// Memory of their nodes, with their publication.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn since(&self) -> Option<Instant> {
        let unpublished = self.unpublished.lock();
        unpublished.accounts.front().map(|account| account.since)
    }

    /// Returns whether others wait to be published.
    fn oldest_is_published(&self) -> bool {
        let mut unpublished = self.unpublished.lock();
        if let Some(account) = unpublished.accounts.pop_front() {
            self.bytes.fetch_sub(account.bytes, Ordering::Relaxed);
        }
        !unpublished.accounts.is_empty()
    }
}

/// Blocks of the open checkpoint that are uploaded before it closes.
pub(crate) struct TakenOver {
    pub(crate) checkpoint: CheckpointId,
    /// While this is held, the checkpoint is not published.
    pub(crate) not_published: OwnedRwLockReadGuard<()>,
    pub(crate) blocks: Vec<(Arc<Node>, BlockImage)>,
}

impl State {
    /// The oldest closed checkpoint that the publisher has not taken; closes the open one if there is none. `None` if
    /// nothing changed in that.
    pub(crate) fn take_checkpoint(&self) -> Option<Closed> {
        let mut open = self.checkpoint_lock.write();
        let mut unpublished = self.closed.unpublished.lock();
        if let Some(waiting) = unpublished.waiting.pop_front() {
            return Some(waiting);
        }
        open.since()?;
        Some(self.close(&mut open, &mut unpublished))
    }

    /// Records a snapshot and closes the open checkpoint exactly there, as one step between two changes. Returns its
    /// number and the position after its record. No other snapshot may have its name.
    pub(crate) fn make_snapshot(
        &self,
        record: SnapshotRecord,
    ) -> Result<(SnapshotId, Lsn), Refusal> {
        let (id, end) = {
            let mut open = self.checkpoint_lock.write();
            let mut unpublished = self.closed.unpublished.lock();
            if unpublished.snapshots() >= MAX_WAITING {
                return Err(Error::Delay.into());
            }
            let id = self.snapshots.next();
            let payload = encode_snapshot(id, &record);
            let end = self
                .journal()
                .append(RecordKind::Snapshot, &[&payload])
                .map_err(|error| self.refusal(&error, &[&payload]))?
                .end;
            self.end_checkpoint(&mut open, &mut unpublished, id, record);
            (id, end)
        };
        self.signals.wake_publisher();
        Ok((id, end))
    }

    /// Makes a snapshot that the log has again, at the position that the replay has reached.
    pub(crate) fn snapshot_replayed(&self, id: SnapshotId, record: SnapshotRecord) {
        let mut open = self.checkpoint_lock.write();
        let mut unpublished = self.closed.unpublished.lock();
        self.end_checkpoint(&mut open, &mut unpublished, id, record);
    }

    fn end_checkpoint(
        &self,
        open: &mut OpenCheckpoint,
        unpublished: &mut Unpublished,
        id: SnapshotId,
        record: SnapshotRecord,
    ) {
        self.snapshots.add(id, record.clone());
        let closed = self.close(open, unpublished);
        if let Some(account) = unpublished.accounts.back_mut() {
            account.is_snapshot = true;
        }
        unpublished.waiting.push_back(Closed {
            snapshot: Some((id, record)),
            ..closed
        });
    }

    /// Closes the open checkpoint if it has many records up to `end`: else all of a burst would be in one checkpoint, and the
    /// log would get no room before that is published.
    pub(crate) fn close_grown(&self, end: Lsn) {
        let Some(most) = self.config.grown_checkpoint() else {
            return;
        };
        let has_grown = |open: &OpenCheckpoint| end.0.saturating_sub(open.begins.0) >= most;
        if !has_grown(&self.checkpoint_lock.read()) {
            return;
        }
        let mut open = self.checkpoint_lock.write();
        let mut unpublished = self.closed.unpublished.lock();
        // Another change may have closed it meanwhile.
        if has_grown(&open) && unpublished.grown() < MAX_GROWN {
            let closed = self.close(&mut open, &mut unpublished);
            unpublished.waiting.push_back(closed);
            drop((unpublished, open));
            self.signals.wake_publisher();
        }
    }

    /// Number of closed checkpoints that the publisher has not taken.
    pub(crate) fn waiting_checkpoints(&self) -> usize {
        self.closed.unpublished.lock().waiting.len()
    }

    /// Whether no further snapshot is made before the publisher has taken a closed checkpoint.
    pub(crate) fn has_too_many_waiting(&self) -> bool {
        self.closed.unpublished.lock().snapshots() >= MAX_WAITING
    }

    /// Closes the open checkpoint. No task holds the lock shared: every recorded change is in memory, and none is half
    /// made.
    fn close(&self, open: &mut OpenCheckpoint, unpublished: &mut Unpublished) -> Closed {
        let changed = open.take();
        let closed = Closed {
            id: open.id,
            end: self.position(),
            at: self.now(),
            nodes: changed.nodes,
            names: self.catalog.overlay().close(),
            next_inode: self.numbers.next(),
            under_way: open.under_way.clone(),
            snapshot: None,
        };
        let since = changed.since.unwrap_or_else(Instant::now);
        let is_first = unpublished.accounts.is_empty();
        unpublished.accounts.push_back(Account {
            since,
            bytes: changed.bytes,
            end: closed.end,
            is_snapshot: false,
        });
        self.closed
            .bytes
            .fetch_add(changed.bytes, Ordering::Relaxed);
        *open = OpenCheckpoint::new(closed.id.next(), closed.end);
        if is_first {
            self.memory.checkpoint_closed();
            self.name_shares.checkpoint_closed();
            self.pace.begins();
        }
        closed
    }

    /// The time of the oldest unpublished change.
    pub(crate) fn oldest_unpublished(&self) -> Option<Instant> {
        let closed = self.closed.since();
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
            let (Some(taken), Some(image)) = (&mut taken, state.blocks.image(index, open.id))
            else {
                continue;
            };
            drop(open);
            taken.blocks.push((node.clone(), image));
        }
        taken
    }

    /// Notes that the oldest closed checkpoint is published; new objects get numbers from `next_inode` on, up to the
    /// lease.
    pub(crate) fn checkpoint_published(&self, next_inode: u64) {
        self.numbers.published(next_inode);
        let others_wait = self.closed.oldest_is_published();
        // While there is always another, none closes as the first one; what was written long ago must not count for ever.
        if others_wait && self.config.spills() {
            self.memory.checkpoint_closed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use forebay_types::{CommitNumber, Inode};
    use forebay_vfs::{ClientId, Verifier};

    use super::*;
    use crate::state::{Parts, SnapshotList, StoreTrouble};
    use crate::testing::World;

    fn record(name: u64) -> SnapshotRecord {
        SnapshotRecord {
            is_being_deleted: false,
            commit: CommitNumber(0),
            lsn: Lsn(0),
            used_bytes: 0,
            used_inodes: 0,
            made: Default::default(),
            name: name.to_string(),
            made_by: String::new(),
        }
    }

    /// While it closes a checkpoint, all changes wait: so it must not go through what changed. Here it would wait for ever
    /// for the first object that it looks at.
    #[tokio::test]
    async fn a_snapshot_closes_its_checkpoint_without_a_look_at_what_changed() {
        let world = World::new(|_| {});
        let state = Arc::new(State::new(Parts {
            config: world.config.clone(),
            environment: world.environment.clone(),
            catalog: world.catalog.clone(),
            accounts: world.accounts().await,
            trouble: StoreTrouble::new(world.store.health.clone()),
            next_inode: 1000,
            verifier: Verifier([0; 8]),
            start: Lsn(0),
            snapshots: SnapshotList::new(0, Default::default(), []),
        }));
        let nodes: Vec<_> = (2..102).map(|inode| world.file(Inode(inode))).collect();
        for _ in 0..MAX_WAITING - 1 {
            for node in &nodes {
                let open = state.checkpoint_lock.read();
                open.begin_change(node, &mut node.lock());
            }
            let (done, closed) = mpsc::channel();
            let locked: Vec<_> = nodes.iter().map(|node| node.lock()).collect();
            let state = state.clone();
            std::thread::spawn(move || {
                let id = state.snapshots.next();
                state.snapshot_replayed(id, record(id.0));
                done.send(())
            });
            let ended = closed.recv_timeout(Duration::from_secs(60));
            assert!(ended.is_ok(), "it waits for an object");
            drop(locked);
        }
        assert_eq!(state.waiting_checkpoints(), MAX_WAITING - 1);
        for number in 1..MAX_WAITING as u64 {
            let closed = state.take_checkpoint().unwrap();
            assert_eq!(closed.snapshot.unwrap().0, SnapshotId(number));
            assert_eq!(closed.nodes.len(), nodes.len());
        }
    }

    #[tokio::test]
    async fn a_burst_is_in_several_checkpoints() {
        let world = World::new(|config| {
            config.checkpoint_bytes = 1 << 20;
            config.log = crate::LogConfig::Disk {
                limit: 64 << 20,
                segment: 4 << 20,
            };
        });
        let state = State::new(Parts {
            config: world.config.clone(),
            environment: world.environment.clone(),
            catalog: world.catalog.clone(),
            accounts: world.accounts().await,
            trouble: StoreTrouble::new(world.store.health.clone()),
            next_inode: 1000,
            verifier: Verifier([0; 8]),
            start: Lsn(0),
            snapshots: SnapshotList::new(0, Default::default(), []),
        });
        let node = world.file(Inode(2));
        let change = |end: u64| {
            let open = state.checkpoint_lock.read();
            open.begin_change(&node, &mut node.lock());
            drop(open);
            state.replayed(Lsn(end));
            state.close_grown(Lsn(end));
        };
        assert_eq!(state.closed.oldest_end(), None);
        change(5 << 20);
        assert_eq!(state.waiting_checkpoints(), 1, "the publisher is idle");
        let taken = state.take_checkpoint().unwrap();
        assert_eq!(taken.end, Lsn(5 << 20));
        assert_eq!(state.closed.oldest_end(), Some(taken.end));
        change(6 << 20);
        assert_eq!(state.waiting_checkpoints(), 0, "it is small");
        for step in 1..200 {
            change((5 << 20) + step * (2 << 20));
        }
        assert_eq!(state.waiting_checkpoints(), MAX_GROWN);
        assert!(!state.has_too_many_waiting(), "snapshots are still made");
        let (heavy, light) = (ClientId(1), ClientId(2));
        let admit = async |client, bytes| drop(state.memory.admit(client, bytes).await.unwrap());
        admit(heavy, world.config.memory_limit / 2).await;
        admit(light, 1).await;
        assert!(state.memory.is_light(light) && !state.memory.is_light(heavy));
        for _ in 0..2 {
            state.checkpoint_published(1000);
        }
        admit(heavy, 1).await;
        admit(light, 1).await;
        assert!(state.memory.is_light(heavy), "that was long ago");
        let next = state.take_checkpoint().unwrap();
        assert_eq!(next.end, Lsn(7 << 20));
    }
}
