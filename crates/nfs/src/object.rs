//! An object that a handle names: in the live file system, or as a snapshot has it.
//!
//! Every directory of the live file system has a directory `.snapshot`, unless the rule says otherwise. In it is a directory
//! for each snapshot: the directory above, as it was then. There is no `.snapshot` inside snapshots.
//!
//! ```text
//!   DIRECTORY             Tree::Live,         inode of DIRECTORY
//!     .snapshot           Tree::List,         the same inode
//!       NAME              Tree::Snapshot(id), the same inode
//!         FILE            Tree::Snapshot(id), inode of FILE
//! ```

use bytes::Bytes;
use forebay_types::{Inode, SnapshotId};
use forebay_vfs::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, FileKind, FileSystem, Listing,
    ReadReply, Result, Snapshots, Statistics, Verifier,
};

use crate::SnapshotAccess;
use crate::handle::Tree;

/// Name of the directory that has the snapshots.
pub(crate) const LIST_NAME: &[u8] = b".snapshot";
/// Its cookie in a listing that shows it: behind all others, and positive for clients that take it for signed.
const LIST_COOKIE: u64 = u64::MAX >> 1;

/// Cookie of `..`; a snapshot's cookie in [`Tree::List`] is its number on top of that.
const DOT_DOT_COOKIE: u64 = 2;

/// Rights that nobody has in a tree that never changes.
const CHANGING: u32 = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;

/// An object and its file system.
pub(crate) struct Object<'a, F> {
    fs: &'a F,
    pub(crate) tree: Tree,
    pub(crate) inode: Inode,
    /// How the client sees snapshots.
    access: SnapshotAccess,
}

// Not derived: a derived impl would require `F: Clone`.
impl<F> Clone for Object<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Object<'_, F> {}

impl<'a, F> Object<'a, F> {
    /// An object of the live file system `fs`.
    pub(crate) fn live(fs: &'a F, inode: Inode, access: SnapshotAccess) -> Object<'a, F> {
        Object {
            fs,
            tree: Tree::Live,
            inode,
            access,
        }
    }

    /// An object of any tree; `None` if the client does not see it.
    pub(crate) fn seen(
        fs: &'a F,
        tree: Tree,
        inode: Inode,
        access: SnapshotAccess,
    ) -> Option<Object<'a, F>> {
        let is_seen = tree == Tree::Live || access != SnapshotAccess::Off;
        is_seen.then_some(Object {
            fs,
            tree,
            inode,
            access,
        })
    }

    fn at(self, tree: Tree, inode: Inode) -> Object<'a, F> {
        Object {
            tree,
            inode,
            ..self
        }
    }

    /// The file system, for a change of the object: everything but the live file system is read-only.
    pub(crate) fn to_change(self) -> Result<&'a F> {
        match self.tree {
            Tree::Live => Ok(self.fs),
            Tree::List | Tree::Snapshot(_) => Err(Error::ReadOnly),
        }
    }

    /// The file for the table of locks; `None` outside the live file system.
    pub(crate) fn to_lock(self) -> Option<Inode> {
        (self.tree == Tree::Live).then_some(self.inode)
    }

    /// Whether this name in the directory is that of its snapshots, and cannot be given to another object.
    pub(crate) fn is_list(self, name: &[u8]) -> bool {
        self.tree == Tree::Live && name == LIST_NAME && self.access != SnapshotAccess::Off
    }

    /// Another object of the same tree.
    pub(crate) fn sibling(self, inode: Inode) -> Object<'a, F> {
        self.at(self.tree, inode)
    }

    /// The object of an entry of this directory.
    pub(crate) fn entry(self, entry: &DirectoryEntry) -> Object<'a, F> {
        let tree = match self.tree {
            Tree::Live if entry.cookie == LIST_COOKIE => Tree::List,
            Tree::List if entry.cookie == DOT_DOT_COOKIE => Tree::Live,
            Tree::List if entry.cookie > DOT_DOT_COOKIE => {
                Tree::Snapshot(SnapshotId(entry.cookie - DOT_DOT_COOKIE))
            }
            tree => tree,
        };
        self.at(tree, entry.inode)
    }
}

