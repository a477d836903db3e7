//! Records of the log as changes of a file system.

use std::fmt;

use forebay_meta::log_record::{DataHeader, decode_snapshot, decode_truncate};
use forebay_meta::record::{Content, InodeRecord, NameRecord, QuotaRecord, Timestamp};
use forebay_meta::{Batch, Entry, Key, Record as _};
use forebay_types::{Epoch, Inode, Lsn, SnapshotId};
use forebay_wal::{GapReason, LogReader, Piece, Record, RecordKind};

/// One record, or a place where records are missing.
#[derive(Debug)]
pub struct Event<'a> {
    /// The position of the record.
    pub lsn: Lsn,
    /// The position of the next one.
    pub end: Lsn,
    /// The epoch under which it was written; `None` for a gap.
    pub epoch: Option<Epoch>,
    /// What happened.
    pub what: What<'a>,
}

/// The content of a record.
#[derive(Debug)]
pub enum What<'a> {
    /// Bytes were written to a file.
    Write {
        /// The file.
        inode: Inode,
        /// The offset in the file.
        offset: u64,
        /// The time of the write.
        time: Timestamp,
        /// The file's permission bits after the write.
        mode: u32,
        /// The bytes.
        data: &'a [u8],
    },
    /// A file got another size.
    Truncate {
        /// The file.
        inode: Inode,
        /// Its attributes after the change, including the size.
        record: InodeRecord,
    },
    /// Names and attributes changed, all at the same moment.
    Names(Vec<NameEvent>),
    /// The record of a checkpoint.
    Mark,
    /// A snapshot of the volume was made.
    Snapshot {
        /// Its number.
        id: SnapshotId,
        /// Its name.
        name: String,
    },
    /// The record is intact, but this program does not know its content.
    Unknown(String),
    /// The record is sealed, and there is no key.
    Locked {
        /// Its kind.
        kind: RecordKind,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Records are missing here.
    Gap(GapReason),
}

/// One of the changes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameEvent {
    /// An object was made or its attributes changed.
    Object {
        /// The object.
        inode: Inode,
        /// Its attributes after the change.
        record: InodeRecord,
    },
    /// An object lost its last name.
    Gone {
        /// The object.
        inode: Inode,
    },
    /// A name was made, or refers to another object now.
    Named {
        /// The directory.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
        /// The object.
        inode: Inode,
    },
    /// A name was removed.
    Unnamed {
        /// The directory.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
    },
    /// An object went to the trash, or left it.
    Trash {
        /// The object.
        inode: Inode,
        /// Whether it is there now.
        is_in: bool,
    },
    /// A quota was set, changed or removed.
    Quota {
        /// The directory.
        root: Inode,
        /// Its limits; none if the quota was removed.
        quota: Option<QuotaRecord>,
    },
    /// A change that this program does not know; the key, as text.
    Unknown(String),
}

/// Reads a log as events.
pub struct EventReader(LogReader);

impl EventReader {
    pub(super) fn new(reader: LogReader) -> EventReader {
        EventReader(reader)
    }

    /// The next event; `None` after the last.
    #[allow(
        clippy::should_implement_trait,
        reason = "lends, which Iterator cannot"
    )]
    pub fn next(&mut self) -> Option<Event<'_>> {
        Some(match self.0.next()? {
            Piece::Gap(gap) => Event {
                lsn: gap.from,
                end: gap.to,
                epoch: None,
                what: What::Gap(gap.why),
            },
            Piece::Locked(record) => Event {
                lsn: record.lsn,
                end: record.end,
                epoch: Some(record.epoch),
                what: What::Locked {
                    kind: record.kind,
                    bytes: record.bytes,
                },
            },
            Piece::Record(record, epoch) => Event {
                lsn: record.lsn,
                end: record.end,
                epoch: Some(epoch),
                what: what(&record),
            },
        })
    }
}

fn what<'a>(record: &Record<'a>) -> What<'a> {
    let unknown = |why: &str| What::Unknown(why.to_owned());
    match record.kind {
        RecordKind::Data => match DataHeader::decode(record.payload) {
            Some((header, data)) => What::Write {
                inode: header.inode,
                offset: header.offset,
                time: header.time,
                mode: header.mode,
                data,
            },
            None => unknown("a data record whose header is cut off"),
        },
        RecordKind::Truncate => match decode_truncate(record.payload) {
            Some((inode, record)) => What::Truncate { inode, record },
            None => unknown("a truncate record that cannot be read"),
        },
        RecordKind::Metadata => match Batch::decode(record.payload) {
            Ok(batch) => What::Names(names(&batch)),
            Err(error) => What::Unknown(error.to_string()),
        },
        RecordKind::Checkpoint => What::Mark,
        RecordKind::Snapshot => match decode_snapshot(record.payload) {
            Some((id, record)) => What::Snapshot {
                id,
                name: record.name,
            },
            None => unknown("a snapshot's record that cannot be read"),
        },
    }
}

