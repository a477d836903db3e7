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
    /// Always as GETATTR gives them. `nlink` is 0 once the object has no name any more.
    pub(super) attributes: Attributes,
    pub(super) content: Content,
    /// What an exclusive CREATE made it with.
    pub(super) create_verifier: Option<[u8; 8]>,
}

pub(super) enum Content {
    File(Data),
    Directory(Directory),
    Symlink(Bytes),
    /// Devices, pipes and sockets: nothing but attributes.
    Special,
}

impl Node {
    pub(super) fn new(state: State) -> Node {
        Node {
            inode: state.attributes.inode,
            state: Mutex::new(state),
        }
    }

    /// The state of an object that is still there.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.attributes.nlink == 0 {
            Err(Error::Stale)
        } else {
            Ok(state)
        }
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

    /// What permission checks look at.
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

    /// The content changed, and with it the attributes.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }

    pub(super) fn wcc(&self) -> WccAttributes {
        WccAttributes::from(&self.attributes)
    }

    /// What became of the object since it was `before`.
    pub(super) fn change_since(&self, before: WccAttributes) -> Change {
        Change {
            before: Some(before),
            after: Some(self.attributes),
        }
    }

    /// Nothing became of it.
    pub(super) fn no_change(&self) -> Change {
        self.change_since(self.wcc())
    }
}
