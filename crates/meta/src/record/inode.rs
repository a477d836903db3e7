//! Files, directories and other objects.

use std::borrow::Cow;

use bytes::Bytes;
use forebay_types::Inode;

use super::{Record, TruncatedBlocks, ValueReader};
use crate::codec::{Reader, put_bytes};
use crate::error::Corrupt;
use crate::key::tag;

/// Of an object that counts in no tree; the first version of the format.
const VERSION: u8 = 1;
/// Of an object that counts in a tree.
const VERSION_IN_TREE: u8 = 2;
/// Of a file with truncated blocks that counts in no tree.
const VERSION_TRUNCATED: u8 = 3;
/// Of a file with truncated blocks that counts in a tree.
const VERSION_TRUNCATED_IN_TREE: u8 = 4;

/// What a file takes, for its attribute `used` and for quotas, is rounded up to this many bytes.
pub const SPACE_UNIT: u64 = 512;

/// Kind of an object. The numbers are those of NFSv3's `ftype3` (RFC 1813 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Block device.
    BlockDevice = 3,
    /// Character device.
    CharDevice = 4,
    /// Symbolic link.
    Symlink = 5,
    /// Socket.
    Socket = 6,
    /// Named pipe.
    Fifo = 7,
}

impl Kind {
    pub(crate) fn read(fields: &mut Reader<'_>) -> Result<Kind, Corrupt> {
        let kinds = [
            Kind::Regular,
            Kind::Directory,
            Kind::BlockDevice,
            Kind::CharDevice,
            Kind::Symlink,
            Kind::Socket,
            Kind::Fifo,
        ];
        let number = fields.u8()?;
        let known = kinds.into_iter().find(|kind| *kind as u8 == number);
        known.ok_or_else(|| fields.corrupt("has an unknown kind of object"))
    }
}

/// A moment: seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, 0 to 999,999,999.
    pub nanos: u32,
}

/// Numbers of a device file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The fields that only a directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The directory that holds it; the root holds itself.
    pub parent: Inode,
    /// The cookie of the next name; it only grows, so no cookie is used twice.
    pub next_cookie: u64,
    /// Number of names in it.
    pub entries: u64,
}

/// The type of an object, with the fields that only this type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Regular file; its bytes are in its block maps.
    Regular,
    /// Directory.
    Directory(Directory),
    /// Symbolic link.
    Symlink {
        /// Where it points, uninterpreted.
        target: Bytes,
    },
    /// Block device.
    BlockDevice(Device),
    /// Character device.
    CharDevice(Device),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// An object of the file system.
///
/// ```text
/// version: 1       kind: 1         has create verifier: 1 (0 or 1)
/// mode: 4          uid: 4          gid: 4              nlink: 4
/// size: 8          used: 8
/// atime: 8 + 4     mtime: 8 + 4    ctime: 8 + 4        (seconds, nanoseconds)
/// create verifier: 8                                   if there is one
/// tree: 8                                              if the version is 2 or 4
/// truncated blocks                                     if the version is 3 or 4
/// then, for a directory:        parent: 8   next cookie: 8   entries: 8
///       for a symbolic link:    length: 4   target
///       for a device:           major: 4    minor: 4
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    /// Kind of the object and the fields that only this kind has.
    pub content: Content,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; 0 in the trash. A directory has two, and one for each directory in it.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of space used.
    pub used: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// The verifier of an exclusive CREATE (RFC 1813 section 3.3.8), by which a repetition of that
    /// call is recognized after a restart too.
    pub create_verifier: Option<[u8; 8]>,
    /// Root directory of the tree with a quota that this object counts in, if it counts in one.
    pub tree: Option<Inode>,
    /// Blocks of a file whose maps in the bucket no longer count and wait for collection. They do not count in `used`.
    pub truncated: TruncatedBlocks,
}

impl Content {
    /// Kind of an object with this content.
    pub fn kind(&self) -> Kind {
        match self {
            Content::Regular => Kind::Regular,
            Content::Directory(_) => Kind::Directory,
            Content::Symlink { .. } => Kind::Symlink,
            Content::BlockDevice(_) => Kind::BlockDevice,
            Content::CharDevice(_) => Kind::CharDevice,
            Content::Fifo => Kind::Fifo,
            Content::Socket => Kind::Socket,
        }
    }
}

impl InodeRecord {
    /// Kind of the object.
    pub fn kind(&self) -> Kind {
        self.content.kind()
    }

    /// Whether it has lost its last name and is kept in the trash. Every other object has links.
    pub fn is_in_trash(&self) -> bool {
        self.nlink == 0
    }

    /// Bytes that quotas count for it in this state, if none of its bytes are dirty.
    pub fn charged_bytes(&self) -> u64 {
        match self.content {
            Content::Regular => round_up(self.used.min(self.size)),
            _ => 0,
        }
    }

