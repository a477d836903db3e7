//! Operations of clients, and their replies.

use std::pin::Pin;

use forebay_fs::{
    FlushError, RestoreError, RestoreRequest, Restored, SnapshotError, Stopped, TrashEntry,
    TrashError, Volume, Wanted,
};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{
    Attributes, Change, CreateMode, Created, Credentials, Device, Error, FileKind, FileSystem,
    Listing, NewNode, ReadReply, SetAttributes, Stability, Timestamp, Verifier, WriteReply,
};
use tokio::sync::mpsc;

/// No trash has more objects.
const MOST_UNDELETED: usize = 4096;

/// Objects that MKDIR, SYMLINK and MKNOD make.
#[derive(Clone, Debug, PartialEq)]
pub enum NewObject {
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A pipe, socket or device.
    Special(FileKind, Device),
}

/// An operation on objects that are named by their inodes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as in `forebay_vfs::FileSystem`")]
pub enum Operation {
    Create {
        directory: u64,
        name: Vec<u8>,
        mode: CreateMode,
    },
    Make {
        directory: u64,
        name: Vec<u8>,
        object: NewObject,
        mode: Option<u32>,
    },
    Link {
        inode: u64,
        directory: u64,
        name: Vec<u8>,
    },
    Remove {
        directory: u64,
        name: Vec<u8>,
    },
    Rmdir {
        directory: u64,
        name: Vec<u8>,
    },
    Rename {
        from: u64,
        old: Vec<u8>,
        to: u64,
        new: Vec<u8>,
    },
    SetAttributes {
        inode: u64,
        set: SetAttributes,
        guard: Option<Timestamp>,
    },
    Write {
        inode: u64,
        offset: u64,
        data: Vec<u8>,
        stability: Stability,
    },
    Commit {
        inode: u64,
    },
    Read {
        inode: u64,
        offset: u64,
        count: u32,
    },
    List {
        directory: u64,
        cookie: u64,
        max: usize,
    },
    Lookup {
        directory: u64,
        name: Vec<u8>,
    },
    /// Publish everything so far.
    Flush,
    /// Make a snapshot.
    Snapshot {
        name: String,
    },
    /// Delete a snapshot.
    DeleteSnapshot {
        name: String,
    },
    /// Put an object of a snapshot back.
    Restore(RestoreRequest),
    /// Bring objects back from the trash.
    Undelete {
        wanted: Wanted,
        to: Option<Vec<u8>>,
    },
}

/// The reply to an operation.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in `forebay_vfs::FileSystem`")]
pub enum Reply {
    Created(Created),
    Changed(Change),
    Renamed(Change, Change),
    Linked(Attributes, Change),
    Written(WriteReply),
    Committed(Change, Verifier),
    Read(ReadReply),
    Listed(Listing),
    Found(Attributes),
    Flushed(Lsn),
    /// A snapshot was made.
    Kept,
    /// A clone needs the snapshot.
    Held,
    /// The deletion of a snapshot has begun, or cannot begin yet.
    Deleted(bool),
    Restored(Restored),
    NotRestored(RestoreError),
    /// These objects are back from the trash.
    Undeleted(Vec<TrashEntry>),
    NotUndeleted(TrashError),
    Failed(Error),
    Stopped(Stopped),
}

/// An operation in flight.
pub(crate) type Call = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// All calls are root's: permissions are not tested here.
pub(crate) static ROOT: Credentials = Credentials::ROOT;

fn reply<T>(result: Result<T, Error>, map: impl FnOnce(T) -> Reply) -> Reply {
    result.map_or_else(Reply::Failed, map)
}

fn refused(error: SnapshotError) -> Reply {
    match error {
        SnapshotError::Volume(error) => Reply::Failed(error),
        SnapshotError::Exists(_) => Reply::Failed(Error::Exists),
        SnapshotError::NotFound(_) => Reply::Failed(Error::NotFound),
        SnapshotError::TooMany | SnapshotError::Store(_) => Reply::Failed(Error::Delay),
        other => Reply::Stopped(Stopped::Failed(other.to_string())),
    }
}

impl Operation {
    /// Begins the operation; it does nothing before it is polled. What it removes stays in the trash for `trash` seconds.
    pub(crate) fn call(&self, volume: &Volume, trash: u32) -> Call {
        let (volume, operation) = (volume.clone(), self.clone());
        let caller = Credentials {
            trash,
            ..Credentials::ROOT
        };
        Box::pin(async move { operation.run(&volume, &caller).await })
    }

