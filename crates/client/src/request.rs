//! Calls: programs, procedures and arguments (RFC 1813, sections 3 and 5).

use crate::xdr::Encoder;
use crate::{Handle, Verifier};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Durability that a write has to reach before it is answered (`stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// It may be lost until a COMMIT.
    Unstable = 0,
    /// Its bytes are on stable storage.
    DataSync = 1,
    /// Its bytes and all attributes are on stable storage.
    FileSync = 2,
}

/// How CREATE treats a name that exists (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Opens the existing file, and truncates it.
    Unchecked,
    /// Refused with EXIST.
    Guarded,
    /// Refused unless this same call created the file.
    Exclusive(Verifier),
}

/// One call, without the header that a [`Link`](crate::Link) adds.
#[derive(Clone, Debug)]
pub struct Request {
    program: u32,
    version: u32,
    procedure: u32,
    /// The procedure's name in RFC 1813.
    pub name: &'static str,
    arguments: Vec<u8>,
}

/// The identity that a call claims (AUTH_SYS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group number; no others are claimed.
    pub gid: u32,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0 };
}

/// Bit of a record mark for the last fragment of a record (RFC 5531, section
/// 11).
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// `sattr3` that sets mode, size or neither.
fn attributes(encoder: Encoder, mode: Option<u32>, size: Option<u64>) -> Encoder {
    let encoder = match mode {
        Some(mode) => encoder.u32s(&[1, mode]),
        None => encoder.u32s(&[0]),
    };
    let encoder = encoder.u32s(&[0, 0]);
    let encoder = match size {
        Some(size) => encoder.u32s(&[1]).u64(size),
        None => encoder.u32s(&[0]),
    };
    encoder.u32s(&[0, 0])
}

fn named(directory: &Handle, name: &[u8]) -> Encoder {
    Encoder::default().opaque(&directory.0).opaque(name)
}

impl Request {
    /// Any call of any program: for procedures without a function here, and for arguments that no client should send.
    pub fn new(
        (program, version): (u32, u32),
        procedure: u32,
        name: &'static str,
        arguments: Encoder,
    ) -> Request {
        Request {
            program,
            version,
            procedure,
            name,
            arguments: arguments.0,
        }
    }

    /// The call as a record of one fragment: its mark, its header with an AUTH_SYS credential, its arguments.
    pub fn record(&self, xid: u32, caller: Caller) -> Vec<u8> {
        let credential = Encoder::default()
            .u32s(&[0])
            .opaque(b"test")
            .u32s(&[caller.uid, caller.gid, 0]);
        let head = Encoder::default()
            .u32s(&[xid, 0, 2, self.program, self.version, self.procedure, 1])
            .opaque(&credential.0)
            .u32s(&[0, 0]);
        let length = head.0.len() + self.arguments.len();
        let mut record = Vec::with_capacity(4 + length);
        // A length beyond the mark's 31 bits is far beyond the server's limit.
        let mark = LAST_FRAGMENT | u32::try_from(length).unwrap_or(u32::MAX);
        record.extend_from_slice(&mark.to_be_bytes());
        record.extend_from_slice(&head.0);
        record.extend_from_slice(&self.arguments);
        record
    }

    fn nfs(procedure: u32, name: &'static str, arguments: Encoder) -> Request {
        Request::new((NFS, 3), procedure, name, arguments)
    }

    /// NULL, which does nothing.
    pub fn null() -> Request {
        Request::nfs(0, "NULL", Encoder::default())
    }

    /// MNT of the protocol MOUNT, version 3.
    pub fn mount(path: &[u8]) -> Request {
        Request::new((MOUNT, 3), 1, "MNT", Encoder::default().opaque(path))
    }

    /// GETATTR.
    pub fn getattr(object: &Handle) -> Request {
        Request::nfs(1, "GETATTR", Encoder::default().opaque(&object.0))
    }

    /// FSSTAT.
    pub fn fsstat(object: &Handle) -> Request {
        Request::nfs(18, "FSSTAT", Encoder::default().opaque(&object.0))
    }

    /// SETATTR of mode, size or both, without a guard.
    pub fn setattr(object: &Handle, mode: Option<u32>, size: Option<u64>) -> Request {
        let arguments = attributes(Encoder::default().opaque(&object.0), mode, size);
        Request::nfs(2, "SETATTR", arguments.u32s(&[0]))
    }

    /// LOOKUP.
    pub fn lookup(directory: &Handle, name: &[u8]) -> Request {
        Request::nfs(3, "LOOKUP", named(directory, name))
    }

    /// READLINK.
    pub fn readlink(link: &Handle) -> Request {
        Request::nfs(5, "READLINK", Encoder::default().opaque(&link.0))
    }

    /// READ of at most `count` bytes.
    pub fn read(file: &Handle, offset: u64, count: u32) -> Request {
        let arguments = Encoder::default().opaque(&file.0).u64(offset);
        Request::nfs(6, "READ", arguments.u32s(&[count]))
    }

    /// WRITE.
    pub fn write(file: &Handle, offset: u64, data: &[u8], stable: Stable) -> Request {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let arguments = Encoder::default()
            .opaque(&file.0)
            .u64(offset)
            .u32s(&[count, stable as u32])
            .opaque(data);
        Request::nfs(7, "WRITE", arguments)
    }

    /// CREATE; an exclusive one ignores `mode`.
    pub fn create(directory: &Handle, name: &[u8], how: Create, mode: u32) -> Request {
        let arguments = named(directory, name);
        let arguments = match how {
            Create::Unchecked => attributes(arguments.u32s(&[0]), Some(mode), Some(0)),
            Create::Guarded => attributes(arguments.u32s(&[1]), Some(mode), None),
            Create::Exclusive(verifier) => arguments.u32s(&[2]).fixed(&verifier),
        };
        Request::nfs(8, "CREATE", arguments)
    }

    /// MKDIR.
    pub fn mkdir(directory: &Handle, name: &[u8], mode: u32) -> Request {
        let arguments = attributes(named(directory, name), Some(mode), None);
        Request::nfs(9, "MKDIR", arguments)
    }

    /// SYMLINK.
    pub fn symlink(directory: &Handle, name: &[u8], target: &[u8]) -> Request {
        let arguments = attributes(named(directory, name), None, None);
        Request::nfs(10, "SYMLINK", arguments.opaque(target))
    }

    /// REMOVE.
    pub fn remove(directory: &Handle, name: &[u8]) -> Request {
        Request::nfs(12, "REMOVE", named(directory, name))
    }

    /// RMDIR.
    pub fn rmdir(directory: &Handle, name: &[u8]) -> Request {
        Request::nfs(13, "RMDIR", named(directory, name))
    }

    /// RENAME.
    pub fn rename(from: &Handle, name: &[u8], to: &Handle, new_name: &[u8]) -> Request {
        let arguments = named(from, name).opaque(&to.0).opaque(new_name);
        Request::nfs(14, "RENAME", arguments)
    }

    /// LINK.
    pub fn link(file: &Handle, directory: &Handle, name: &[u8]) -> Request {
        let arguments = Encoder::default()
            .opaque(&file.0)
            .opaque(&directory.0)
            .opaque(name);
        Request::nfs(15, "LINK", arguments)
    }

    /// READDIRPLUS after `cookie`, of at most `bytes` of reply.
    pub fn readdirplus(directory: &Handle, cookie: u64, bytes: u32) -> Request {
        let arguments = Encoder::default()
            .opaque(&directory.0)
            .u64(cookie)
            .u64(0)
            .u32s(&[bytes, bytes]);
        Request::nfs(17, "READDIRPLUS", arguments)
    }

    /// COMMIT of the whole file.
    pub fn commit(file: &Handle) -> Request {
        let arguments = Encoder::default().opaque(&file.0).u64(0).u32s(&[0]);
        Request::nfs(21, "COMMIT", arguments)
    }
}
