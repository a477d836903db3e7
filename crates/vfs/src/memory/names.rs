//! Looking up, listing, making, linking and removing names.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::Inode;

use super::attributes::MAX_FILE_SIZE;
use super::data::Data;
use super::directory::{DOT, DOT_DOT, Directory, check_name, check_new_name, check_old_name};
use super::node::{Content, Node, State};
use super::{MemoryFileSystem, now};
use crate::{
    Attributes, Change, CreateMode, Created, Credentials, Device, DirectoryEntry, Error, FileKind,
    Listing, NewNode, Result, SetAttributes, SetTime, Timestamp, permission,
};

/// Longest target of a symbolic link, in bytes.
const TARGET_MAX: usize = 4096;

impl MemoryFileSystem {
    pub(super) fn look_up(
        &self,
        caller: &Credentials,
        inode: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        check_name(name)?;
        let node = self.table.find(inode)?;
        loop {
            let found = {
                let state = node.lock()?;
                let directory = state.directory()?;
                permission::may_search(state.owned(), caller)?;
                match name {
                    b"." => return Ok(state.attributes),
                    b".." if directory.parent == inode => return Ok(state.attributes),
                    b".." => self.table.find(directory.parent)?,
                    _ => directory.find(name).ok_or(Error::NotFound)?.clone(),
                }
            };
            // Removed between lookup and lock: then the name is removed too, or belongs to another object by now.
            if let Ok(state) = found.lock() {
                return Ok(state.attributes);
            }
        }
    }

    pub(super) fn list(
        &self,
        caller: &Credentials,
        inode: Inode,
        cookie: u64,
        max_entries: usize,
        with_attributes: bool,
    ) -> Result<Listing> {
        let node = self.table.find(inode)?;
        let (own, found, end, may_search) = {
            let state = node.lock()?;
            let directory = state.directory()?;
            permission::may_list(state.owned(), caller)?;
            let may_search = permission::may_search(state.owned(), caller).is_ok();
            let parent = match directory.parent {
                parent if parent == inode => node.clone(),
                parent => self.table.find(parent)?,
            };
            let dots = [
                (DOT, Bytes::from_static(b"."), node.clone()),
                (DOT_DOT, Bytes::from_static(b".."), parent),
            ];
            let named = directory
                .after(cookie.max(DOT_DOT))
                .map(|(cookie, name, node)| (cookie, name.clone(), node.clone()));
            let dots = dots.into_iter().filter(|(own, ..)| *own > cookie);
            let mut all = dots.chain(named);
            let found: Vec<_> = all.by_ref().take(max_entries.max(1)).collect();
            let end = all.next().is_none();
            (state.attributes, found, end, may_search)
        };
        // A caller that may only read the names must not see the attributes of the objects.
        let with_attributes = with_attributes && may_search;
        let attributes = |node: &Node| Some(node.lock().ok()?.attributes);
        let entries = found
            .into_iter()
            .map(|(cookie, name, node)| DirectoryEntry {
                cookie,
                inode: node.inode,
                name,
                attributes: with_attributes.then(|| attributes(&node)).flatten(),
            });
        Ok(Listing {
            directory: own,
            entries: entries.collect(),
            end,
        })
    }

