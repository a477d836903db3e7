//! The directory `.trash`: each user has one, by its handle.

use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, Listing, Result, Trees,
};

use super::Object;
use super::elsewhere::own_directory;
use super::listing::DOT_DOT_COOKIE;
use crate::handle::Tree;

/// Everyone lists their own files, and takes them out; nobody puts anything in. The sticky bit says that nobody takes
/// files of others.
const MODE: u32 = 0o1777;

/// The rights of everyone that may search the directory above. EXTEND is to make names.
const RIGHTS: u32 = Access::READ.0 | Access::LOOKUP.0 | Access::MODIFY.0 | Access::DELETE.0;

impl<F: Trees> Object<'_, F> {
    /// The attributes of `.trash` in a directory with these.
    pub(super) fn trash(self, directory: Attributes) -> Attributes {
        Attributes {
            mode: MODE,
            uid: 0,
            gid: 0,
            ..own_directory(directory, self.fs.trash_changed())
        }
    }

    /// The attributes of the directory above, for a caller that is `uid` and may search that. With the handle of another user the
    /// client has to look `.trash` up again.
    async fn above(self, caller: &Credentials, uid: u32) -> Result<Attributes> {
        if caller.uid != uid {
            return Err(Error::Stale);
        }
        self.fs.lookup(caller, self.inode, b".").await
    }

    /// The trash of the caller, in this directory.
    pub(super) async fn enter_trash(self, caller: &Credentials) -> Result<(Self, Attributes)> {
        let directory = self.above(caller, caller.uid).await?;
        let trash = self.at(Tree::Trash(caller.uid), self.inode);
        Ok((trash, self.trash(directory)))
    }

    pub(super) async fn lookup_in_trash(
        self,
        caller: &Credentials,
        uid: u32,
        name: &[u8],
    ) -> Result<(Self, Attributes)> {
        let directory = self.above(caller, uid).await?;
        match name {
            b"." => Ok((self, self.trash(directory))),
            b".." => Ok((self.at(Tree::Live, self.inode), directory)),
            _ => {
                let found = self.fs.lookup_removed(caller, self.inode, name).await?;
                Ok((self.at(Tree::Removed, found.inode), found))
            }
        }
    }

    pub(super) async fn access_trash(
        self,
        caller: &Credentials,
        uid: u32,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        match self.above(caller, uid).await {
            Ok(directory) => Ok((Access(wanted.0 & RIGHTS), self.trash(directory))),
            Err(Error::Access) => Ok((Access(0), self.trash(self.directory_above().await?))),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn readdir_trash(
        self,
        caller: &Credentials,
        uid: u32,
        cookie: u64,
        max_entries: usize,
    ) -> Result<Listing> {
        let directory = self.trash(self.above(caller, uid).await?);
        let mut entries = self.dots(cookie, max_entries);
        let room = max_entries.max(1) - entries.len();
        let after = Inode(cookie.saturating_sub(DOT_DOT_COOKIE));
        let removed = match room {
            0 => Ok((Vec::new(), false)),
            _ => self.fs.list_removed(caller, self.inode, after, room).await,
        };
        let (removed, end) = match removed {
            // The rest comes with the next call.
            Err(Error::Delay) if !entries.is_empty() => (Vec::new(), false),
            removed => removed?,
        };
        entries.extend(removed.into_iter().map(|entry| DirectoryEntry {
            cookie: DOT_DOT_COOKIE + entry.inode.0,
            ..entry
        }));
        Ok(Listing {
            directory,
            entries,
            end,
        })
    }

    /// Deletes a file in the trash for good. Returns the change of `.trash`.
    pub(crate) async fn delete_removed(self, caller: &Credentials, name: &[u8]) -> Result<Change> {
        self.above(caller, self.user(caller)).await?;
        self.fs.delete_removed(caller, self.inode, name).await?;
        Ok(self.changed().await)
    }

    /// Gives a file in the trash a name in a directory, which is free. Returns the changes of `.trash` and of the directory.
    pub(crate) async fn bring_back(
        self,
        caller: &Credentials,
        name: &[u8],
        to: (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        self.above(caller, self.user(caller)).await?;
        let from = (self.inode, name);
        let change = self.fs.bring_back(caller, from, to).await?;
        Ok((self.changed().await, change))
    }

    /// The user whose directory it is.
    fn user(self, caller: &Credentials) -> u32 {
        match self.tree {
            Tree::Trash(uid) => uid,
            _ => caller.uid,
        }
    }

    async fn changed(self) -> Change {
        Change {
            before: None,
            after: self
                .directory_above()
                .await
                .ok()
                .map(|above| self.trash(above)),
        }
    }
}
