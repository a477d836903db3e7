//! The results of each procedure (RFC 1813, section 3.3) as lists of parts, and one decoder that reads a reply by its
//! list to the last byte.

use forebay_client::Malformed;
use forebay_client::xdr::Decoder;

use crate::rfc1813::{HANDLE_BYTES, Procedure, Procedure::*, Status};

/// Part of the results of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `fattr3`.
    Attributes,
    /// `post_op_attr`.
    PostOp,
    /// `wcc_data`.
    Change,
    /// `nfs_fh3`.
    Handle,
    /// `post_op_fh3`.
    MaybeHandle,
    /// A 32-bit number.
    Number,
    /// A 64-bit number.
    Long,
    /// A truth value.
    Flag,
    /// A verifier, or other 8 bytes.
    Eight,
    /// Bytes or a string, at most this many bytes.
    Bytes(usize),
    /// `dirlist3`.
    Entries,
    /// `dirlistplus3`.
    EntriesPlus,
}

use Part::*;

impl Procedure {
    /// The parts after [`Status::OK`].
    pub fn results(self) -> &'static [Part] {
        match self {
            Null => &[],
            Getattr => &[Attributes],
            Setattr | Remove | Rmdir => &[Change],
            Lookup => &[Handle, PostOp, PostOp],
            Access => &[PostOp, Number],
            Readlink => &[PostOp, Bytes(usize::MAX)],
            Read => &[PostOp, Number, Flag, Bytes(1 << 20)],
            Write => &[Change, Number, Number, Eight],
            Create | Mkdir | Symlink | Mknod => &[MaybeHandle, PostOp, Change],
            Rename => &[Change, Change],
            Link => &[PostOp, Change],
            Readdir => &[PostOp, Eight, Entries],
            Readdirplus => &[PostOp, Eight, EntriesPlus],
            Fsstat => &[PostOp, Long, Long, Long, Long, Long, Long, Number],
            Fsinfo => &[
                PostOp, Number, Number, Number, Number, Number, Number, Number, Long, Eight, Number,
            ],
            Pathconf => &[PostOp, Number, Number, Flag, Flag, Flag, Flag],
            Commit => &[Change, Eight],
        }
    }

    /// The parts after any other status. There are as many parts as handles in the arguments, and each describes the
    /// object of the handle at the same position.
    pub fn failure(self) -> &'static [Part] {
        match self {
            Null | Getattr => &[],
            Lookup | Access | Readlink | Read | Readdir | Readdirplus | Fsstat | Fsinfo
            | Pathconf => &[PostOp],
            Setattr | Write | Create | Mkdir | Symlink | Mknod | Remove | Rmdir | Commit => {
                &[Change]
            }
            Rename => &[Change, Change],
            Link => &[PostOp, Change],
        }
    }
}

/// Seconds and nanoseconds.
pub type Time = (u32, u32);

/// `fattr3`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub struct Attributes {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// `wcc_attr`: attributes by which a client detects a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub struct Before {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
}

impl From<&Attributes> for Before {
    fn from(attributes: &Attributes) -> Before {
        Before {
            size: attributes.size,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
        }
    }
}

/// `wcc_data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wcc {
    /// Attributes before the operation, if the server returned them.
    pub before: Option<Before>,
    /// Attributes after it, if the server returned them.
    pub after: Option<Attributes>,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// Inode number.
    pub fileid: u64,
    /// A listing continues after this cookie.
    pub cookie: u64,
    /// Attributes in READDIRPLUS, if the server returned them.
    pub attributes: Option<Attributes>,
    /// Handle in READDIRPLUS, if the server returned it.
    pub handle: Option<Vec<u8>>,
}

/// The results of a call; parts of one kind are in their order.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Number of bytes behind the status.
    pub bytes: usize,
    /// Attributes, including optional ones that are absent.
    pub attributes: Vec<Option<Attributes>>,
    /// `wcc_data` of objects.
    pub changes: Vec<Wcc>,
    /// Handle of the object that was found or made.
    pub handle: Option<Vec<u8>>,
    /// Numbers, of 32 and of 64 bits.
    pub numbers: Vec<u64>,
    /// Truth values; `eof` among them.
    pub flags: Vec<bool>,
    /// The verifier.
    pub eight: Option<[u8; 8]>,
    /// Data, or the path in a symbolic link.
    pub data: Vec<u8>,
    /// Names.
    pub entries: Vec<Entry>,
    status: Option<Status>,
}

impl Results {
    /// Decodes the results of `procedure`: all required parts in the right form, and nothing behind them.
    pub fn decode(procedure: Procedure, bytes: Vec<u8>) -> Result<Results, Malformed> {
        let mut results = Results {
            bytes: bytes.len().saturating_sub(4),
            ..Results::default()
        };
        let mut decoder = Decoder::new(bytes);
        let status = match procedure {
            Null => Status::OK,
            _ => Status(decoder.u32()?),
        };
        results.status = Some(status);
        let parts = match status {
            Status::OK => procedure.results(),
            status if Status::ALL.contains(&status) => procedure.failure(),
            _ => return Err(Malformed("no such status")),
        };
        for part in parts {
            results.take(*part, &mut decoder)?;
        }
        decoder.end()?;
        if procedure == Read
            && status == Status::OK
            && results.numbers != [results.data.len() as u64]
        {
            return Err(Malformed("count and length of the data differ"));
        }
        Ok(results)
    }

