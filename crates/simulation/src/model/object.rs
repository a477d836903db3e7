//! An object of the model.

use std::collections::BTreeMap;

use forebay_types::Inode;
use forebay_vfs::{Attributes, Device, FileKind, Timestamp};

use super::Content;

/// Kind of an object, with the fields of that kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A file and its bytes.
    Regular(Content),
    /// A directory.
    Directory {
        /// The directory that holds it.
        parent: u64,
        /// The next new cookie.
        next_cookie: u64,
        /// Names and their inodes, by cookie.
        entries: BTreeMap<u64, (Vec<u8>, u64)>,
    },
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// Anything else.
    Special(FileKind, Device),
}

/// An object of the file system.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as in `forebay_vfs::Attributes`")]
pub struct Object {
    pub body: Body,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// The verifier of the CREATE that made it.
    pub verifier: Option<[u8; 8]>,
    /// Its content was restored, and may be lost in a crash.
    pub grafted: Option<Grafted>,
}

/// A restored content, which the log does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Grafted {
    /// End of the record; what is published from there on has the content.
    pub end: u64,
    /// The content without it.
    pub without: Content,
}

impl Object {
    /// A new object that belongs to root.
    pub fn new(body: Body, mode: u32, now: Timestamp) -> Object {
        let nlink = if matches!(body, Body::Directory { .. }) {
            2
        } else {
            1
        };
        Object {
            body,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            atime: now,
            mtime: now,
            ctime: now,
            verifier: None,
            grafted: None,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory { .. } => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Whether it is a directory with names in it.
    pub fn is_full_directory(&self) -> bool {
        matches!(&self.body, Body::Directory { entries, .. } if !entries.is_empty())
    }

    pub(super) fn attributes(&self, inode: u64) -> Attributes {
        let (size, device) = match &self.body {
            Body::Regular(content) => (content.size(), Device::default()),
            Body::Directory { .. } => (4096, Device::default()),
            Body::Symlink(target) => (target.len() as u64, Device::default()),
            Body::Special(_, device) => (0, *device),
        };
        Attributes {
            inode: Inode(inode),
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size,
            used: 0,
            device,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }

    /// Changes the content of a file, also the one that a crash would leave.
    pub(super) fn change_content(&mut self, change: impl Fn(&mut Content)) {
        if let Body::Regular(content) = &mut self.body {
            change(content);
        }
        if let Some(grafted) = &mut self.grafted {
            change(&mut grafted.without);
        }
    }

    pub(super) fn changed(&mut self, now: Timestamp) {
        (self.mtime, self.ctime) = (now, now);
    }
}
