//! An object that a handle names: in the live file system, as a snapshot has it, or in the trash.
//!
//! Every directory of the live file system has a directory `.snapshot`, unless the rule says otherwise. In it is a directory
//! for each snapshot: the directory above, as it was then. There is no `.snapshot` inside snapshots. The export's own directory
//! has a directory `.trash`, if the rule has a trash. In it are the removed files that the caller may see.
//!
//! ```text
//!   DIRECTORY             Tree::Live,         inode of DIRECTORY
//!     .snapshot           Tree::List,         the same inode
//!       NAME              Tree::Snapshot(id), the same inode
//!         FILE            Tree::Snapshot(id), inode of FILE
//!     .trash              Tree::Trash(user),  the same inode
//!       FILE.4711         Tree::Removed,      inode of FILE
//! ```

mod elsewhere;
mod listing;
mod trash;

use bytes::Bytes;
use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Change, Credentials, Error, ReadReply, Result, Statistics, Trees, Verifier,
};

use crate::handle::Tree;
use crate::{Rule, VirtualDirectory};

pub(crate) use listing::ListedBeside;

/// Name of the directory that has the snapshots.
const LIST_NAME: &[u8] = b".snapshot";
/// Name of the directory that has removed files.
pub(crate) const TRASH_NAME: &[u8] = b".trash";

/// Rights that nobody has in a tree that never changes.
const CHANGING: u32 = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;

/// An object and its file system.
pub(crate) struct Object<'a, F> {
    fs: &'a F,
    pub(crate) tree: Tree,
    pub(crate) inode: Inode,
    shows: Shows,
    /// Whether it is known to be the export's own directory.
    is_top: bool,
}

/// How the client sees the directories that the file system does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shows {
    snapshots: VirtualDirectory,
    trash: VirtualDirectory,
}

impl Shows {
    /// As a rule says.
    pub(crate) fn of(rule: &Rule) -> Shows {
        Shows {
            snapshots: rule.snapshots,
            trash: rule.shown_trash(),
        }
    }
}

/// Not at all.
impl Default for Shows {
    fn default() -> Self {
        Shows {
            snapshots: VirtualDirectory::Off,
            trash: VirtualDirectory::Off,
        }
    }
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
    pub(crate) fn live(fs: &'a F, inode: Inode, shows: Shows) -> Object<'a, F> {
        Object {
            fs,
            tree: Tree::Live,
            inode,
            shows,
            is_top: false,
        }
    }

    /// An object of any tree; `None` if the client does not see it.
    pub(crate) fn seen(fs: &'a F, tree: Tree, inode: Inode, shows: Shows) -> Option<Object<'a, F>> {
        let is_seen = match tree {
            Tree::Live => true,
            Tree::List | Tree::Snapshot(_) => shows.snapshots != VirtualDirectory::Off,
            Tree::Trash(_) | Tree::Removed => shows.trash != VirtualDirectory::Off,
        };
        is_seen.then_some(Object {
            tree,
            ..Object::live(fs, inode, shows)
        })
    }

    /// The same object, which is the export's own directory.
    pub(crate) fn as_top(self) -> Object<'a, F> {
        Object {
            is_top: true,
            ..self
        }
    }

    fn at(self, tree: Tree, inode: Inode) -> Object<'a, F> {
        Object {
            tree,
            inode,
            is_top: false,
            ..self
        }
    }

    /// The file system, for a change of the object: everything but the live file system is read-only.
    pub(crate) fn to_change(self) -> Result<&'a F> {
        match self.tree {
            Tree::Live => Ok(self.fs),
            Tree::List | Tree::Snapshot(_) | Tree::Trash(_) | Tree::Removed => Err(Error::ReadOnly),
        }
    }

    /// Whether nothing of it can be changed. Files can be taken out of the trash.
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self.tree, Tree::List | Tree::Snapshot(_) | Tree::Removed)
    }

    /// Whether it is the directory of removed files.
    pub(crate) fn is_trash(self) -> bool {
        matches!(self.tree, Tree::Trash(_))
    }

    /// The file for the table of locks; `None` outside the live file system.
    pub(crate) fn to_lock(self) -> Option<Inode> {
        (self.tree == Tree::Live).then_some(self.inode)
    }

    /// Whether this name in the directory is that of its snapshots or of the trash, and cannot be given to another object.
    pub(crate) fn is_virtual(self, name: &[u8]) -> bool {
        self.tree == Tree::Live && (self.is_list(name) || self.is_trash_name(name))
    }

    fn is_list(self, name: &[u8]) -> bool {
        name == LIST_NAME && self.shows.snapshots != VirtualDirectory::Off
    }

    fn is_trash_name(self, name: &[u8]) -> bool {
        self.is_top && name == TRASH_NAME && self.shows.trash != VirtualDirectory::Off
    }

    /// Another object of the same tree.
    pub(crate) fn sibling(self, inode: Inode) -> Object<'a, F> {
        self.at(self.tree, inode)
    }
}

/// Calls in the live file system, which are nearly all, carry none of the state of the others: those are in boxes.
impl<F: Trees> Object<'_, F> {
    pub(crate) async fn getattr(self) -> Result<Attributes> {
        match self.tree {
            Tree::Live => self.fs.getattr(self.inode).await,
            _ => Box::pin(self.getattr_elsewhere()).await,
        }
    }

    pub(crate) async fn lookup(
        self,
        caller: &Credentials,
        name: &[u8],
    ) -> Result<(Self, Attributes)> {
        if self.tree != Tree::Live || self.is_virtual(name) {
            return Box::pin(self.lookup_elsewhere(caller, name)).await;
        }
        let found = self.fs.lookup(caller, self.inode, name).await?;
        Ok((self.at(Tree::Live, found.inode), found))
    }

    pub(crate) async fn access(
        self,
        caller: &Credentials,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        match self.tree {
            Tree::Live => self.fs.access(caller, self.inode, wanted).await,
            _ => Box::pin(self.access_elsewhere(caller, wanted)).await,
        }
    }

    pub(crate) async fn readlink(self, caller: &Credentials) -> Result<(Bytes, Attributes)> {
        match self.tree {
            Tree::Live => self.fs.readlink(caller, self.inode).await,
            _ => Box::pin(self.readlink_elsewhere(caller)).await,
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
            _ => Box::pin(self.read_elsewhere(caller, offset, count)).await,
        }
    }

    /// See [`FileSystem::read_in_memory`]. Other trees are read by [`Object::read`] only.
    pub(crate) fn read_in_memory(
        self,
        caller: &Credentials,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        match self.tree {
            Tree::Live => self.fs.read_in_memory(caller, self.inode, offset, count),
            Tree::List | Tree::Snapshot(_) | Tree::Trash(_) | Tree::Removed => None,
        }
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
        // All of a snapshot and of the trash is stable, and nothing is written to it.
        let change = Change {
            before: None,
            after: Some(Box::pin(self.getattr_elsewhere()).await?),
        };
        Ok((change, Verifier([0; 8])))
    }

    pub(crate) async fn statistics(self) -> Result<Statistics> {
        match self.tree {
            Tree::Live => self.fs.statistics_at(self.inode).await,
            _ => Box::pin(self.statistics_elsewhere()).await,
        }
    }
}