    /// Status of the call.
    pub fn status(&self) -> Status {
        self.status.unwrap_or(Status::OK)
    }

    fn take(&mut self, part: Part, decoder: &mut Decoder) -> Result<(), Malformed> {
        match part {
            Part::Attributes => self.attributes.push(Some(attributes(decoder)?)),
            PostOp => self.attributes.push(post_op(decoder)?),
            Change => {
                let before = match decoder.bool()? {
                    true => Some(Before {
                        size: decoder.u64()?,
                        mtime: time(decoder)?,
                        ctime: time(decoder)?,
                    }),
                    false => None,
                };
                let after = post_op(decoder)?;
                self.changes.push(Wcc { before, after });
            }
            Handle => self.handle = Some(handle(decoder)?),
            MaybeHandle => {
                self.handle = match decoder.bool()? {
                    true => Some(handle(decoder)?),
                    false => None,
                };
            }
            Number => self.numbers.push(decoder.u32()?.into()),
            Long => self.numbers.push(decoder.u64()?),
            Flag => self.flags.push(decoder.bool()?),
            Eight => self.eight = Some(decoder.array()?),
            Bytes(limit) => {
                self.data = decoder.opaque()?;
                if self.data.len() > limit {
                    return Err(Malformed("longer than was asked for"));
                }
            }
            Entries | EntriesPlus => {
                while decoder.bool()? {
                    self.entries.push(entry(decoder, part == EntriesPlus)?);
                }
                self.flags.push(decoder.bool()?);
            }
        }
        Ok(())
    }
}

fn handle(decoder: &mut Decoder) -> Result<Vec<u8>, Malformed> {
    let handle = decoder.opaque()?;
    match handle.len() {
        1..=HANDLE_BYTES => Ok(handle),
        _ => Err(Malformed("a handle that is none")),
    }
}

fn time(decoder: &mut Decoder) -> Result<Time, Malformed> {
    let time = (decoder.u32()?, decoder.u32()?);
    match time.1 {
        ..1_000_000_000 => Ok(time),
        _ => Err(Malformed("a second has 10^9 nanoseconds")),
    }
}

fn attributes(decoder: &mut Decoder) -> Result<Attributes, Malformed> {
    let attributes = Attributes {
        kind: decoder.u32()?,
        mode: decoder.u32()?,
        nlink: decoder.u32()?,
        uid: decoder.u32()?,
        gid: decoder.u32()?,
        size: decoder.u64()?,
        used: decoder.u64()?,
        device: (decoder.u32()?, decoder.u32()?),
        fsid: decoder.u64()?,
        fileid: decoder.u64()?,
        atime: time(decoder)?,
        mtime: time(decoder)?,
        ctime: time(decoder)?,
    };
    if !(1..=7).contains(&attributes.kind) {
        return Err(Malformed("no such type of object"));
    }
    if attributes.mode > 0o7777 {
        return Err(Malformed("a mode has twelve bits"));
    }
    if attributes.nlink == 0 {
        return Err(Malformed("an object without a name"));
    }
    Ok(attributes)
}

fn post_op(decoder: &mut Decoder) -> Result<Option<Attributes>, Malformed> {
    match decoder.bool()? {
        true => attributes(decoder).map(Some),
        false => Ok(None),
    }
}

fn entry(decoder: &mut Decoder, plus: bool) -> Result<Entry, Malformed> {
    let mut entry = Entry {
        fileid: decoder.u64()?,
        name: decoder.opaque()?,
        cookie: decoder.u64()?,
        attributes: None,
        handle: None,
    };
    if plus {
        entry.attributes = post_op(decoder)?;
        if decoder.bool()? {
            entry.handle = Some(handle(decoder)?);
        }
    }
    if entry.name.is_empty() || entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Malformed("a name that is none"));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use forebay_client::xdr::Encoder;

    use super::*;

    #[test]
    fn a_reply_is_decoded_to_its_last_byte() {
        let reply = Encoder::default().u32s(&[70, 0]);
        let results = Results::decode(Readlink, reply.0.clone()).unwrap();
        assert_eq!((results.status(), results.bytes), (Status::STALE, 4));
        assert_eq!(results.attributes, [None]);
        assert!(Results::decode(Readlink, reply.clone().u32s(&[0]).0).is_err());
        assert!(Results::decode(Readlink, reply.0[..4].to_vec()).is_err());
        assert!(Results::decode(Readlink, Encoder::default().u32s(&[12, 0]).0).is_err());
        assert!(Results::decode(Null, Vec::new()).is_ok());
    }

    #[test]
    fn failures_tell_of_each_object_once() {
        for procedure in Procedure::ALL {
            let objects = match procedure {
                Getattr => 0,
                Rename | Link => 2,
                _ => 1,
            };
            assert_eq!(procedure.failure().len(), objects, "{procedure:?}");
        }
    }

    #[test]
    fn attributes_that_cannot_be_are_refused() {
        let good = [
            1, 0o644, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0,
        ];
        let decode = |words: &[u32]| {
            Results::decode(Getattr, Encoder::default().u32s(&[0]).u32s(words).0).is_ok()
        };
        assert!(decode(&good));
        for (at, wrong) in [(0, 8), (0, 0), (1, 0o10000), (2, 0), (16, 1_000_000_000)] {
            let mut words = good;
            words[at] = wrong;
            assert!(!decode(&words), "{wrong} at {at}");
        }
    }
}