    pub(super) fn create_file(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<Created> {
        check_new_name(name)?;
        let parent = self.table.find(directory)?;
        let naming = self.naming.lock();
        let mut state = parent.lock()?;
        let existing = state.directory()?.find(name).cloned();
        permission::may_search(state.owned(), caller)?;
        if let Some(existing) = existing {
            let directory = state.no_change();
            drop((state, naming));
            let attributes = self.open_existing(caller, &existing, mode)?;
            return Ok(Created {
                attributes,
                directory,
            });
        }
        let (set, create_verifier) = match mode {
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => (*set, None),
            CreateMode::Exclusive(verifier) => (SetAttributes::default(), Some(*verifier)),
        };
        let new = New {
            kind: FileKind::Regular,
            content: Content::File(Data::default()),
            device: Device::default(),
            create_verifier,
        };
        self.enter(caller, &mut state, name, new, &set)
    }

    /// CREATE of an existing name.
    fn open_existing(
        &self,
        caller: &Credentials,
        node: &Node,
        mode: &CreateMode,
    ) -> Result<Attributes> {
        let (attributes, made_with) = {
            let state = node.lock()?;
            (state.attributes, state.create_verifier)
        };
        match mode {
            CreateMode::Guarded(_) => Err(Error::Exists),
            CreateMode::Exclusive(verifier) if made_with == Some(*verifier) => Ok(attributes),
            CreateMode::Exclusive(_) => Err(Error::Exists),
            CreateMode::Unchecked(_) if attributes.kind != FileKind::Regular => Err(Error::Exists),
            CreateMode::Unchecked(set) => {
                if set.size.is_some() {
                    let only_size = SetAttributes {
                        size: set.size,
                        ..SetAttributes::default()
                    };
                    self.set_attributes(caller, node.inode, &only_size, None)?;
                }
                Ok(node.lock()?.attributes)
            }
        }
    }

    pub(super) fn make_node(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<Created> {
        check_new_name(name)?;
        let new = New::of(node, directory)?;
        let parent = self.table.find(directory)?;
        let _naming = self.naming.lock();
        let mut state = parent.lock()?;
        let existing = state.directory()?.find(name);
        permission::may_search(state.owned(), caller)?;
        if existing.is_some() {
            return Err(Error::Exists);
        }
        let set = SetAttributes { size: None, ..*set };
        self.enter(caller, &mut state, name, new, &set)
    }

    /// Creates an object under a free name.
    fn enter(
        &self,
        caller: &Credentials,
        parent: &mut State,
        name: &[u8],
        new: New,
        set: &SetAttributes,
    ) -> Result<Created> {
        permission::may_change_names(parent.owned(), caller)?;
        let (before, now) = (parent.wcc(), now());
        let state = new.state(self.table.new_inode(), caller, set, &parent.attributes, now)?;
        let attributes = state.attributes;
        let node = Arc::new(Node::new(state));
        count_in(parent, attributes.kind)?;
        parent.directory_mut()?.insert(name, node.clone(), None);
        parent.touch(now);
        self.table.insert(node);
        Ok(Created {
            attributes,
            directory: parent.change_since(before),
        })
    }

    pub(super) fn add_name(
        &self,
        caller: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<(Attributes, Change)> {
        check_new_name(name)?;
        let node = self.table.find(inode)?;
        let parent = self.table.find(directory)?;
        let _naming = self.naming.lock();
        // Locked separately: `parent` may be the same object.
        if node.lock()?.is_directory() {
            return Err(Error::NotOwner);
        }
        let mut parent = parent.lock()?;
        let existing = parent.directory()?.find(name);
        permission::may_search(parent.owned(), caller)?;
        if existing.is_some() {
            return Err(Error::Exists);
        }
        permission::may_change_names(parent.owned(), caller)?;
        let mut state = node.lock()?;
        if state.attributes.nlink >= crate::LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        let (before, now) = (parent.wcc(), now());
        state.attributes.nlink += 1;
        state.attributes.ctime = now;
        parent.directory_mut()?.insert(name, node.clone(), None);
        parent.touch(now);
        Ok((state.attributes, parent.change_since(before)))
    }

    /// Removes the name of a directory (`of_directory`) or of any other object.
    pub(super) fn remove_name(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        of_directory: bool,
    ) -> Result<Change> {
        if of_directory && name == b".." {
            // The directory contains at least itself (RFC 1813, section 3.3.13).
            return Err(Error::Exists);
        }
        check_old_name(name)?;
        let parent = self.table.find(directory)?;
        let _naming = self.naming.lock();
        let mut parent = parent.lock()?;
        let found = parent.directory()?.find(name).cloned();
        permission::may_search(parent.owned(), caller)?;
        let node = found.ok_or(Error::NotFound)?;
        let mut child = node.lock()?;
        permission::may_unlink(parent.owned(), child.owned(), caller)?;
        match (child.is_directory(), of_directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            (true, true) | (false, false) => {}
        }
        check_removable(&child)?;
        let (before, now) = (parent.wcc(), now());
        parent.directory_mut()?.remove(name);
        count_out(&mut parent, child.attributes.kind);
        parent.touch(now);
        let last = (directory, name);
        self.drop_name(&node, &mut child, now, (caller, last));
        Ok(parent.change_since(before))
    }

    /// Removes one name from the object's link count; it may be the last.
    pub(super) fn drop_name(
        &self,
        node: &Arc<Node>,
        state: &mut State,
        now: Timestamp,
        (caller, (from, name)): (&Credentials, (Inode, &[u8])),
    ) {
        let directory = state.is_directory();
        let kept = MemoryFileSystem::is_kept(caller, state);
        let attributes = &mut state.attributes;
        attributes.ctime = now;
        if !directory && attributes.nlink > 1 {
            attributes.nlink -= 1;
            return;
        }
        attributes.nlink = 0;
        self.table.remove(attributes.inode);
        if kept {
            return self.keep(node.clone(), from, name);
        }
        if let Content::File(data) = &mut state.content {
            self.space.give(data.allocated());
            *data = Data::default();
        }
    }
}

/// A directory can be removed only when it is empty.
pub(super) fn check_removable(state: &State) -> Result<()> {
    match &state.content {
        Content::Directory(directory) if !directory.is_empty() => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// Counts the `..` of a directory that is added to `parent`.
pub(super) fn count_in(parent: &mut State, child: FileKind) -> Result<()> {
    if child == FileKind::Directory {
        if parent.attributes.nlink >= crate::LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        parent.attributes.nlink += 1;
    }
    Ok(())
}

/// Counts the `..` of a directory that is removed from `parent`.
pub(super) fn count_out(parent: &mut State, child: FileKind) {
    if child == FileKind::Directory {
        parent.attributes.nlink -= 1;
    }
}

/// An object to be created.
struct New {
    kind: FileKind,
    content: Content,
    device: Device,
    create_verifier: Option<[u8; 8]>,
}

impl New {
    fn of(node: NewNode<'_>, parent: Inode) -> Result<New> {
        let none = Device::default();
        let (kind, content, device) = match node {
            NewNode::Directory => {
                let content = Content::Directory(Directory::new(parent));
                (FileKind::Directory, content, none)
            }
            NewNode::Symlink([]) => return Err(Error::Invalid),
            NewNode::Symlink(target) if target.len() > TARGET_MAX => {
                return Err(Error::NameTooLong);
            }
            NewNode::Symlink(target) => {
                let content = Content::Symlink(Bytes::copy_from_slice(target));
                (FileKind::Symlink, content, none)
            }
            NewNode::Fifo => (FileKind::Fifo, Content::Special, none),
            NewNode::Socket => (FileKind::Socket, Content::Special, none),
            NewNode::BlockDevice(device) => (FileKind::BlockDevice, Content::Special, device),
            NewNode::CharDevice(device) => (FileKind::CharDevice, Content::Special, device),
        };
        Ok(New {
            kind,
            content,
            device,
            create_verifier: None,
        })
    }

    fn state(
        self,
        inode: Inode,
        caller: &Credentials,
        set: &SetAttributes,
        parent: &Attributes,
        now: Timestamp,
    ) -> Result<State> {
        let owned = permission::of_new(parent.into(), self.kind, caller, set)?;
        let (nlink, size) = match &self.content {
            Content::Directory(_) => (2, 0),
            Content::Symlink(target) => (1, target.len() as u64),
            Content::File(_) | Content::Special => (1, set.size.unwrap_or(0)),
        };
        if size > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        let time = |set: SetTime| match set {
            SetTime::To(moment) => moment,
            SetTime::Keep | SetTime::Now => now,
        };
        let attributes = Attributes {
            inode,
            kind: self.kind,
            mode: owned.mode,
            nlink,
            uid: owned.uid,
            gid: owned.gid,
            size,
            used: 0,
            device: self.device,
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: now,
        };
        Ok(State {
            create_verifier: self.create_verifier,
            ..State::new(attributes, self.content)
        })
    }
}
