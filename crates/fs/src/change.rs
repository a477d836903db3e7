//! How a change comes about: one record in the log, and the same change in memory, as one step
//! between two checkpoints.
//!
//! The gate is held shared from before the record until the change is made in memory, and
//! exclusively to close a checkpoint: so a checkpoint holds exactly the changes whose records lie
//! before its end.

use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, InodeRecord, Kind, NameRecord};
use forebay_meta::{Batch, Key, Record};
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Inode, Lsn};
use forebay_vfs::{Error, Timestamp};
use forebay_wal::{AppendError, RecordKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::convert;
use crate::core::Core;
use crate::data::MAX_FILE_SIZE;
use crate::node::{Locked, Node, NodeState};
use crate::quota::{LEAVING, Reservation};

/// The checkpoint that collects changes.
pub(crate) struct Open {
    pub(crate) id: CheckpointId,
    /// Held shared for what leaves before the checkpoint closes, until it is in the bucket.
    pub(crate) under_way: Arc<tokio::sync::RwLock<()>>,
    changed: Mutex<Changed>,
}

/// What changed in a checkpoint.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Memory that they take, with their publication.
    pub(crate) bytes: u64,
    /// When the first change came.
    pub(crate) since: Option<Instant>,
}

impl Open {
    pub(crate) fn new(id: CheckpointId) -> Open {
        Open {
            id,
            under_way: Arc::default(),
            changed: Mutex::default(),
        }
    }

