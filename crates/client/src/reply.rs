//! Replies: decodes the results, or the reason why the call failed.

use std::fmt;

use crate::xdr::{Decoder, Malformed};
use crate::{Handle, Stable, Verifier};

/// A status other than NFS3_OK (`nfsstat3`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// There is no such name.
    pub const NOENT: Status = Status(2);
    /// The bytes cannot be read or written.
    pub const IO: Status = Status(5);
    /// The name exists.
    pub const EXIST: Status = Status(17);
    /// The handle's object does not exist any more.
    pub const STALE: Status = Status(70);
    /// Ask again later.
    pub const JUKEBOX: Status = Status(10008);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "PERM",
            2 => "NOENT",
            5 => "IO",
            13 => "ACCES",
            17 => "EXIST",
            20 => "NOTDIR",
            21 => "ISDIR",
            22 => "INVAL",
            27 => "FBIG",
            28 => "NOSPC",
            66 => "NOTEMPTY",
            70 => "STALE",
            10001 => "BADHANDLE",
            10006 => "SERVERFAULT",
            10008 => "JUKEBOX",
            _ => return write!(f, "status {}", self.0),
        };
        write!(f, "NFS3ERR_{name}")
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The status of the reply.
    #[error("{0}")]
    Status(Status),
    /// The server breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Seconds and nanoseconds.
pub type Time = (u32, u32);

/// Kind of an object (`ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Special,
}

/// `fattr3`, without the fields that no test here needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Inode number.
    pub fileid: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

/// An object that a call has found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, if the server returned them.
    pub attributes: Option<Attributes>,
}

/// Result of a WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes written.
    pub count: u32,
    /// Their durability.
    pub stable: Stable,
    /// The write verifier, for unstable bytes.
    pub verifier: Verifier,
    /// The file's attributes afterwards, if the server returned them.
    pub attributes: Option<Attributes>,
}

/// Results of FSSTAT, without the fields that no test here needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What is free of it.
    pub free_bytes: u64,
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Inode number.
    pub fileid: u64,
    /// Position from which a listing continues after this entry.
    pub cookie: u64,
    /// The object, if the server gave handle and attributes.
    pub object: Option<(Handle, Attributes)>,
}

/// A part of a directory listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their cookies.
    pub entries: Vec<DirectoryEntry>,
    /// Whether that was the end.
    pub eof: bool,
}

/// The results of a call that was executed, beginning with its status.
#[derive(Clone, Debug)]
pub struct Reply(pub(crate) Decoder);

impl Reply {
    /// Decodes the header of a reply and returns its transaction id.
    pub(crate) fn parse(record: Vec<u8>) -> Result<(u32, Reply), Malformed> {
        let mut decoder = Decoder::new(record);
        let xid = decoder.u32()?;
        if decoder.u32()? != 1 {
            return Err(Malformed("it is no reply"));
        }
        if decoder.u32()? != 0 {
            return Err(Malformed("the call was denied"));
        }
        decoder.u32()?;
        decoder.opaque()?;
        if decoder.u32()? != 0 {
            return Err(Malformed("the call was not executed"));
        }
        Ok((xid, Reply(decoder)))
    }

    fn checked(mut self) -> Result<Decoder, Failure> {
        match self.0.u32()? {
            0 => Ok(self.0),
            status => Err(Failure::Status(Status(status))),
        }
    }

    /// The results as received, for procedures without a function here.
    pub fn results(self) -> Decoder {
        self.0
    }

    /// The result of a call of which only the success matters.
    pub fn done(self) -> Result<(), Failure> {
        self.checked().map(drop)
    }

    /// The results of MNT.
    pub fn mounted(self) -> Result<Handle, Failure> {
        Ok(Handle(self.checked()?.opaque()?))
    }

    /// The results of GETATTR.
    pub fn attributes(self) -> Result<Attributes, Failure> {
        Ok(attributes(&mut self.checked()?)?)
    }

    /// The results of SETATTR: the attributes afterwards.
    pub fn changed(self) -> Result<Option<Attributes>, Failure> {
        Ok(change(&mut self.checked()?)?)
    }

    /// The results of LOOKUP.
    pub fn found(self) -> Result<Found, Failure> {
        let mut decoder = self.checked()?;
        let handle = Handle(decoder.opaque()?);
        let attributes = optional_attributes(&mut decoder)?;
        Ok(Found { handle, attributes })
    }