    async fn run(&self, volume: &Volume, caller: &Credentials) -> Reply {
        match self {
            Operation::Create {
                directory,
                name,
                mode,
            } => reply(
                volume.create(&ROOT, Inode(*directory), name, mode).await,
                Reply::Created,
            ),
            Operation::Make {
                directory,
                name,
                object,
                mode,
            } => {
                let node = match object {
                    NewObject::Directory => NewNode::Directory,
                    NewObject::Symlink(target) => NewNode::Symlink(target),
                    NewObject::Special(FileKind::Socket, _) => NewNode::Socket,
                    NewObject::Special(FileKind::BlockDevice, device) => {
                        NewNode::BlockDevice(*device)
                    }
                    NewObject::Special(FileKind::CharDevice, device) => {
                        NewNode::CharDevice(*device)
                    }
                    NewObject::Special(..) => NewNode::Fifo,
                };
                let set = SetAttributes {
                    mode: *mode,
                    ..SetAttributes::default()
                };
                reply(
                    volume
                        .make(&ROOT, Inode(*directory), name, node, &set)
                        .await,
                    Reply::Created,
                )
            }
            Operation::Link {
                inode,
                directory,
                name,
            } => reply(
                volume
                    .link(&ROOT, Inode(*inode), Inode(*directory), name)
                    .await,
                |(attributes, change)| Reply::Linked(attributes, change),
            ),
            Operation::Remove { directory, name } => reply(
                volume.remove(caller, Inode(*directory), name).await,
                Reply::Changed,
            ),
            Operation::Rmdir { directory, name } => reply(
                volume.rmdir(caller, Inode(*directory), name).await,
                Reply::Changed,
            ),
            Operation::Rename { from, old, to, new } => reply(
                volume
                    .rename(caller, (Inode(*from), old), (Inode(*to), new))
                    .await,
                |(from, to)| Reply::Renamed(from, to),
            ),
            Operation::SetAttributes { inode, set, guard } => reply(
                volume.setattr(&ROOT, Inode(*inode), set, *guard).await,
                Reply::Changed,
            ),
            Operation::Write {
                inode,
                offset,
                data,
                stability,
            } => reply(
                volume
                    .write(&ROOT, Inode(*inode), *offset, data, *stability)
                    .await,
                Reply::Written,
            ),
            Operation::Commit { inode } => reply(
                volume.commit(&ROOT, Inode(*inode), 0, 0).await,
                |(change, verifier)| Reply::Committed(change, verifier),
            ),
            Operation::Read {
                inode,
                offset,
                count,
            } => reply(
                volume.read(&ROOT, Inode(*inode), *offset, *count).await,
                Reply::Read,
            ),
            Operation::List {
                directory,
                cookie,
                max,
            } => reply(
                volume
                    .readdir(&ROOT, Inode(*directory), *cookie, *max, true)
                    .await,
                Reply::Listed,
            ),
            Operation::Lookup { directory, name } => reply(
                volume.lookup(&ROOT, Inode(*directory), name).await,
                Reply::Found,
            ),
            Operation::Flush => match volume.flush().await {
                Ok(lsn) => Reply::Flushed(lsn),
                Err(FlushError::Stopped(why)) => Reply::Stopped(why),
                // Only gateways delete objects here.
                Err(gone) => Reply::Stopped(Stopped::Failed(gone.to_string())),
            },
            Operation::Snapshot { name } => match volume.make_snapshot(name, "simulation").await {
                Ok(_) => Reply::Kept,
                Err(error) => refused(error),
            },
            Operation::DeleteSnapshot { name } => match volume.delete_snapshot(name).await {
                Ok(()) => Reply::Deleted(true),
                Err(SnapshotError::NotPublished(_)) => Reply::Deleted(false),
                Err(SnapshotError::Cloned { .. }) => Reply::Held,
                Err(error) => refused(error),
            },
            Operation::Restore(request) => match volume.restore_while_polled(request).await {
                Ok(restored) => Reply::Restored(restored),
                Err(RestoreError::Flush(FlushError::Stopped(why))) => Reply::Stopped(why),
                Err(error) => Reply::NotRestored(error),
            },
            Operation::Undelete { wanted, to } => {
                let (back, mut came) = mpsc::channel(MOST_UNDELETED);
                match volume.undelete(wanted, to.as_deref(), &back).await {
                    Ok(_) => {
                        let entries = std::iter::from_fn(|| came.try_recv().ok());
                        Reply::Undeleted(entries.collect())
                    }
                    Err(TrashError::Volume(error)) => Reply::Failed(error),
                    Err(error) => Reply::NotUndeleted(error),
                }
            }
        }
    }

    /// Whether it may make several records.
    pub(crate) fn has_many_records(&self) -> bool {
        matches!(self, Operation::Restore(_) | Operation::Undelete { .. })
    }

    /// Whether its reply promises that its effect is on stable storage (RFC 1813 section 4.8).
    pub(crate) fn is_stable(&self) -> bool {
        match self {
            Operation::Write { stability, .. } => *stability != Stability::Unstable,
            Operation::Commit { .. }
            | Operation::Read { .. }
            | Operation::List { .. }
            | Operation::Lookup { .. }
            | Operation::DeleteSnapshot { .. }
            | Operation::Flush => false,
            _ => true,
        }
    }
}
