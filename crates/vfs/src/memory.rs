//! A file system in memory, for tests and benchmarks of front ends.
//!
//! It implements all of [`FileSystem`], and completes every operation at once, so a benchmark over it measures
//! the front end. There is no stable storage: every write counts as stable, and all
//! data is lost when the file system is dropped.
//!
//! ```text
//!   MemoryFileSystem
//!     table       inode -> node, in shards
//!     names       looking up, listing, making, linking, removing      \  one change of
//!     rename      moving and replacing                                /  names at a time
//!     attributes  GETATTR, SETATTR, READLINK
//!     content     READ, WRITE, COMMIT
//!     snapshots   other file systems that a test gives it
//!     trash       removed files
//!       node      attributes and content of one object, under its lock
//!         data       bytes of a file in shared pieces of 64 KiB
//!         directory  entries by name and by cookie
//! ```
//!
//! Locks: a call that changes names holds the `naming` lock while it checks and changes them; only this call may
//! hold the locks of several nodes at once. All other calls hold one node's lock at a time,
//! and only for as long as it takes to copy the result. Nothing is awaited.

mod attributes;
mod content;
mod data;
mod directory;
mod names;
mod node;
mod rename;
mod snapshots;
mod space;
mod table;
mod trash;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_types::Inode;
use parking_lot::Mutex;

use crate::{
    Access, Attributes, Change, CreateMode, Created, Credentials, FileKind, FileSystem, Listing,
    NewNode, ReadReply, Result, SetAttributes, Stability, Statistics, Timestamp, Verifier,
    WriteReply, permission,
};
use directory::Directory;
use node::{Content, Node, State};
use snapshots::Images;
use space::Space;
use table::Table;
use trash::Removed;

/// Number of objects that a file system in memory reports as its limit. It is not enforced:
/// memory is exhausted long before.
const TOTAL_FILES: u64 = 1 << 32;

/// A file system in memory; see the [module](self).
///
/// The root directory belongs to root, and all users may create names in it (mode 0o777).
pub struct MemoryFileSystem {
    table: Table,
    /// Held by calls that change names.
    naming: Mutex<()>,
    space: Space,
    verifier: Verifier,
    images: Mutex<Images>,
    removed: Mutex<Removed>,
}

impl MemoryFileSystem {
    /// Creates an empty file system of 1 PiB, which is in effect unlimited.
    pub fn new() -> MemoryFileSystem {
        MemoryFileSystem::with_capacity(1 << 50)
    }

    /// Creates an empty file system whose files may use `bytes` in total; writes beyond that fail with
    /// [`crate::Error::NoSpace`]. Names, links and attributes are not counted.
    pub fn with_capacity(bytes: u64) -> MemoryFileSystem {
        let now = now();
        let root = Attributes {
            inode: Inode::ROOT,
            kind: FileKind::Directory,
            mode: 0o777,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Default::default(),
            atime: now,
            mtime: now,
            ctime: now,
        };
        let content = Content::Directory(Directory::new(Inode::ROOT));
        let born_nanos =
            now.seconds.cast_unsigned().wrapping_mul(1_000_000_000) + u64::from(now.nanos);
        MemoryFileSystem {
            table: Table::new(Arc::new(Node::new(State::new(root, content)))),
            naming: Mutex::new(()),
            space: Space::new(bytes),
            verifier: Verifier(born_nanos.to_be_bytes()),
            images: Mutex::default(),
            removed: Mutex::default(),
        }
    }
}

impl Default for MemoryFileSystem {
    fn default() -> Self {
        MemoryFileSystem::new()
    }
}

/// The time of the system's clock.
fn now() -> Timestamp {
    // A clock before 1970 does not justify an error here.
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: since.as_secs().cast_signed(),
        nanos: since.subsec_nanos(),
    }
}

impl FileSystem for MemoryFileSystem {
    async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        self.attributes_of(inode)
    }

    async fn setattr(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Change> {
        self.set_attributes(caller, inode, set, guard)
    }

    async fn lookup(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        self.look_up(caller, directory, name)
    }

    async fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let attributes = self.attributes_of(inode)?;
        Ok((
            permission::access((&attributes).into(), caller, wanted),
            attributes,
        ))
    }

    async fn readlink(&self, _caller: &Credentials, inode: Inode) -> Result<(Bytes, Attributes)> {
        self.read_link(inode)
    }

    async fn read(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        self.read_file(caller, inode, offset, count)
    }

    async fn write(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteReply> {
        self.write_file(caller, inode, offset, data, stability)
    }

    async fn create(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<Created> {
        self.create_file(caller, directory, name, mode)
    }

    async fn make(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<Created> {
        self.make_node(caller, directory, name, node, set)
    }

    async fn remove(&self, caller: &Credentials, directory: Inode, name: &[u8]) -> Result<Change> {
        self.remove_name(caller, directory, name, false)
    }

    async fn rmdir(&self, caller: &Credentials, directory: Inode, name: &[u8]) -> Result<Change> {
        self.remove_name(caller, directory, name, true)
    }

    async fn rename(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        self.move_name(caller, from, to)
    }

    async fn link(
        &self,
        caller: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<(Attributes, Change)> {
        self.add_name(caller, inode, directory, name)
    }

    async fn readdir(
        &self,
        caller: &Credentials,
        directory: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        self.list(caller, directory, cookie, max_entries, with_attributes)
    }

    async fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics {
            total_bytes: self.space.total(),
            free_bytes: self.space.free(),
            available_bytes: self.space.free(),
            total_files: TOTAL_FILES,
            free_files: TOTAL_FILES.saturating_sub(self.table.len()),
            available_files: TOTAL_FILES.saturating_sub(self.table.len()),
        })
    }

    async fn commit(
        &self,
        _caller: &Credentials,
        inode: Inode,
        _offset: u64,
        _count: u32,
    ) -> Result<(Change, Verifier)> {
        self.commit_file(inode)
    }
}