    /// To be called before each change of a node. Says whether it is the checkpoint's first.
    pub(crate) fn touch(&self, node: &Arc<Node>, state: &mut NodeState) -> bool {
        if !state.touch(self.id) {
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

    /// Memory that its changed nodes take, with their publication.
    pub(crate) fn changed_bytes(&self) -> u64 {
        self.changed.lock().bytes
    }

    pub(crate) fn take(&self) -> Changed {
        std::mem::take(&mut self.changed.lock())
    }
}

/// Why a change was not made.
pub(crate) enum Refusal {
    /// The client is to be told.
    Error(Error),
    /// The log has no room for so many bytes now: wait, then start over.
    Full(u64),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

/// Header of a data record's payload; the bytes follow it.
///
/// ```text
///  0  inode: 8   offset: 8   seconds: 8   nanoseconds: 4   mode: 4
/// 32  data
/// ```
pub(crate) struct DataHeader {
    pub(crate) inode: Inode,
    pub(crate) offset: u64,
    /// The file's new mtime and ctime.
    pub(crate) time: Timestamp,
    /// The file's mode after the write.
    pub(crate) mode: u32,
}

impl DataHeader {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.inode.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.time.seconds.to_le_bytes());
        out[24..28].copy_from_slice(&self.time.nanos.to_le_bytes());
        out[28..].copy_from_slice(&self.mode.to_le_bytes());
        out
    }

    /// The header and the data behind it; nothing if the payload is cut off, or would write beyond
    /// the largest file.
    pub(crate) fn decode(payload: &[u8]) -> Option<(DataHeader, &[u8])> {
        let (inode, rest) = payload.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let (nanos, rest) = rest.split_first_chunk()?;
        let (mode, data) = rest.split_first_chunk()?;
        let header = DataHeader {
            inode: Inode(u64::from_le_bytes(*inode)),
            offset: u64::from_le_bytes(*offset),
            time: Timestamp {
                seconds: i64::from_le_bytes(*seconds),
                nanos: u32::from_le_bytes(*nanos),
            },
            mode: u32::from_le_bytes(*mode),
        };
        let end = header.offset.checked_add(data.len() as u64)?;
        (end <= MAX_FILE_SIZE).then_some((header, data))
    }

    /// Makes the write in memory, of which `counted` bytes are known to take space already. Gives the block that it
    /// has filled, if there is one.
    pub(crate) fn apply(
        &self,
        state: &mut NodeState,
        data: &[u8],
        counted: u64,
        open: CheckpointId,
    ) -> Option<BlockIndex> {
        let range = ByteRange::at(self.offset, data.len() as u64);
        if counted == 0 && state.is_in_bucket() && !state.unknown_ranges(range).is_empty() {
            // Some of it may be in the bucket.
            state.charge.loosen(open);
        }
        state.set_space(state.space_after(range, counted));
        let filled = state.blocks.write(self.offset, data, open);
        let record = &mut state.record;
        record.size = record.size.max(self.offset + data.len() as u64);
        record.mode = self.mode;
        record.mtime = convert::record_time(self.time);
        record.ctime = record.mtime;
        filled
    }
}

/// Payload of a truncate record: the inode, then its record with the new size.
pub(crate) fn encode_truncate(inode: Inode, record: &InodeRecord) -> Vec<u8> {
    let mut payload = inode.0.to_le_bytes().to_vec();
    payload.extend_from_slice(&record.without_maps().encode());
    payload
}

/// Reads what [`encode_truncate`] wrote.
pub(crate) fn decode_truncate(payload: &[u8]) -> Option<(Inode, InodeRecord)> {
    let (inode, rest) = payload.split_first_chunk()?;
    let inode = Inode(u64::from_le_bytes(*inode));
    let record = InodeRecord::decode(&Key::Inode(inode).encode(), rest).ok()?;
    Some((inode, record))
}

/// A change of names and attributes that happens as a whole: the new records of the objects that
/// it touches, and the names that come and go.
///
/// In memory, attributes live in the nodes and names in the overlay; the log gets both as one
/// metadata batch.
#[derive(Default)]
pub(crate) struct NameChange<'a> {
    pub(crate) names: Batch,
    /// The name that comes, and to which directory.
    entered: Option<(&'a Arc<Node>, &'a [u8])>,
    /// Cookies that lose their names, and of which directories.
    left: Vec<(&'a Arc<Node>, u64)>,
    records: Vec<(&'a Arc<Node>, InodeRecord)>,
    removed: Vec<&'a Arc<Node>>,
    created: Option<(&'a Arc<Node>, InodeRecord)>,
    reserved: Option<Reservation>,
}

impl<'a> NameChange<'a> {
    /// The object gets this record.
    pub(crate) fn set(&mut self, node: &'a Arc<Node>, record: InodeRecord) {
        self.records.push((node, record));
    }

    /// A name comes to a directory. One at most in a change.
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

    /// A cookie of a directory stands for nothing any more.
    pub(crate) fn leave(&mut self, directory: &'a Arc<Node>, cookie: u64) {
        self.left.push((directory, cookie));
    }

    /// The object loses its last name.
    pub(crate) fn remove(&mut self, node: &'a Arc<Node>) {
        self.removed.push(node);
    }

    /// The object comes to be, for which there is room.
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

impl Core {
    /// Records a change and makes it in memory, as one step. Gives the position after it. `apply` says whether the change
    /// is the first of its checkpoint.
    pub(crate) fn record(
        &self,
        kind: RecordKind,
        parts: &[&[u8]],
        apply: impl FnOnce(&Open, Lsn) -> bool,
    ) -> Result<Lsn, Refusal> {
        let (end, is_first) = {
            let open = self.gate.read();
            let end = self
                .journal()
                .append(kind, parts)
                .map_err(|error| self.refusal(&error, parts))?;
            (end, apply(&open, end))
        };
        if is_first {
            // The publisher sleeps while there is nothing to do.
            self.checkpoints.wake();
        }
        Ok(end)
    }

    /// Why the log did not take a record.
    fn refusal(&self, error: &AppendError, parts: &[&[u8]]) -> Refusal {
        match error {
            AppendError::Full => Refusal::Full(parts.iter().map(|part| part.len() as u64).sum()),
            AppendError::Failed(failed) => Refusal::Error(self.log_failed(failed)),
            AppendError::TooLarge { .. } => {
                tracing::error!("{error}; make the log segments larger");
                Refusal::Error(Error::FileTooLarge)
            }
        }
    }

    /// Makes a change of names, whose nodes `locked` holds.
    pub(crate) fn record_names(
        &self,
        mut change: NameChange<'_>,
        locked: &mut Locked<'_>,
    ) -> Result<Lsn, Refusal> {
        let left = self.leave_with_root(&mut change, locked);
        let payload = change.payload();
        let recorded = self.record(RecordKind::Metadata, &[&payload], |open, end| {
            let mut first = false;
            if let Some((node, _)) = &change.created {
                first |= self.enter_created(node, open, end, change.reserved);
            }
            for (node, record) in change.records {
                let state = locked.of(node);
                first |= open.touch(node, state);
                self.set_tree(state, record.tree);
                state.record = record;
                state.last_lsn = end;
            }
            for node in change.removed {
                let state = locked.of(node);
                first |= open.touch(node, state);
                self.bury(state, open.id, end);
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
        });
        if let (Some(root), Ok(_)) = (left, &recorded) {
            self.accounts.set(root, &LEAVING);
        }
        recorded
    }

    /// Puts a new object, which carries its record already, where others find it.
    pub(crate) fn enter_created(
        &self,
        node: &Arc<Node>,
        open: &Open,
        end: Lsn,
        reserved: Option<Reservation>,
    ) -> bool {
        let mut state = node.lock();
        let first = open.touch(node, &mut state);
        state.last_lsn = end;
        state.settle(reserved);
        drop(state);
        self.nodes.insert(node);
        first
    }

    /// The last name of an object is gone, and its bytes with it.
    pub(crate) fn bury(&self, state: &mut NodeState, open: CheckpointId, end: Lsn) {
        state.removed = true;
        state.record.nlink = 0;
        state.last_lsn = end;
        state.blocks.clear(open);
        state.early.cut(0, open);
        state.settle(None);
    }

    /// The object counts in this tree from now on.
    pub(crate) fn set_tree(&self, state: &mut NodeState, tree: Option<Inode>) {
        if state.charge.root() != tree {
            let account = tree.map(|root| self.accounts.tree(root));
            state.charge.move_to(account);
        }
    }

    /// Tries a change until the log has room for it. No lock is held while it waits.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_header_is_read_back_and_short_ones_are_refused() {
        let header = DataHeader {
            inode: Inode(7),
            offset: 1 << 40,
            time: Timestamp {
                seconds: -3,
                nanos: 9,
            },
            mode: 0o644,
        };
        let mut payload = header.encode().to_vec();
        payload.extend_from_slice(b"abc");
        let (read, data) = DataHeader::decode(&payload).unwrap();
        assert_eq!(
            (read.inode, read.offset, read.time, read.mode),
            (Inode(7), 1 << 40, header.time, 0o644)
        );
        assert_eq!(data, b"abc");
        assert!(DataHeader::decode(&payload[..31]).is_none());
    }

    #[test]
    fn a_data_record_that_writes_beyond_the_largest_file_is_refused() {
        let record = |offset: u64| {
            let header = DataHeader {
                inode: Inode(7),
                offset,
                time: Timestamp::default(),
                mode: 0,
            };
            [&header.encode()[..], b"abc"].concat()
        };
        assert!(DataHeader::decode(&record(MAX_FILE_SIZE - 3)).is_some());
        for offset in [MAX_FILE_SIZE - 2, u64::MAX - 1] {
            assert!(DataHeader::decode(&record(offset)).is_none(), "{offset}");
        }
    }
}