fn names(batch: &Batch) -> Vec<NameEvent> {
    let mut events = Vec::new();
    for (key, entry) in batch.changes() {
        let value = match entry {
            Entry::Value(value) => Some(value),
            Entry::Deleted => None,
        };
        let unknown = || {
            let key = forebay_meta::error::DisplayKey(key.to_vec());
            NameEvent::Unknown(key.to_string())
        };
        events.push(match (Key::decode(key), value) {
            // It repeats the content of the name.
            (Ok(Key::Cookie(..) | Key::TrashUntil(..) | Key::TrashOwner(..)), _) => continue,
            (Ok(Key::Trash(inode)), entry) => NameEvent::Trash {
                inode,
                is_in: entry.is_some(),
            },
            (Ok(Key::Inode(inode)), None) => NameEvent::Gone { inode },
            (Ok(Key::Inode(inode)), Some(value)) => match InodeRecord::decode(key, value) {
                Ok(record) => NameEvent::Object { inode, record },
                Err(_) => unknown(),
            },
            (Ok(Key::Name(directory, name)), None) => NameEvent::Unnamed {
                directory,
                name: name.to_vec(),
            },
            (Ok(Key::Name(directory, name)), Some(value)) => match NameRecord::decode(key, value) {
                Ok(record) => NameEvent::Named {
                    directory,
                    name: name.to_vec(),
                    inode: record.inode,
                },
                Err(_) => unknown(),
            },
            (Ok(Key::Quota(root)), None) => NameEvent::Quota { root, quota: None },
            (Ok(Key::Quota(root)), Some(value)) => match QuotaRecord::decode(key, value) {
                Ok(quota) => NameEvent::Quota {
                    root,
                    quota: Some(quota),
                },
                Err(_) => unknown(),
            },
            _ => unknown(),
        });
    }
    events
}

impl fmt::Display for NameEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameEvent::Object { inode, record } => {
                let kind = match &record.content {
                    Content::Regular => "file",
                    Content::Directory(_) => "directory",
                    Content::Symlink { .. } => "symbolic link",
                    Content::BlockDevice(_) => "block device",
                    Content::CharDevice(_) => "character device",
                    Content::Fifo => "named pipe",
                    Content::Socket => "socket",
                };
                write!(
                    f,
                    "inode {inode}: {kind}, mode {:04o}, owner {}:{}, {} bytes, {} links",
                    record.mode, record.uid, record.gid, record.size, record.nlink
                )?;
                match &record.content {
                    Content::Symlink { target } => write!(f, ", to {:?}", lossy(target)),
                    _ => Ok(()),
                }
            }
            NameEvent::Gone { inode } => write!(f, "inode {inode}: gone"),
            NameEvent::Trash { inode, is_in: true } => write!(f, "inode {inode}: in the trash"),
            NameEvent::Trash { inode, .. } => write!(f, "inode {inode}: no longer in the trash"),
            NameEvent::Named {
                directory,
                name,
                inode,
            } => write!(f, "name {:?} in {directory}: inode {inode}", lossy(name)),
            NameEvent::Unnamed { directory, name } => {
                write!(f, "name {:?} in {directory}: removed", lossy(name))
            }
            NameEvent::Quota { root, quota: None } => write!(f, "quota of {root}: removed"),
            NameEvent::Quota {
                root,
                quota: Some(quota),
            } => {
                let limit = |limit| match limit {
                    u64::MAX => "any number of".to_owned(),
                    limit => limit.to_string(),
                };
                let (bytes, files) = (limit(quota.limit_bytes), limit(quota.limit_files));
                write!(f, "quota of {root}: {bytes} bytes, {files} objects")
            }
            NameEvent::Unknown(key) => write!(f, "unknown entry {key}"),
        }
    }
}

/// The bytes of a name as text; invalid UTF-8 is replaced.
pub(super) fn lossy(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}
