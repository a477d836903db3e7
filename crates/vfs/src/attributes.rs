//! Attributes of files, as defined by POSIX and by RFC 1813 section 2.5 (`fattr3`).

use forebay_types::Inode;

/// Most names of one object: far more than anyone needs, and far below the point where counters overflow.
pub const LINK_MAX: u32 = 1 << 30;

/// A moment: seconds and nanoseconds (0 to 999,999,999) since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970 (NFSv3 carries the value in 32 unsigned bits).
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Numbers of a device file (`specdata3`); zero for every other kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Attributes of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The object.
    pub inode: Inode,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of space used.
    pub used: u64,
    /// Device numbers.
    pub device: Device,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
}

/// The part of the attributes that weak cache consistency compares (`wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttributes {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
}

impl From<&Attributes> for WccAttributes {
    fn from(attributes: &Attributes) -> Self {
        WccAttributes {
            size: attributes.size,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
        }
    }
}

/// How SETATTR sets a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leaves it unchanged.
    #[default]
    Keep,
    /// Sets it to the server's clock.
    Now,
    /// Sets it to this time.
    To(Timestamp),
}

/// Attributes that SETATTR and the creating operations may set; `None` leaves a value unchanged (or, at
/// creation, sets the default).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, 0 to 0o7777.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

/// Rights that ACCESS asks for, with the bits of RFC 1813 section 3.3.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// Read data, or list a directory.
    pub const READ: Access = Access(0x01);
    /// Look up a name in a directory.
    pub const LOOKUP: Access = Access(0x02);
    /// Rewrite existing data or directory entries.
    pub const MODIFY: Access = Access(0x04);
    /// Write new data or add entries.
    pub const EXTEND: Access = Access(0x08);
    /// Delete an entry of a directory.
    pub const DELETE: Access = Access(0x10);
    /// Execute a file.
    pub const EXECUTE: Access = Access(0x20);

    /// Whether all rights of `other` are in `self`.
    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}