    /// The record without the fields that only the bucket's block maps determine, for the log.
    pub fn without_maps(&self) -> Cow<'_, InodeRecord> {
        match self.truncated.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(InodeRecord {
                truncated: TruncatedBlocks::default(),
                ..self.clone()
            }),
        }
    }

    /// The record with the fields that the bucket's block maps determine taken from `published`.
    pub fn with_maps_of(self, published: &InodeRecord) -> InodeRecord {
        InodeRecord {
            used: published.used,
            truncated: published.truncated.clone(),
            ..self
        }
    }

    /// The device numbers; zero if the object is not a device.
    pub fn device(&self) -> Device {
        match self.content {
            Content::BlockDevice(device) | Content::CharDevice(device) => device,
            _ => Device::default(),
        }
    }

    /// The fields that only directories have.
    pub fn directory(&self) -> Option<&Directory> {
        match &self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// The fields that only directories have, mutable.
    pub fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Some(directory),
            _ => None,
        }
    }
}

impl Record for InodeRecord {
    const TAG: u8 = tag::INODE;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(128);
        let version = match (self.tree, self.truncated.is_empty()) {
            (None, true) => VERSION,
            (Some(_), true) => VERSION_IN_TREE,
            (None, false) => VERSION_TRUNCATED,
            (Some(_), false) => VERSION_TRUNCATED_IN_TREE,
        };
        out.extend([version, self.kind() as u8]);
        out.push(u8::from(self.create_verifier.is_some()));
        for number in [self.mode, self.uid, self.gid, self.nlink] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.size.to_le_bytes());
        out.extend(self.used.to_le_bytes());
        for time in [self.atime, self.mtime, self.ctime] {
            out.extend(time.seconds.to_le_bytes());
            out.extend(time.nanos.to_le_bytes());
        }
        out.extend(self.create_verifier.iter().flatten());
        out.extend(self.tree.iter().flat_map(|tree| tree.0.to_le_bytes()));
        if !self.truncated.is_empty() {
            self.truncated.encode_into(&mut out);
        }
        match &self.content {
            Content::Directory(directory) => {
                out.extend(directory.parent.0.to_le_bytes());
                out.extend(directory.next_cookie.to_le_bytes());
                out.extend(directory.entries.to_le_bytes());
            }
            Content::Symlink { target } => put_bytes(&mut out, target),
            Content::BlockDevice(device) | Content::CharDevice(device) => {
                out.extend(device.major.to_le_bytes());
                out.extend(device.minor.to_le_bytes());
            }
            Content::Regular | Content::Fifo | Content::Socket => {}
        }
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let version = fields.version_of(&[
            VERSION,
            VERSION_IN_TREE,
            VERSION_TRUNCATED,
            VERSION_TRUNCATED_IN_TREE,
        ])?;
        let in_tree = [VERSION_IN_TREE, VERSION_TRUNCATED_IN_TREE].contains(&version);
        let is_truncated = [VERSION_TRUNCATED, VERSION_TRUNCATED_IN_TREE].contains(&version);
        let kind = Kind::read(fields)?;
        let has_verifier = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(fields.corrupt("has a flag that is neither set nor unset")),
        };
        Ok(InodeRecord {
            mode: fields.u32()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            nlink: fields.u32()?,
            size: fields.u64()?,
            used: fields.u64()?,
            atime: read_time(fields)?,
            mtime: read_time(fields)?,
            ctime: read_time(fields)?,
            create_verifier: match has_verifier {
                true => Some(fields.array()?),
                false => None,
            },
            tree: match in_tree {
                true => Some(Inode(fields.u64()?)),
                false => None,
            },
            truncated: match is_truncated {
                true => TruncatedBlocks::read(fields)?,
                false => TruncatedBlocks::default(),
            },
            content: read_content(kind, fields)?,
        })
    }
}

/// Rounds bytes up to a multiple of [`SPACE_UNIT`].
pub fn round_up(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(SPACE_UNIT)
        .unwrap_or(u64::MAX)
}

fn read_content(kind: Kind, fields: &mut Reader<'_>) -> Result<Content, Corrupt> {
    Ok(match kind {
        Kind::Regular => Content::Regular,
        Kind::Fifo => Content::Fifo,
        Kind::Socket => Content::Socket,
        Kind::Directory => Content::Directory(Directory {
            parent: Inode(fields.u64()?),
            next_cookie: fields.u64()?,
            entries: fields.u64()?,
        }),
        Kind::Symlink => Content::Symlink {
            target: fields.bytes()?,
        },
        Kind::BlockDevice => Content::BlockDevice(read_device(fields)?),
        Kind::CharDevice => Content::CharDevice(read_device(fields)?),
    })
}

fn read_device(fields: &mut Reader<'_>) -> Result<Device, Corrupt> {
    Ok(Device {
        major: fields.u32()?,
        minor: fields.u32()?,
    })
}

fn read_time(fields: &mut Reader<'_>) -> Result<Timestamp, Corrupt> {
    let time = Timestamp {
        seconds: fields.i64()?,
        nanos: fields.u32()?,
    };
    if time.nanos >= 1_000_000_000 {
        return Err(fields.corrupt("has a time with more than a second of nanoseconds"));
    }
    Ok(time)
}
