//! Objects outside the live file system: `.snapshot` and what is in it, `.trash` and what is in it.

use bytes::Bytes;
use forebay_types::SnapshotId;
use forebay_vfs::{
    Access, Attributes, Credentials, Error, FileKind, FileSystem, ReadReply, Result, Statistics,
    Timestamp, Trees,
};

use super::{CHANGING, Object};
use crate::handle::Tree;

/// The attributes of a directory that the file system does not have, in a directory with these. `changed` is when its names did.
pub(super) fn own_directory(directory: Attributes, changed: Timestamp) -> Attributes {
    Attributes {
        nlink: 2,
        size: 0,
        used: 0,
        mtime: changed,
        ctime: changed.max(directory.ctime),
        ..directory
    }
}

impl<F: Trees> Object<'_, F> {
    /// The outcome of reading a snapshot. One that was deleted meanwhile cannot be read any more.
    pub(super) fn outcome<T>(self, id: SnapshotId, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(Error::Io | Error::Delay) if !self.fs.has_snapshot(id) => Err(Error::Stale),
            outcome => outcome,
        }
    }

    /// The attributes of `.snapshot`: those of its directory, without rights to write.
    pub(super) fn list(self, directory: Attributes) -> Attributes {
        Attributes {
            mode: directory.mode & !0o222,
            ..own_directory(directory, self.fs.snapshots_changed())
        }
    }

    /// The attributes of the directory above one that the file system does not have.
    pub(super) async fn directory_above(self) -> Result<Attributes> {
        let directory = self.fs.getattr(self.inode).await?;
        match directory.kind {
            FileKind::Directory => Ok(directory),
            _ => Err(Error::Stale),
        }
    }

    pub(super) async fn getattr_elsewhere(self) -> Result<Attributes> {
        match self.tree {
            Tree::Live => self.fs.getattr(self.inode).await,
            Tree::List => Ok(self.list(self.directory_above().await?)),
            Tree::Trash(_) => Ok(self.trash(self.directory_above().await?)),
            Tree::Removed => self.fs.getattr_removed(self.inode).await,
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.getattr(self.inode).await)
            }
        }
    }

    pub(super) async fn lookup_elsewhere(
        self,
        caller: &Credentials,
        name: &[u8],
    ) -> Result<(Self, Attributes)> {
        match self.tree {
            Tree::Live if self.is_trash_name(name) => self.enter_trash(caller).await,
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
            Tree::Trash(uid) => self.lookup_in_trash(caller, uid, name).await,
            Tree::Removed => Err(Error::NotDirectory),
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let found = image.lookup(caller, self.inode, name).await;
                let found = self.outcome(id, found)?;
                Ok((self.at(self.tree, found.inode), found))
            }
        }
    }

    pub(super) async fn access_elsewhere(
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
            Tree::Trash(uid) => self.access_trash(caller, uid, wanted).await,
            Tree::Removed => self.fs.access_removed(caller, self.inode, wanted).await,
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.access(caller, self.inode, wanted).await)
            }
        }
    }

    pub(super) async fn readlink_elsewhere(
        self,
        caller: &Credentials,
    ) -> Result<(Bytes, Attributes)> {
        match self.tree {
            Tree::Live => self.fs.readlink(caller, self.inode).await,
            Tree::List | Tree::Trash(_) | Tree::Removed => Err(Error::Invalid),
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.readlink(caller, self.inode).await)
            }
        }
    }

    pub(super) async fn read_elsewhere(
        self,
        caller: &Credentials,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        match self.tree {
            Tree::Live => self.fs.read(caller, self.inode, offset, count).await,
            Tree::List | Tree::Trash(_) => Err(Error::IsDirectory),
            Tree::Removed => {
                let fs = self.fs;
                fs.read_removed(caller, self.inode, offset, count).await
            }
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let read = image.read(caller, self.inode, offset, count).await;
                self.outcome(id, read)
            }
        }
    }

    pub(super) async fn statistics_elsewhere(self) -> Result<Statistics> {
        match self.tree {
            Tree::Live | Tree::List | Tree::Trash(_) => self.fs.statistics_at(self.inode).await,
            Tree::Removed => self.fs.statistics().await,
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                self.outcome(id, image.statistics_at(self.inode).await)
            }
        }
    }
}
