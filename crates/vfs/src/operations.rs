//! The operations, one for each thing that a client can ask for.

use std::future::Future;

use bytes::Bytes;
use forebay_types::{Inode, Pieces};
use smallvec::SmallVec;

use crate::{Access, Attributes, Device, Result, SetAttributes, Timestamp, WccAttributes};

/// Groups of a caller: as many as AUTH_SYS carries need no memory of their own.
pub type Groups = SmallVec<[u32; 16]>;

/// Names a client for the fair division of resources. Calls of one client carry the same number, calls of two clients
/// most likely different ones. It grants no rights, and is not kept.
///
/// A caller without a client, as a background task, has the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

/// Who asks: the identity that permission checks use, after any squashing, and the client that it calls from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups; AUTH_SYS carries at most 16 (RFC 5531, appendix A).
    pub groups: Groups,
    /// The client: shares of memory that is written to are counted by it, and no permission depends on it.
    pub client: ClientId,
}

impl Credentials {
    /// User and group 0, without further groups and without a client.
    pub const ROOT: Credentials = Credentials {
        uid: 0,
        gid: 0,
        groups: Groups::new_const(),
        client: ClientId(0),
    };
}

/// Write verifier: changes when the server may have lost writes that it answered UNSTABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier(pub [u8; 8]);

/// How safe a write is (`stable_how`), in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// May be lost in a power cut until it is committed.
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
    /// Takes the existing regular file (its size is set if the attributes say so).
    Unchecked(SetAttributes),
    /// Fails with [`crate::Error::Exists`].
    Guarded(SetAttributes),
    /// Succeeds on a file that was made with the same verifier, else fails: a repeated call finds
    /// its own file.
    Exclusive([u8; 8]),
}

/// What the creating operations other than CREATE and LINK make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// MKDIR.
    Directory,
    /// SYMLINK, with the path it holds (1 to 4096 bytes).
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
    /// Its attributes (which name its inode).
    pub attributes: Attributes,
    /// What happened to the directory.
    pub directory: Change,
}

/// Answer of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// The bytes, in order, as pieces to be written to the socket one after the other; together
    /// at most as many as were asked for.
    pub data: Pieces,
    /// Whether the last byte of the file is among them, or the offset lies at or past the end.
    pub eof: bool,
    /// The file.
    pub attributes: Attributes,
}

/// Answer of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReply {
    /// How many bytes were written.
    pub count: u32,
    /// How safe they are by now; at least what was asked for.
    pub stability: Stability,
    /// The write verifier.
    pub verifier: Verifier,
    /// What happened to the file.
    pub change: Change,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Position to go on from after this entry. Never changes while the entry stays, also across
    /// restarts; never 0.
    pub cookie: u64,
    /// The object.
    pub inode: Inode,
    /// The name: 1 to 255 bytes, no `/` and no NUL; `.` and `..` are listed as the first two.
    pub name: Bytes,
    /// The object's attributes, if they were asked for and it still exists.
    pub attributes: Option<Attributes>,
}

/// A piece of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The directory.
    pub directory: Attributes,
    /// Entries in the order of their cookies.
    pub entries: Vec<DirectoryEntry>,
    /// Whether no entry follows these.
    pub end: bool,
}

/// Sizes of the volume, or of the part of it that has a quota (`FSSTAT`), in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Size.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Those of them that a user can have: less where something around it has less left.
    pub available_bytes: u64,
    /// Number of inodes that there can be.
    pub total_files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Those of them that a user can have.
    pub available_files: u64,
}

/// A file system as front ends see it.
///
/// * Objects are named by inode. An inode that does not exist (any more) is
///   [`crate::Error::Stale`].
/// * Names are bytes. The file system checks them (empty, `.`, `..`, `/`, NUL, longer than 255).
/// * Every operation checks the permissions of `who`.
/// * CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK and SETATTR are on stable storage
///   when they return (RFC 1813 section 4.8).
/// * An operation may wait (for the bucket, for room) but does not fail because of load.
/// * Dropping the future of an operation before it is done leaves it done or not done, never half
///   done.
pub trait FileSystem: Send + Sync + 'static {
    /// Reads the attributes.
    fn getattr(&self, inode: Inode) -> impl Future<Output = Result<Attributes>> + Send;

    /// Sets attributes; with `guard`, only if the ctime still is that moment
    /// ([`crate::Error::NotSync`]).
    fn setattr(
        &self,
        who: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Finds a name, `.` and `..` among them (`..` of the root is the root).
    fn lookup(
        &self,
        who: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Attributes>> + Send;

    /// Says which of the rights `wanted` the caller has.
    fn access(
        &self,
        who: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> impl Future<Output = Result<(Access, Attributes)>> + Send;

    /// Reads a symbolic link ([`crate::Error::Invalid`] on anything else).
    fn readlink(
        &self,
        who: &Credentials,
        inode: Inode,
    ) -> impl Future<Output = Result<(Bytes, Attributes)>> + Send;

    /// Reads up to `count` bytes of a regular file.
    fn read(
        &self,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Result<ReadReply>> + Send;

    /// The same, if nothing has to be waited for: all bytes are in memory, and so is what tells whether the caller may
    /// have them. `None` otherwise, also for what ends in an error: [`FileSystem::read`] says which.
    fn read_in_memory(
        &self,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        let _ = (who, inode, offset, count);
        None
    }

    /// Writes to a regular file; returns when `stability` is reached.
    fn write(
        &self,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> impl Future<Output = Result<WriteReply>> + Send;

    /// Makes a regular file.
    fn create(
        &self,
        who: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> impl Future<Output = Result<Created>> + Send;

    /// Makes a directory, symbolic link or special file.
    fn make(
        &self,
        who: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> impl Future<Output = Result<Created>> + Send;

    /// Removes a name of anything but a directory.
    fn remove(
        &self,
        who: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Removes an empty directory.
    fn rmdir(
        &self,
        who: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<Change>> + Send;

    /// Renames, replacing what bears the new name; gives the changes of both directories.
    fn rename(
        &self,
        who: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> impl Future<Output = Result<(Change, Change)>> + Send;

    /// Gives an object (not a directory) a further name.
    fn link(
        &self,
        who: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> impl Future<Output = Result<(Attributes, Change)>> + Send;

    /// Lists entries after `cookie` (0: from the start), at most `max_entries` (at least 1), with
    /// their attributes if `with_attributes`.
    fn readdir(
        &self,
        who: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> impl Future<Output = Result<Listing>> + Send;

    /// Sizes of the volume.
    fn statistics(&self) -> impl Future<Output = Result<Statistics>> + Send;

    /// Sizes of what an object counts in: of the volume, or of a part of it that has a quota.
    fn statistics_at(&self, inode: Inode) -> impl Future<Output = Result<Statistics>> + Send {
        let _ = inode;
        self.statistics()
    }

    /// Returns when everything written to the file before is on stable storage (RFC 1813 section
    /// 3.3.21: committing more than the range that was asked for is allowed).
    fn commit(
        &self,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> impl Future<Output = Result<(Change, Verifier)>> + Send;
}
