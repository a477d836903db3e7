//! Structures that several procedures share (RFC 1813, section 2.6).

use forebay_vfs::{Attributes, Change, FileKind, SetAttributes, SetTime, Timestamp};

use super::{MAX_FILE_BYTES, Status};
use crate::FileIds;
use crate::xdr::{Malformed, Reader, Writer};

/// Longest file handle (NFS3_FHSIZE).
pub(crate) const MAX_HANDLE_BYTES: usize = 64;

/// Bytes of `fattr3`.
pub(crate) const FATTR_BYTES: usize = 84;

/// Decodes a file handle (`nfs_fh3`).
pub(super) fn handle<'a>(arguments: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    arguments.opaque(MAX_HANDLE_BYTES)
}

/// Decodes the handle of a directory and a name in it (`diropargs3`). The name may be as long as the
/// record allows, so that the file system can report that it is too long.
pub(super) fn name<'a>(arguments: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    Ok((handle(arguments)?, arguments.opaque(usize::MAX)?))
}

/// Checks whether a name is possible at all: an empty one, and one with bytes that no name has, is NFS3ERR_ACCES (RFC
/// 1813, section 3.2.2). The file system checks for names that are too long, and for the dots.
pub(super) fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Status::ACCES);
    }
    Ok(())
}

/// Decodes `nfstime3`.
pub(super) fn time(arguments: &mut Reader<'_>) -> Result<Timestamp, Malformed> {
    Ok(Timestamp {
        seconds: i64::from(arguments.u32()?),
        nanos: arguments.u32()?,
    })
}

/// Decodes `sattr3`. [`check`] validates its values.
pub(super) fn set_attributes(arguments: &mut Reader<'_>) -> Result<SetAttributes, Malformed> {
    Ok(SetAttributes {
        mode: arguments.option(Reader::u32)?.map(|mode| mode & 0o7777),
        uid: arguments.option(Reader::u32)?,
        gid: arguments.option(Reader::u32)?,
        size: arguments.option(Reader::u64)?,
        atime: set_time(arguments)?,
        mtime: set_time(arguments)?,
    })
}

fn set_time(arguments: &mut Reader<'_>) -> Result<SetTime, Malformed> {
    match arguments.u32()? {
        0 => Ok(SetTime::Keep),
        1 => Ok(SetTime::Now),
        2 => time(arguments).map(SetTime::To),
        _ => Err(Malformed),
    }
}

/// Checks whether the values to be set are possible.
pub(super) fn check(set: &SetAttributes) -> Result<(), Status> {
    let impossible =
        |time| matches!(time, SetTime::To(Timestamp { nanos, .. }) if nanos >= 1_000_000_000);
    if impossible(set.atime) || impossible(set.mtime) {
        return Err(Status::INVAL);
    }
    if set.size.is_some_and(|size| size > MAX_FILE_BYTES) {
        return Err(Status::FBIG);
    }
    Ok(())
}

/// `ftype3`.
pub(crate) fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// The upper and the lower half.
#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
fn words(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// `nfstime3`: times that 32 bits of seconds cannot express become the nearest that can be expressed.
fn time_words(time: Timestamp) -> [u32; 2] {
    let seconds = u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX);
    [seconds, time.nanos]
}