impl<F: Snapshots> Object<'_, F> {
    /// The outcome of reading a snapshot. One that was deleted meanwhile cannot be read any more.
    fn outcome<T>(self, id: SnapshotId, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(Error::Io | Error::Delay) if !self.fs.has_snapshot(id) => Err(Error::Stale),
            outcome => outcome,
        }
    }

    /// The attributes of `.snapshot`: those of its directory, without rights to write.
    fn list(self, directory: Attributes) -> Attributes {
        let changed = self.fs.snapshots_changed();
        Attributes {
            mode: directory.mode & !0o222,
            nlink: 2,
            size: 0,
            used: 0,
            mtime: changed,
            ctime: changed.max(directory.ctime),
            ..directory
        }
    }

    pub(crate) async fn getattr(self) -> Result<Attributes> {
        match self.tree {
            Tree::Live => self.fs.getattr(self.inode).await,
            Tree::List => {
                let directory = self.fs.getattr(self.inode).await?;
                match directory.kind {
                    FileKind::Directory => Ok(self.list(directory)),
                    _ => Err(Error::Stale),
                }
            }
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.getattr(self.inode).await)
            }
        }
    }

    pub(crate) async fn lookup(
        self,
        caller: &Credentials,
        name: &[u8],
    ) -> Result<(Self, Attributes)> {
        match self.tree {
            Tree::Live if self.is_list(name) => {
                // The same right is needed as for every other name.
                let directory = self.fs.lookup(caller, self.inode, b".").await?;
                Ok((self.at(Tree::List, self.inode), self.list(directory)))
            }
            Tree::Live => {
                let found = self.fs.lookup(caller, self.inode, name).await?;
                Ok((self.at(Tree::Live, found.inode), found))
            }
            Tree::List => {
                let directory = self.fs.lookup(caller, self.inode, b".").await?;
                match name {
                    b"." => Ok((self, self.list(directory))),
                    b".." => Ok((self.at(Tree::Live, self.inode), directory)),
                    _ => {
                        let id = self.fs.snapshot_named(name).ok_or(Error::NotFound)?;
                        let then = self.at(Tree::Snapshot(id), self.inode);
                        let found = then.getattr().await.map_err(|error| match error {
                            // It is younger than the snapshot.
                            Error::Stale => Error::NotFound,
                            error => error,
                        });
                        Ok((then, found?))
                    }
                }
            }
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let found = image.lookup(caller, self.inode, name).await;
                let found = self.outcome(id, found)?;
                Ok((self.at(self.tree, found.inode), found))
            }
        }
    }

    pub(crate) async fn access(
        self,
        caller: &Credentials,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        match self.tree {
            Tree::Live => self.fs.access(caller, self.inode, wanted).await,
            Tree::List => {
                let wanted = Access(wanted.0 & !CHANGING);
                let (granted, directory) = self.fs.access(caller, self.inode, wanted).await?;
                Ok((granted, self.list(directory)))
            }
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.access(caller, self.inode, wanted).await)
            }
        }
    }

    pub(crate) async fn readlink(self, caller: &Credentials) -> Result<(Bytes, Attributes)> {
        match self.tree {
            Tree::Live => self.fs.readlink(caller, self.inode).await,
            Tree::List => Err(Error::Invalid),
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.readlink(caller, self.inode).await)
            }
        }
    }

    pub(crate) async fn read(
        self,
        caller: &Credentials,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        match self.tree {
            Tree::Live => self.fs.read(caller, self.inode, offset, count).await,
            Tree::List => Err(Error::IsDirectory),
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let read = image.read(caller, self.inode, offset, count).await;
                self.outcome(id, read)
            }
        }
    }

    /// See [`FileSystem::read_in_memory`]. Snapshots are read by [`Object::read`] only.
    pub(crate) fn read_in_memory(
        self,
        caller: &Credentials,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        match self.tree {
            Tree::Live => self.fs.read_in_memory(caller, self.inode, offset, count),
            Tree::List | Tree::Snapshot(_) => None,
        }
    }

    /// `shows_list` says whether the listing of a live directory ends with `.snapshot`.
    pub(crate) async fn readdir(
        self,
        caller: &Credentials,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
        shows_list: bool,
    ) -> Result<Listing> {
        match self.tree {
            Tree::Live if shows_list => {
                self.readdir_with_list(caller, cookie, max_entries, with_attributes)
                    .await
            }
            Tree::Live => {
                let fs = self.fs;
                fs.readdir(caller, self.inode, cookie, max_entries, with_attributes)
                    .await
            }
            Tree::List => self.readdir_list(caller, cookie, max_entries).await,
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let listing =
                    image.readdir(caller, self.inode, cookie, max_entries, with_attributes);
                self.outcome(id, listing.await)
            }
        }
    }

    async fn readdir_with_list(
        self,
        caller: &Credentials,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let mut listing = self
            .fs
            .readdir(caller, self.inode, cookie, max_entries, with_attributes)
            .await?;
        let has_room = listing.entries.len() < max_entries.max(1);
        if cookie >= LIST_COOKIE {
            listing.entries.clear();
            listing.end = true;
        } else if listing.end && has_room {
            let directory = listing.directory;
            listing.entries.push(DirectoryEntry {
                cookie: LIST_COOKIE,
                inode: self.inode,
                name: Bytes::from_static(LIST_NAME),
                attributes: with_attributes.then(|| self.list(directory)),
            });
        } else {
            listing.end = false;
        }
        Ok(listing)
    }

    async fn readdir_list(
        self,
        caller: &Credentials,
        cookie: u64,
        max_entries: usize,
    ) -> Result<Listing> {
        let (granted, directory) = self.fs.access(caller, self.inode, Access::READ).await?;
        if directory.kind != FileKind::Directory {
            return Err(Error::Stale);
        }
        if !granted.contains(Access::READ) {
            return Err(Error::Access);
        }
        let entry = |cookie, name| DirectoryEntry {
            cookie,
            inode: self.inode,
            name,
            // Attributes of a snapshot's directory are in the bucket, and most of them nobody wants.
            attributes: None,
        };
        let dots: [(u64, &'static [u8]); 2] = [(1, b"."), (DOT_DOT_COOKIE, b"..")];
        let dots = dots.into_iter().filter(|(own, _)| *own > cookie);
        let mut entries: Vec<DirectoryEntry> = dots
            .map(|(cookie, name)| entry(cookie, Bytes::from_static(name)))
            .take(max_entries.max(1))
            .collect();
        let room = max_entries.max(1) - entries.len();
        let after = cookie.saturating_sub(DOT_DOT_COOKIE);
        // One more than wanted shows whether these are the last.
        let mut found = self.fs.snapshots_after(after, room.saturating_add(1));
        let end = found.len() <= room;
        found.truncate(room);
        let snapshots = found.into_iter();
        entries.extend(snapshots.map(|(id, name)| entry(DOT_DOT_COOKIE + id.0, name)));
        Ok(Listing {
            directory: self.list(directory),
            entries,
            end,
        })
    }

    pub(crate) async fn commit(
        self,
        caller: &Credentials,
        offset: u64,
        count: u32,
    ) -> Result<(Change, Verifier)> {
        if self.tree == Tree::Live {
            return self.fs.commit(caller, self.inode, offset, count).await;
        }
        // All of a snapshot is stable, and nothing is written to it.
        let change = Change {
            before: None,
            after: Some(self.getattr().await?),
        };
        Ok((change, Verifier([0; 8])))
    }

    pub(crate) async fn statistics(self) -> Result<Statistics> {
        match self.tree {
            Tree::Live | Tree::List => self.fs.statistics_at(self.inode).await,
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.statistics_at(self.inode).await)
            }
        }
    }
}
