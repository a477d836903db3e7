//! NFS version 3 (RFC 1813): its 22 procedures. Each decodes its arguments, calls one operation of the file
//! system, and encodes the results.
//!
//! * `status`: maps the errors of the file system to `nfsstat3`, for all procedures.
//! * `wire`: the structures that several procedures share.
//! * `attributes`: GETATTR, SETATTR, ACCESS.
//! * `names`: LOOKUP, READLINK and the procedures that create names.
//! * `removal`: the procedures that remove, move or link names.
//! * `data`: READ, WRITE, COMMIT.
//! * `listing`: READDIR, READDIRPLUS.
//! * `volume`: FSSTAT, FSINFO, PATHCONF.
//!
//! The reply to a failed operation has the current attributes, and none from
//! before: that is always correct, and lets the client update its cache.

mod attributes;
mod data;
mod listing;
mod names;
mod removal;
mod request;
mod status;
mod volume;
mod wire;

pub(crate) use request::Request;
#[cfg(feature = "measuring")]
pub(crate) use request::Target;
pub(crate) use status::Status;
pub use status::status_names;
pub(crate) use wire::MAX_HANDLE_BYTES;

use forebay_vfs::Trees;

use crate::TRANSFER_BYTES;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// The only version of the program that is served.
pub const VERSION: u32 = 3;
/// Program number of NFS_ACL, which Linux asks for at mount; it is not served, which is not worth
/// a log message.
pub const ACL_PROGRAM: u32 = 100_227;

/// Largest size of a file: the largest signed 64-bit offset.
pub const MAX_FILE_BYTES: u64 = i64::MAX as u64;
/// Longest name in bytes.
pub const MAX_NAME_BYTES: u32 = 255;
/// Longest path in a symbolic link, in bytes.
pub const MAX_SYMLINK_BYTES: usize = 4096;

/// Names of the procedures, by number.
pub const PROCEDURES: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

/// Whether a repeated execution could have a different result than the first: SETATTR
/// (because of its guard) and all that create, move or remove names. Repeating a WRITE changes nothing.
pub(crate) fn is_replayed(procedure: u32) -> bool {
    matches!(procedure, 2 | 8..=15)
}

/// Whether the procedure changes something that clients see; an export that is `ro` refuses it. COMMIT only
/// makes earlier writes durable.
pub(crate) fn is_change(procedure: u32) -> bool {
    matches!(procedure, 2 | WRITE | 8..=15)
}

/// Whether the reply may be long: the procedure reads data or lists names.
pub(crate) fn is_long(procedure: u32) -> bool {
    matches!(procedure, READ | READDIR | READDIRPLUS)
}

/// Whether the procedure changes something, or waits until changes are durable.
pub(crate) fn is_waited_for(procedure: u32) -> bool {
    is_change(procedure) || procedure == COMMIT
}

/// Whether the results of the procedure begin with a status.
pub(crate) fn has_status(procedure: u32) -> bool {
    procedure != 0 && (procedure as usize) < PROCEDURES.len()
}

/// Appends the results of a call that was not executed: NFS3ERR_JUKEBOX.
pub(crate) fn put_off(procedure: u32, reply: &mut Reply) {
    /// After the status, a failed call has optional attributes; one word marks each of them as missing. This is
    /// their number for each procedure (RFC 1813, section 3.3: `post_op_attr` is one, `wcc_data` two).
    const MISSING: [u8; PROCEDURES.len()] = [
        0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4, 3, 1, 1, 1, 1, 1, 2,
    ];
    let mut results = reply.results();
    results.status(Status::JUKEBOX);
    let missing = MISSING.get(procedure as usize).copied().unwrap_or(0);
    for _ in 0..missing {
        results.bool(false);
    }
}

/// Room for any reply whose length does not depend on the call.
const SMALL_REPLY_BYTES: usize = 512;

/// Upper bound for the bytes of the reply to a call, known before the call begins.
pub(crate) fn reply_bound(procedure: u32, record: &[u8]) -> usize {
    match procedure {
        READLINK => SMALL_REPLY_BYTES + MAX_SYMLINK_BYTES,
        // The last argument of all three is the requested size.
        READ | READDIR | READDIRPLUS => {
            let wanted = record.last_chunk().copied();
            let wanted = wanted.map_or(0, u32::from_be_bytes);
            SMALL_REPLY_BYTES + wanted.min(TRANSFER_BYTES) as usize
        }
        _ => SMALL_REPLY_BYTES,
    }
}

/// Executes a READ whose data is in memory. Returns `None`, and appends nothing, if the data is not in memory, for
/// other procedures, and for calls that fail: [`call`] produces the error.
pub(crate) fn call_in_memory<F: Trees>(
    request: &Request<'_, F>,
    procedure: u32,
    arguments: Reader<'_>,
    reply: &mut Reply,
) -> Option<()> {
    match procedure {
        READ => data::read_in_memory(request, arguments, reply),
        _ => None,
    }
}

/// Executes a call: decodes the arguments, calls the file system, and appends the results. The
/// procedure has to be one of [`PROCEDURES`].
pub(crate) async fn call<F: Trees>(
    request: &Request<'_, F>,
    procedure: u32,
    arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    match procedure {
        0 => arguments.end(),
        1 => attributes::getattr(request, arguments, reply).await,
        2 => attributes::setattr(request, arguments, reply).await,
        3 => names::lookup(request, arguments, reply).await,
        4 => attributes::access(request, arguments, reply).await,
        READLINK => names::readlink(request, arguments, reply).await,
        READ => data::read(request, arguments, reply).await,
        WRITE => data::write(request, arguments, reply).await,
        8 => names::create(request, arguments, reply).await,
        9 => names::mkdir(request, arguments, reply).await,
        10 => names::symlink(request, arguments, reply).await,
        11 => names::mknod(request, arguments, reply).await,
        12 => removal::remove(request, arguments, reply).await,
        13 => removal::rmdir(request, arguments, reply).await,
        14 => removal::rename(request, arguments, reply).await,
        15 => removal::link(request, arguments, reply).await,
        READDIR => listing::readdir(request, arguments, reply).await,
        READDIRPLUS => listing::readdirplus(request, arguments, reply).await,
        18 => volume::fsstat(request, arguments, reply).await,
        19 => volume::fsinfo(request, arguments, reply).await,
        20 => volume::pathconf(request, arguments, reply).await,
        COMMIT => data::commit(request, arguments, reply).await,
        _ => Err(Malformed),
    }
}
