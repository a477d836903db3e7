//! One difference between two moments.

use forebay_meta::record::Kind;
use forebay_types::Inode;

/// A difference. An object may have several, such as a new name and a new content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Its path from the root of the volume. [`What::Removed`] and [`What::LinkRemoved`] have the path in the old moment, all others
    /// that in the new one. Any bytes.
    pub path: Vec<u8>,
    /// The kind of difference.
    pub what: What,
    /// The object.
    pub inode: Inode,
    /// Whether the object is a directory.
    pub is_directory: bool,
}

/// The kind of a difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The object is new.
    Made,
    /// The object is gone. Its other names are [`What::LinkRemoved`].
    Removed,
    /// Its bytes were written, or its size changed.
    Content,
    /// Its mode, owner or group changed; or its time of modification, and not its content. Times of directories do not count: their
    /// names are changes of their own.
    Attributes,
    /// It has another name, or is in another directory. What is below a directory is not renamed with it.
    Renamed {
        /// Its path in the old moment.
        from: Vec<u8>,
    },
    /// It has one more name.
    LinkAdded,
    /// It has lost one of its names.
    LinkRemoved,
}

/// The kind, for a table of marks.
pub(crate) fn is_directory(kind: Kind) -> bool {
    kind == Kind::Directory
}
