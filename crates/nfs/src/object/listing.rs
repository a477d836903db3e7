//! Listing directories of all trees.

use bytes::Bytes;
use forebay_types::SnapshotId;
use forebay_vfs::{
    Access, Credentials, DirectoryEntry, Error, FileKind, FileSystem, Listing, Result, Trees,
};

use super::{LIST_NAME, Object, TRASH_NAME};
use crate::VirtualDirectory;
use crate::handle::Tree;

/// Cookie of `.snapshot` in a listing that shows it: behind all others, and positive for clients that take it for signed.
const LIST_COOKIE: u64 = u64::MAX >> 1;
/// Cookie of `.trash`, likewise.
const TRASH_COOKIE: u64 = LIST_COOKIE - 1;

/// Cookie of `..`; that of a snapshot in [`Tree::List`] is its number on top of that, and that of a file in the trash its inode.
pub(super) const DOT_DOT_COOKIE: u64 = 2;

/// The directories that a listing has beside those of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedBeside {
    snapshots: bool,
    trash: bool,
    /// `.trash` is there and not listed. An object of the file system with that name is not, either: the name leads elsewhere.
    hides_trash: bool,
}

impl<'a, F> Object<'a, F> {
    /// The directories that the listing of the export's own directory has beside those of the file system.
    pub(crate) fn listed_in_top(self) -> ListedBeside {
        ListedBeside {
            snapshots: self.shows.snapshots == VirtualDirectory::Visible,
            trash: self.shows.trash == VirtualDirectory::Visible,
            hides_trash: self.shows.trash == VirtualDirectory::Hidden,
        }
    }

    /// The object of an entry of this directory, in a listing for the caller.
    pub(crate) fn entry(self, entry: &DirectoryEntry, caller: &Credentials) -> Object<'a, F> {
        let tree = match self.tree {
            Tree::Live if entry.cookie == LIST_COOKIE => Tree::List,
            Tree::Live if entry.cookie == TRASH_COOKIE => Tree::Trash(caller.uid),
            Tree::List | Tree::Trash(_) if entry.cookie == DOT_DOT_COOKIE => Tree::Live,
            Tree::List if entry.cookie > DOT_DOT_COOKIE => {
                Tree::Snapshot(SnapshotId(entry.cookie - DOT_DOT_COOKIE))
            }
            Tree::Trash(_) if entry.cookie > DOT_DOT_COOKIE => Tree::Removed,
            tree => tree,
        };
        self.at(tree, entry.inode)
    }
}

impl<F: Trees> Object<'_, F> {
    /// `beside` are the directories that the listing of a live directory has at its end.
    pub(crate) async fn readdir(
        self,
        caller: &Credentials,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
        beside: ListedBeside,
    ) -> Result<Listing> {
        match self.tree {
            Tree::Live if beside != ListedBeside::default() => {
                self.readdir_with(caller, cookie, max_entries, with_attributes, beside)
                    .await
            }
            Tree::Live => {
                let fs = self.fs;
                fs.readdir(caller, self.inode, cookie, max_entries, with_attributes)
                    .await
            }
            Tree::List => self.readdir_list(caller, cookie, max_entries).await,
            Tree::Trash(uid) => self.readdir_trash(caller, uid, cookie, max_entries).await,
            Tree::Removed => Err(Error::NotDirectory),
            Tree::Snapshot(id) => {
                let image = self.fs.snapshot(id).await?;
                let listing =
                    image.readdir(caller, self.inode, cookie, max_entries, with_attributes);
                self.outcome(id, listing.await)
            }
        }
    }

    async fn readdir_with(
        self,
        caller: &Credentials,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
        beside: ListedBeside,
    ) -> Result<Listing> {
        // Names that mean these directories here do not reach entries of the file system.
        let top = self.as_top();
        let mut from = cookie;
        let mut listing = loop {
            let mut listing = self
                .fs
                .readdir(caller, self.inode, from, max_entries, with_attributes)
                .await?;
            let last = listing.entries.last().map(|entry| entry.cookie);
            listing.entries.retain(|entry| !top.is_virtual(&entry.name));
            match last {
                // A part without entries that is not the last one would confuse clients.
                Some(last) if listing.entries.is_empty() && !listing.end => from = last,
                _ => break listing,
            }
        };
        if cookie >= TRASH_COOKIE {
            listing.entries.clear();
            listing.end = true;
        }
        if !listing.end {
            return Ok(listing);
        }
        let directory = listing.directory;
        let trash = (TRASH_COOKIE, TRASH_NAME, self.trash(directory));
        let list = (LIST_COOKIE, LIST_NAME, self.list(directory));
        let all = [(beside.trash, trash), (beside.snapshots, list)];
        let rest = all.into_iter().filter(|(is_listed, _)| *is_listed);
        for (_, (own, name, attributes)) in rest.filter(|(_, (own, ..))| *own > cookie) {
            if listing.entries.len() >= max_entries.max(1) {
                listing.end = false;
                break;
            }
            listing.entries.push(DirectoryEntry {
                cookie: own,
                inode: self.inode,
                name: Bytes::from_static(name),
                attributes: with_attributes.then_some(attributes),
            });
        }
        Ok(listing)
    }

    /// `.` and `..` of a directory that the file system does not have. Attributes of the entries are not at hand here, and hardly
    /// anybody wants them.
    pub(super) fn dots(self, cookie: u64, max_entries: usize) -> Vec<DirectoryEntry> {
        let dots: [(u64, &'static [u8]); 2] = [(1, b"."), (DOT_DOT_COOKIE, b"..")];
        let dots = dots.into_iter().filter(|(own, _)| *own > cookie);
        dots.map(|(cookie, name)| DirectoryEntry {
            cookie,
            inode: self.inode,
            name: Bytes::from_static(name),
            attributes: None,
        })
        .take(max_entries.max(1))
        .collect()
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
        let mut entries = self.dots(cookie, max_entries);
        let room = max_entries.max(1) - entries.len();
        let after = cookie.saturating_sub(DOT_DOT_COOKIE);
        // One more than wanted shows whether these are the last.
        let mut found = self.fs.snapshots_after(after, room.saturating_add(1));
        let end = found.len() <= room;
        found.truncate(room);
        entries.extend(found.into_iter().map(|(id, name)| DirectoryEntry {
            cookie: DOT_DOT_COOKIE + id.0,
            inode: self.inode,
            name,
            // Attributes of a snapshot's directory are in the bucket, and most of them nobody wants.
            attributes: None,
        }));
        Ok(Listing {
            directory: self.list(directory),
            entries,
            end,
        })
    }
}