/// Encodes the structures that NFS adds to XDR.
impl Writer<'_> {
    pub(super) fn status(&mut self, status: Status) {
        self.u32(status.0);
    }

    /// `nfstime3`.
    fn time(&mut self, time: Timestamp) {
        self.words(time_words(time));
    }

    /// `fattr3`.
    pub(super) fn attributes(&mut self, ids: FileIds, attributes: &Attributes) {
        let [size, used] = [attributes.size, attributes.used].map(words);
        let [volume, inode] = [ids.fsid, ids.fileid(attributes.inode)].map(words);
        let [atime, mtime, ctime] =
            [attributes.atime, attributes.mtime, attributes.ctime].map(time_words);
        self.words([
            file_type(attributes.kind),
            attributes.mode,
            attributes.nlink,
            attributes.uid,
            attributes.gid,
            size[0],
            size[1],
            used[0],
            used[1],
            attributes.device.major,
            attributes.device.minor,
            volume[0],
            volume[1],
            inode[0],
            inode[1],
            atime[0],
            atime[1],
            mtime[0],
            mtime[1],
            ctime[0],
            ctime[1],
        ]);
    }

    /// `post_op_attr`.
    pub(super) fn post_op(&mut self, ids: FileIds, attributes: Option<&Attributes>) {
        self.bool(attributes.is_some());
        if let Some(attributes) = attributes {
            self.attributes(ids, attributes);
        }
    }

    /// `wcc_data`.
    pub(super) fn change(&mut self, ids: FileIds, change: &Change) {
        self.bool(change.before.is_some());
        if let Some(before) = &change.before {
            self.u64(before.size);
            self.time(before.mtime);
            self.time(before.ctime);
        }
        self.post_op(ids, change.after.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Handles, Tree};
    use forebay_types::{Inode, VolumeId};
    use forebay_vfs::{Device, WccAttributes};
    use proptest::prelude::*;

    const ATTRIBUTES: Attributes = Attributes {
        inode: Inode(0x11),
        kind: FileKind::CharDevice,
        mode: 0o644,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: 0x1_0000_0000,
        used: 6,
        device: Device { major: 7, minor: 8 },
        atime: Timestamp {
            seconds: -1,
            nanos: 1,
        },
        mtime: Timestamp {
            seconds: 10,
            nanos: 11,
        },
        ctime: Timestamp {
            seconds: 1 << 40,
            nanos: 13,
        },
    };

    #[test]
    fn golden_attributes_and_change() {
        let ids = Handles::new([0; 32], VolumeId([0xaa; 16])).ids(Tree::Live);
        let mut wire = Vec::new();
        Writer::new(&mut wire).attributes(ids, &ATTRIBUTES);
        let golden = [
            0, 0, 0, 4, 0, 0, 1, 0xa4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, // type to gid
            0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, // size, used
            0, 0, 0, 7, 0, 0, 0, 8, // device
            0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, // fsid
            0, 0, 0, 0, 0, 0, 0, 0x11, // fileid
            0, 0, 0, 0, 0, 0, 0, 1, // atime, before 1970
            0, 0, 0, 10, 0, 0, 0, 11, // mtime
            0xff, 0xff, 0xff, 0xff, 0, 0, 0, 13, // ctime, past 2106
        ];
        assert_eq!(wire, golden);
        assert_eq!(wire.len(), FATTR_BYTES);

        let change = Change {
            before: Some(WccAttributes::from(&ATTRIBUTES)),
            after: None,
        };
        wire.clear();
        Writer::new(&mut wire).change(ids, &change);
        assert_eq!(wire[..12], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(wire.len(), 4 + 24 + 4);
    }

    #[test]
    fn golden_set_attributes() {
        let wire = [
            0, 0, 0, 1, 0, 0, 0xff, 0xff, // mode, with bits that are no permissions
            0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, // no uid, gid
            0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, // size
            0, 0, 0, 1, // atime: now
            0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8, // mtime
        ];
        let mut reader = Reader::new(&wire);
        let expected = SetAttributes {
            mode: Some(0o7777),
            uid: None,
            gid: Some(5),
            size: Some(1 << 32),
            atime: SetTime::Now,
            mtime: SetTime::To(Timestamp {
                seconds: 9,
                nanos: 8,
            }),
        };
        assert_eq!(set_attributes(&mut reader), Ok(expected));
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(check(&expected), Ok(()));
    }

    #[test]
    fn impossible_values_are_refused() {
        let set = SetAttributes {
            size: Some(u64::MAX),
            ..SetAttributes::default()
        };
        assert_eq!(check(&set), Err(Status::FBIG));
        let set = SetAttributes {
            mtime: SetTime::To(Timestamp {
                seconds: 0,
                nanos: 1_000_000_000,
            }),
            ..SetAttributes::default()
        };
        assert_eq!(check(&set), Err(Status::INVAL));
    }

    #[test]
    fn names_that_cannot_be_are_refused_before_the_file_system_sees_them() {
        for name in [&b""[..], b"/", b"a/b", b"\0", b"a\0"] {
            assert_eq!(check_name(name), Err(Status::ACCES));
        }
        for name in [&b"a"[..], b".", b"..", b"\xff\x01 \\", &[b'n'; 300]] {
            assert_eq!(check_name(name), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(wire: Vec<u8>) {
            let mut reader = Reader::new(&wire);
            let _ = set_attributes(&mut reader);
            let _ = name(&mut Reader::new(&wire));
        }
    }
}
