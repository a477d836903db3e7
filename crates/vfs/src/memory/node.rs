//! One object: its attributes and content, under its lock.

use bytes::Bytes;
use forebay_types::Inode;
use parking_lot::{Mutex, MutexGuard};

use super::data::Data;
use super::directory::Directory;
use crate::permission::Owned;
use crate::{Attributes, Change, Error, FileKind, Result, Timestamp, WccAttributes};

pub(super) struct Node {
    pub(super) inode: Inode,
    state: Mutex<State>,
}

pub(super) struct State {
    /// As GETATTR returns them. `nlink` is 0 once the object has no names.
    pub(super) attributes: Attributes,
    pub(super) content: Content,
    /// The verifier of the exclusive CREATE that made it.
    pub(super) create_verifier: Option<[u8; 8]>,
}

pub(super) enum Content {
    File(Data),
    Directory(Directory),
    Symlink(Bytes),
    /// Devices, pipes and sockets, which have attributes only.
    Special,
}

impl Node {
    pub(super) fn new(state: State) -> Node {
        Node {
            inode: state.attributes.inode,
            state: Mutex::new(state),
        }
    }

    /// Locks the state of an object that still exists.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.attributes.nlink == 0 {
            Err(Error::Stale)
        } else {
            Ok(state)
        }
    }

    /// Locks the state of an object whether it exists or not.
    pub(super) fn lock_removed(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    pub(super) fn new(attributes: Attributes, content: Content) -> State {
        State {
            attributes,
            content,
            create_verifier: None,
        }
    }

    /// The attributes for permission checks.
    pub(super) fn owned(&self) -> Owned {
        Owned::from(&self.attributes)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn file(&self) -> Result<&Data> {
        match &self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    pub(super) fn file_mut(&mut self) -> Result<&mut Data> {
        match &mut self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Updates the attributes after a change of the content.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }

    pub(super) fn wcc(&self) -> WccAttributes {
        WccAttributes::from(&self.attributes)
    }

    /// The change of the object since `before`.
    pub(super) fn change_since(&self, before: WccAttributes) -> Change {
        Change {
            before: Some(before),
            after: Some(self.attributes),
        }
    }

    /// A [`Change`] that reports no difference.
    pub(super) fn no_change(&self) -> Change {
        self.change_since(self.wcc())
    }
}
