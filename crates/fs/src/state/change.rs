//! Making a change: one record in the log and the same change in memory, as one step
//! between two checkpoints.
//!
//! The checkpoint lock is held shared from before the record until the change is made in memory, and exclusively to
//! close a checkpoint. So a checkpoint holds exactly the changes whose records lie before its end.

use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{
    CookieRecord, InodeRecord, Kind, NameRecord, TrashOwner, TrashRecord, TrashUntil,
};
use forebay_meta::{Batch, Key};
use forebay_quota::{LEAVING, Reservation};
use forebay_types::{CheckpointId, Inode, Lsn};
use forebay_vfs::Error;
use forebay_wal::{AppendError, RecordKind};

use super::State;
use super::checkpoint::OpenCheckpoint;
use super::journal::Position;
use super::node::{Locked, Node, NodeState};

/// Why a change was not made.
pub(crate) enum Refusal {
    /// The client gets this error.
    Error(Error),
    /// The log has no room for a record of this many bytes now: wait, then start over.
    Full(u64),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

/// A change of names and attributes that happens as a whole: the new records of its objects, the added names and the
/// removed ones.
///
/// In memory, attributes live in the nodes and names in the overlay; the log gets both as one
/// metadata batch.
#[derive(Default)]
pub(crate) struct NameChange<'a> {
    pub(crate) names: Batch,
    /// The added name, and its directory.
    entered: Option<(&'a Arc<Node>, &'a [u8])>,
    /// Cookies that lose their names, each with its directory.
    left: Vec<(&'a Arc<Node>, u64)>,
    records: Vec<(&'a Arc<Node>, InodeRecord)>,
    removed: Vec<&'a Arc<Node>>,
    /// The object that goes to the trash and its owner, and when it will be deleted.
    kept: Option<(Inode, u32, u64)>,
    /// Whether something leaves the trash.
    leaves_trash: bool,
    created: Option<(&'a Arc<Node>, InodeRecord)>,
    reserved: Option<Reservation>,
}

impl<'a> NameChange<'a> {
    /// The object gets this record.
    pub(crate) fn set(&mut self, node: &'a Arc<Node>, record: InodeRecord) {
        self.records.push((node, record));
    }

    /// Adds a name to a directory; at most one in a change.
    pub(crate) fn enter(
        &mut self,
        directory: &'a Arc<Node>,
        name: &'a [u8],
        cookie: u64,
        inode: Inode,
        kind: Kind,
    ) {
        debug_assert!(self.entered.is_none(), "a second name in one change");
        self.entered = Some((directory, name));
        let name = Bytes::copy_from_slice(name);
        self.names.put(
            &Key::Name(directory.inode, name.clone()),
            &NameRecord {
                inode,
                cookie,
                kind,
            },
        );
        self.names.put(
            &Key::Cookie(directory.inode, cookie),
            &CookieRecord { inode, kind, name },
        );
    }

    /// Removes the name under this cookie of a directory.
    pub(crate) fn leave(&mut self, directory: &'a Arc<Node>, cookie: u64) {
        self.left.push((directory, cookie));
    }

    /// The object loses its last name.
    pub(crate) fn remove(&mut self, node: &'a Arc<Node>) {
        self.removed.push(node);
    }

    /// The object loses its last name and goes to the trash; at most one in a change.
    pub(crate) fn keep(&mut self, node: &'a Arc<Node>, record: InodeRecord, entry: TrashRecord) {
        self.names.put(&Key::Trash(node.inode), &entry);
        self.names
            .put(&Key::TrashUntil(entry.until, node.inode), &TrashUntil);
        if record.kind() == Kind::Regular {
            let owner = Key::TrashOwner(record.uid, node.inode);
            self.names.put(&owner, &TrashOwner);
        }
        self.kept = Some((node.inode, record.uid, entry.until));
        let record = InodeRecord {
            nlink: 0,
            // A quota is of what has a name.
            tree: None,
            ctime: entry.removed,
            ..record
        };
        self.set(node, record);
    }

    /// Removes an entry of the trash, whose object is deleted or gets a name by this change. `record` is that of the
    /// object; `None` if there is none.
    pub(crate) fn leave_trash(&mut self, inode: Inode, until: u64, record: Option<&InodeRecord>) {
        self.names.delete(&Key::Trash(inode));
        self.names.delete(&Key::TrashUntil(until, inode));
        if let Some(record) = record.filter(|record| record.kind() == Kind::Regular) {
            self.names.delete(&Key::TrashOwner(record.uid, inode));
        }
        self.leaves_trash = true;
    }

    /// Creates the object; `reserved` is the room for it in the accounts.
    pub(crate) fn create(
        &mut self,
        node: &'a Arc<Node>,
        record: InodeRecord,
        reserved: Reservation,
    ) {
        self.created = Some((node, record));
        self.reserved = Some(reserved);
    }

    /// Objects that lose their last names.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &'a Arc<Node>> {
        self.removed.iter().copied()
    }

    fn payload(&self) -> Vec<u8> {
        let mut batch = Batch::new();
        for (node, record) in self.records.iter().chain(&self.created) {
            batch.put(&Key::Inode(node.inode), &*record.without_maps());
        }
        for node in &self.removed {
            batch.delete(&Key::Inode(node.inode));
        }
        batch.append(self.names.clone());
        let mut payload = Vec::with_capacity(batch.bytes() + 16 * batch.len() + 16);
        batch.encode_into(&mut payload);
        payload
    }
}

impl State {
    /// Records a change and makes it in memory, as one step. Returns the position after it. `apply` gets the place of the
    /// record, and returns whether the change is the first of its checkpoint.
    pub(crate) fn record(
        &self,
        kind: RecordKind,
        parts: &[&[u8]],
        apply: impl FnOnce(&OpenCheckpoint, Position) -> bool,
    ) -> Result<Lsn, Refusal> {
        let (position, is_first) = {
            let open = self.open_checkpoint();
            let position = self
                .journal()
                .append(kind, parts)
                .map_err(|error| self.refusal(&error, parts))?;
            (position, apply(&open, position))
        };
        if is_first {
            // The publisher sleeps while nothing has changed.
            self.signals.wake_publisher();
        }
        Ok(position.end)
    }

    /// Why the log did not take a record.
    pub(super) fn refusal(&self, error: &AppendError, parts: &[&[u8]]) -> Refusal {
        match error {
            AppendError::Full => Refusal::Full(parts.iter().map(|part| part.len() as u64).sum()),
            AppendError::Failed(failed) => Refusal::Error(self.log_failed(failed)),
            AppendError::TooLarge { .. } => {
                tracing::error!("{error}; set a larger log_segment");
                Refusal::Error(Error::FileTooLarge)
            }
        }
    }

    /// Records a change of names and makes it in memory; `locked` holds the nodes of the change.
    pub(crate) fn record_names(
        &self,
        mut change: NameChange<'_>,
        locked: &mut Locked<'_>,
    ) -> Result<Lsn, Refusal> {
        let left = self.leave_with_root(&mut change, locked);
        let payload = change.payload();
        let (kept, leaves_trash) = (change.kept, change.leaves_trash);
        let recorded = self.record(
            RecordKind::Metadata,
            &[&payload],
            |open, Position { end, .. }| {
                let mut first = false;
                if let Some((node, _)) = &change.created {
                    first |= self.enter_created(node, open, end, change.reserved);
                }
                for (node, record) in change.records {
                    let state = locked.of(node);
                    first |= open.begin_change(node, state);
                    self.accounts.place(&mut state.charge, &record);
                    state.record = record;
                    state.last_lsn = end;
                }
                for node in change.removed {
                    let state = locked.of(node);
                    first |= open.begin_change(node, state);
                    self.delete_content(state, open.id, end);
                }
                if let Some((directory, name)) = change.entered {
                    let known = &mut locked.of(directory).names;
                    if known.as_mut().is_some_and(|known| !known.add(name)) {
                        *known = None;
                    }
                }
                for (directory, cookie) in change.left {
                    let passed = &mut locked.of(directory).passed;
                    passed.get_or_insert_default().add(cookie, cookie);
                }
                self.catalog.apply(&change.names);
                first
            },
        );
        if let (Some((inode, uid, until)), Ok(_)) = (kept, &recorded) {
            self.trash.added(inode, uid, until);
        }
        if leaves_trash && recorded.is_ok() {
            self.trash.changed_now();
        }
        if let (Some(root), Ok(_)) = (left, &recorded) {
            self.accounts.set(root, &LEAVING);
        }
        recorded
    }

    /// Marks the quota as leaving if `change` removes the root of a tree in which other objects still count. Returns
    /// the root.
    fn leave_with_root(
        &self,
        change: &mut NameChange<'_>,
        locked: &mut Locked<'_>,
    ) -> Option<Inode> {
        let root = change.removed().find_map(|node| {
            let is_root = locked.of(node).charge.root() == Some(node.inode);
            is_root.then_some(node.inode)
        })?;
        if self.accounts.tree(root).used().files <= 1 {
            return None;
        }
        change.names.put(&Key::Quota(root), &LEAVING);
        Some(root)
    }

    /// Adds a new object, which carries its record already, to the table. Returns whether the change is the first of
    /// its checkpoint.
    pub(crate) fn enter_created(
        &self,
        node: &Arc<Node>,
        open: &OpenCheckpoint,
        end: Lsn,
        reserved: Option<Reservation>,
    ) -> bool {
        let mut state = node.lock();
        let first = open.begin_change(node, &mut state);
        state.last_lsn = end;
        state.settle(reserved);
        drop(state);
        self.nodes.insert(node);
        first
    }

    /// Deletes the bytes of an object that has lost its last name.
    pub(crate) fn delete_content(&self, state: &mut NodeState, open: CheckpointId, end: Lsn) {
        state.removed = true;
        state.record.nlink = 0;
        state.last_lsn = end;
        state.blocks.clear(open);
        state.early.cut(0, open);
        state.settle(None);
    }

    /// Repeats an attempt until the log has room for it. Holds no lock while it waits.
    pub(crate) async fn retry<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Refusal>,
    ) -> forebay_vfs::Result<T> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Full(bytes)) => self.wait_for_log_room(bytes).await?,
            }
        }
    }
}
