//! The trash of a file system in memory: regular files whose last names callers with a time for the trash removed. Nothing empties it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{ByteRange, Inode};

use super::node::{Node, State};
use super::{MemoryFileSystem, now};
use crate::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, FileKind, ReadReply, Result,
    Timestamp, Trash, permission, trash_name,
};

/// The files, by number.
#[derive(Default)]
pub(super) struct Removed {
    changed: Timestamp,
    files: BTreeMap<Inode, File>,
}

#[derive(Clone)]
struct File {
    node: Arc<Node>,
    directory: Inode,
    name: Bytes,
}

impl Removed {
    fn change(&mut self) {
        // A nanosecond later at least: clients list it again.
        let last = self.changed;
        let later = Timestamp {
            nanos: last.nanos + 1,
            ..last
        };
        self.changed = now().max(later);
    }
}

impl File {
    fn attributes(&self) -> Attributes {
        Attributes {
            nlink: 1,
            ..self.node.lock_removed().attributes
        }
    }

    fn is_seen_by(&self, caller: &Credentials) -> bool {
        permission::may_see_removed(self.node.lock_removed().owned(), caller).is_ok()
    }
}

impl MemoryFileSystem {
    /// Whether the object that loses its last name goes to the trash.
    pub(super) fn is_kept(caller: &Credentials, state: &State) -> bool {
        caller.trash > 0
            && state.attributes.kind == FileKind::Regular
            && state.attributes.nlink <= 1
    }

    /// Puts a file without names into the trash.
    pub(super) fn keep(&self, node: Arc<Node>, directory: Inode, name: &[u8]) {
        let mut removed = self.removed.lock();
        let name = Bytes::copy_from_slice(name);
        let file = File {
            node,
            directory,
            name,
        };
        removed.files.insert(file.node.inode, file);
        removed.change();
    }

    fn removed(&self, inode: Inode) -> Result<File> {
        let removed = self.removed.lock();
        removed.files.get(&inode).cloned().ok_or(Error::Stale)
    }

    /// The file with this name, if the caller sees it.
    fn removed_named(&self, caller: &Credentials, below: Inode, name: &[u8]) -> Result<File> {
        let inode = trash_name::number(name).ok_or(Error::NotFound)?;
        let file = self.removed(inode).map_err(|_| Error::NotFound)?;
        let is_it = trash_name::of(&file.name, inode) == name;
        match is_it && file.is_seen_by(caller) && self.was_below(&file, below) {
            true => Ok(file),
            false => Err(Error::NotFound),
        }
    }

    fn was_below(&self, file: &File, below: Inode) -> bool {
        let mut at = file.directory;
        loop {
            if below == Inode::ROOT || at == below {
                return true;
            }
            let parent = || {
                let node = self.table.find(at)?;
                let state = node.lock()?;
                Ok::<_, Error>(state.directory()?.parent)
            };
            match parent() {
                Ok(parent) if at != Inode::ROOT => at = parent,
                _ => return false,
            }
        }
    }
}

impl Trash for MemoryFileSystem {
    fn trash_changed(&self) -> Timestamp {
        self.removed.lock().changed
    }

    async fn getattr_removed(&self, inode: Inode) -> Result<Attributes> {
        Ok(self.removed(inode)?.attributes())
    }

    async fn lookup_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        Ok(self.removed_named(caller, below, name)?.attributes())
    }

    async fn access_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let attributes = self.removed(inode)?.attributes();
        Ok((
            permission::access_removed((&attributes).into(), caller, wanted),
            attributes,
        ))
    }

    async fn read_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let file = self.removed(inode)?;
        let attributes = file.attributes();
        permission::may_see_removed((&attributes).into(), caller)?;
        permission::may_read((&attributes).into(), caller)?;
        let wanted = ByteRange::at(offset, u64::from(count));
        let state = file.node.lock_removed();
        let data = state
            .file()?
            .read(wanted.intersect(ByteRange::new(0, attributes.size)));
        Ok(ReadReply {
            data,
            eof: wanted.end >= attributes.size,
            attributes,
        })
    }

    async fn list_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        after: Inode,
        max: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool)> {
        let files = self.removed.lock().files.clone();
        let mut files = files
            .into_iter()
            .filter(|(inode, file)| {
                *inode > after && file.is_seen_by(caller) && self.was_below(file, below)
            })
            .map(|(inode, file)| DirectoryEntry {
                cookie: inode.0,
                inode,
                name: trash_name::of(&file.name, inode),
                attributes: Some(file.attributes()),
            });
        let found = files.by_ref().take(max.max(1)).collect();
        Ok((found, files.next().is_none()))
    }

    async fn delete_removed(&self, caller: &Credentials, below: Inode, name: &[u8]) -> Result<()> {
        let file = self.removed_named(caller, below, name)?;
        let mut removed = self.removed.lock();
        removed
            .files
            .remove(&file.node.inode)
            .ok_or(Error::NotFound)?;
        removed.change();
        self.space
            .give(file.node.lock_removed().file()?.allocated());
        Ok(())
    }

    async fn bring_back(
        &self,
        caller: &Credentials,
        (below, from): (Inode, &[u8]),
        (directory, name): (Inode, &[u8]),
    ) -> Result<Change> {
        super::directory::check_new_name(name)?;
        let file = self.removed_named(caller, below, from)?;
        let parent = self.table.find(directory)?;
        let _naming = self.naming.lock();
        let mut parent = parent.lock()?;
        permission::may_search(parent.owned(), caller)?;
        if parent.directory()?.find(name).is_some() {
            return Err(Error::Exists);
        }
        permission::may_change_names(parent.owned(), caller)?;
        let mut removed = self.removed.lock();
        let taken = removed.files.remove(&file.node.inode);
        taken.ok_or(Error::NotFound)?;
        removed.change();
        let (before, now) = (parent.wcc(), now());
        let mut state = file.node.lock_removed();
        state.attributes.nlink = 1;
        state.attributes.ctime = now;
        drop(state);
        self.table.insert(file.node.clone());
        parent.directory_mut()?.insert(name, file.node, None);
        parent.touch(now);
        Ok(parent.change_since(before))
    }
}