    /// The results of CREATE, MKDIR and SYMLINK, which have to contain a handle.
    pub fn made(self) -> Result<Found, Failure> {
        let mut decoder = self.checked()?;
        if !decoder.bool()? {
            return Err(Malformed("no handle of the new object").into());
        }
        let handle = Handle(decoder.opaque()?);
        let attributes = optional_attributes(&mut decoder)?;
        Ok(Found { handle, attributes })
    }

    /// The results of READLINK.
    pub fn target(self) -> Result<Vec<u8>, Failure> {
        let mut decoder = self.checked()?;
        optional_attributes(&mut decoder)?;
        Ok(decoder.opaque()?)
    }

    /// The results of READ: the bytes, and whether they reach the end of the file.
    pub fn data(self) -> Result<(Vec<u8>, bool), Failure> {
        let mut decoder = self.checked()?;
        optional_attributes(&mut decoder)?;
        let count = decoder.u32()? as usize;
        let eof = decoder.bool()?;
        let data = decoder.opaque()?;
        if data.len() != count {
            return Err(Malformed("count and length of the data differ").into());
        }
        Ok((data, eof))
    }

    /// The results of WRITE.
    pub fn written(self) -> Result<Written, Failure> {
        let mut decoder = self.checked()?;
        let attributes = change(&mut decoder)?;
        let count = decoder.u32()?;
        let stable = match decoder.u32()? {
            0 => Stable::Unstable,
            1 => Stable::DataSync,
            2 => Stable::FileSync,
            _ => return Err(Malformed("no such stability").into()),
        };
        Ok(Written {
            count,
            stable,
            verifier: decoder.array()?,
            attributes,
        })
    }

    /// The results of FSSTAT.
    pub fn space(self) -> Result<Space, Failure> {
        let mut decoder = self.checked()?;
        optional_attributes(&mut decoder)?;
        Ok(Space {
            total_bytes: decoder.u64()?,
            free_bytes: decoder.u64()?,
        })
    }

    /// The results of COMMIT.
    pub fn committed(self) -> Result<Verifier, Failure> {
        let mut decoder = self.checked()?;
        change(&mut decoder)?;
        Ok(decoder.array()?)
    }

    /// The results of READDIRPLUS.
    pub fn listed(self) -> Result<Listing, Failure> {
        let mut decoder = self.checked()?;
        optional_attributes(&mut decoder)?;
        decoder.u64()?;
        let mut entries = Vec::new();
        while decoder.bool()? {
            let fileid = decoder.u64()?;
            let name = decoder.opaque()?;
            let cookie = decoder.u64()?;
            let attributes = optional_attributes(&mut decoder)?;
            let handle = match decoder.bool()? {
                true => Some(Handle(decoder.opaque()?)),
                false => None,
            };
            entries.push(DirectoryEntry {
                name,
                fileid,
                cookie,
                object: handle.zip(attributes),
            });
        }
        let eof = decoder.bool()?;
        Ok(Listing { entries, eof })
    }
}

/// `fattr3`.
fn attributes(decoder: &mut Decoder) -> Result<Attributes, Malformed> {
    let kind = match decoder.u32()? {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        5 => FileKind::Symlink,
        3 | 4 | 6 | 7 => FileKind::Special,
        _ => return Err(Malformed("no such type of file")),
    };
    let mode = decoder.u32()?;
    let nlink = decoder.u32()?;
    decoder.fixed(8)?; // owner and group
    let size = decoder.u64()?;
    decoder.fixed(8 + 8 + 8)?; // space used, device, file system
    let fileid = decoder.u64()?;
    decoder.fixed(8)?; // atime
    let mtime = (decoder.u32()?, decoder.u32()?);
    let ctime = (decoder.u32()?, decoder.u32()?);
    Ok(Attributes {
        kind,
        mode,
        nlink,
        size,
        fileid,
        mtime,
        ctime,
    })
}

/// `post_op_attr`.
fn optional_attributes(decoder: &mut Decoder) -> Result<Option<Attributes>, Malformed> {
    match decoder.bool()? {
        true => attributes(decoder).map(Some),
        false => Ok(None),
    }
}

/// `wcc_data`: the attributes afterwards.
fn change(decoder: &mut Decoder) -> Result<Option<Attributes>, Malformed> {
    if decoder.bool()? {
        decoder.fixed(24)?;
    }
    optional_attributes(decoder)
}
