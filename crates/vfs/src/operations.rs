//! The operations of a file system, one for each kind of client request.

use bytes::Bytes;
use forebay_types::{Inode, Pieces};
use smallvec::SmallVec;
use std::future::Future;

use crate::{Access, Attributes, Device, Result, SetAttributes, Timestamp, WccAttributes};

/// Supplementary groups of a caller: up to the number that AUTH_SYS carries, they need no heap allocation.
pub type Groups = SmallVec<[u32; 16]>;

/// Identifies a client for the fair division of resources. Calls of one client carry the same number, calls of two
/// clients most likely different ones. It grants no rights, and is not stored.
///
/// A caller without a client, such as a background task, has the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

/// The caller: its identity for permission checks, after any squashing, and the client that it calls from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups; AUTH_SYS carries at most 16 (RFC 5531, appendix A).
    pub groups: Groups,
    /// The client: the memory for writes is shared out by it, and no permission depends on it.
    pub client: ClientId,
    /// For how many seconds files whose last name the caller removes stay in the trash; 0 deletes them at once. No
    /// permission depends on it.
    pub trash: u32,
}

impl Credentials {
    /// User and group 0, without supplementary groups and without a client.
    pub const ROOT: Credentials = Credentials {
        uid: 0,
        gid: 0,
        groups: Groups::new_const(),
        client: ClientId(0),
        trash: 0,
    };
}

/// Write verifier: changes when the server may have lost writes that it answered as UNSTABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier(pub [u8; 8]);

/// Durability of a write (`stable_how`), in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// May be lost in a power failure until it is committed.
    Unstable,
    /// The data is on stable storage.
    DataSync,
    /// Data and attributes are on stable storage.
    FileSync,
}

/// An object's attributes before and after an operation that changed it (`wcc_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Before, if they were taken together with the change.
    pub before: Option<WccAttributes>,
    /// After.
    pub after: Option<Attributes>,
}

/// How CREATE treats a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Opens the existing regular file (and sets its size if the attributes contain one).
    Unchecked(SetAttributes),
    /// Fails with [`crate::Error::Exists`].
    Guarded(SetAttributes),
    /// Succeeds on a file that was created with the same verifier, otherwise fails: a repeated call finds
    /// its own file.
    Exclusive([u8; 8]),
}

/// Kinds of objects that the creating operations other than CREATE and LINK make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// MKDIR.
    Directory,
    /// SYMLINK, with its target path (1 to 4096 bytes).
    Symlink(&'a [u8]),
    /// MKNOD of a named pipe.
    Fifo,
    /// MKNOD of a socket.
    Socket,
    /// MKNOD of a block device.
    BlockDevice(Device),
    /// MKNOD of a character device.
    CharDevice(Device),
}

/// An object that was made, or found by CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its attributes (including its inode).
    pub attributes: Attributes,
    /// The change of the directory.
    pub directory: Change,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// The bytes, in order, as pieces to be written to the socket one after the other; together
    /// at most as many as were asked for.
    pub data: Pieces,
    /// Whether the last byte of the file is among them, or the offset lies at or past the end.
    pub eof: bool,
    /// The file's attributes.
    pub attributes: Attributes,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// Number of bytes written.
    pub count: u32,
    /// Their durability now; at least the requested one.
    pub stability: Stability,
    /// The write verifier.
    pub verifier: Verifier,
    /// The change of the file.
    pub change: Change,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Position from which to continue after this entry. Never changes while the entry exists, not even across
    /// restarts; never 0.
    pub cookie: u64,
    /// The object.
    pub inode: Inode,
    /// The name: 1 to 255 bytes, no `/` and no NUL; `.` and `..` are listed as the first two.
    pub name: Bytes,
    /// The object's attributes, if they were requested and it still exists.
    pub attributes: Option<Attributes>,
}

/// A piece of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The directory's attributes.
    pub directory: Attributes,
    /// Entries in the order of their cookies.
    pub entries: Vec<DirectoryEntry>,
    /// Whether these are the last entries.
    pub end: bool,
}

/// Capacity of the volume, or of the part of it that has a quota (`FSSTAT`), in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Size.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that a user can have; fewer than `free_bytes` where an enclosing quota has less left.
    pub available_bytes: u64,
    /// Largest possible number of inodes.
    pub total_files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Free inodes that a user can have.
    pub available_files: u64,
}

/// A file system as front ends see it.
///
/// * Objects are named by inode. An inode that does not exist (any more) causes
///   [`crate::Error::Stale`].
/// * Names are bytes. The file system checks them (empty, `.`, `..`, `/`, NUL, longer than 255).
/// * Every operation checks the permissions of `caller`.
/// * CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK and SETATTR are on stable storage
///   when they return (RFC 1813 section 4.8).
/// * An operation may wait (for the bucket, for room) but does not fail because of load.
/// * If the future of an operation is dropped before it completes, the operation is either executed or not executed,
///   never half executed.
pub trait FileSystem: Send + Sync + 'static {
    /// Reads the attributes.
    fn getattr(&self, inode: Inode) -> impl Future<Output = Result<Attributes>> + Send;

    /// Sets attributes; with `guard`, only if the ctime still equals it
    /// ([`crate::Error::NotSync`]).
    fn setattr(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Looks up a name, including `.` and `..` (`..` of the root is the root).
    fn lookup(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Attributes>> + Send;

    /// Returns those of the rights `wanted` that the caller has.
    fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> impl Future<Output = Result<(Access, Attributes)>> + Send;

    /// Reads a symbolic link ([`crate::Error::Invalid`] on anything else).
    fn readlink(
        &self,
        caller: &Credentials,
        inode: Inode,
    ) -> impl Future<Output = Result<(Bytes, Attributes)>> + Send;

    /// Reads up to `count` bytes of a regular file.
    fn read(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Result<ReadReply>> + Send;

    /// Like [`FileSystem::read`], but only if no wait is needed: all bytes are in memory, and so is the data for the
    /// permission check. `None` otherwise, also for errors: [`FileSystem::read`] returns them.
    fn read_in_memory(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        let _ = (caller, inode, offset, count);
        None
    }

    /// Writes to a regular file; returns when `stability` is reached.
    fn write(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> impl Future<Output = Result<WriteReply>> + Send;

    /// Creates a regular file.
    fn create(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> impl Future<Output = Result<Created>> + Send;

    /// Creates a directory, symbolic link or special file.
    fn make(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> impl Future<Output = Result<Created>> + Send;

    /// Removes a name of an object that is not a directory.
    fn remove(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Removes an empty directory.
    fn rmdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Renames, replacing the object with the new name, if any; returns the changes of both directories.
    fn rename(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> impl Future<Output = Result<(Change, Change)>> + Send;

    /// Adds a further name to an object (not a directory).
    fn link(
        &self,
        caller: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<(Attributes, Change)>> + Send;

    /// Lists entries after `cookie` (0: from the start), at most `max_entries` (at least 1), with
    /// their attributes if `with_attributes`.
    fn readdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> impl Future<Output = Result<Listing>> + Send;

    /// Returns the capacity of the volume.
    fn statistics(&self) -> impl Future<Output = Result<Statistics>> + Send;

    /// Returns the capacity that applies to an object: of the volume, or of a part of it that has a quota.
    fn statistics_at(&self, inode: Inode) -> impl Future<Output = Result<Statistics>> + Send {
        let _ = inode;
        self.statistics()
    }

    /// Waits until all earlier writes to the file are on stable storage (RFC 1813 section
    /// 3.3.21: committing more than the requested range is allowed).
    fn commit(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Result<(Change, Verifier)>> + Send;
}
