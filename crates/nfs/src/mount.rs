//! The MOUNT protocol, version 3 (RFC 1813, appendix I): how a client gets its first handle.

use std::collections::VecDeque;
use std::net::IpAddr;

use forebay_vfs::{Error, FileSystem};
use parking_lot::Mutex;

use crate::exports::{Client, Exports, walk};
use crate::handle::{HANDLE_BYTES, Handles, Named};
use crate::rpc::{AUTH_SYS, Reply};
use crate::xdr::{Malformed, Reader};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// The only version of it that is served.
pub const VERSION: u32 = 3;

/// Longest path that a client may ask for, in bytes (MNTPATHLEN).
const MAX_PATH_BYTES: usize = 1024;

/// `mountstat3`.
const OK: u32 = 0;
const ACCES: u32 = 13;
const SERVERFAULT: u32 = 10006;

/// Mounts remembered for DUMP; the oldest are forgotten. The list is for people to look at: clients
/// vanish without saying so, and it does not outlive the server.
const MAX_MOUNTS: usize = 256;

/// Who has mounted what, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

/// What the procedures work with.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) mounts: &'a Mounts,
    pub(crate) client: &'a Client,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// A handle was given out.
    Mounted,
    /// A handle was refused.
    Refused,
    /// Anything else.
    Other,
    /// There is no such procedure.
    NoProcedure,
}

/// Does a call and appends its results.
pub(crate) async fn call<F: FileSystem>(
    request: &Request<'_, F>,
    procedure: u32,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<Done, Malformed> {
    let address = request.client.address;
    // Whoever may mount nothing learns nothing, not even what there is.
    let known = request.client.is_known();
    match procedure {
        // NULL
        0 => arguments.end()?,
        // MNT
        1 => {
            let path = arguments.opaque(MAX_PATH_BYTES)?;
            arguments.end()?;
            return Ok(mnt(request, path, reply).await);
        }
        // DUMP
        2 => {
            arguments.end()?;
            let mut results = reply.results();
            for (client, path) in request.mounts.0.lock().iter().filter(|_| known) {
                results.bool(true);
                results.opaque(client.to_string().as_bytes());
                results.opaque(path);
            }
            results.bool(false);
        }
        // UMNT
        3 => {
            let path = arguments.opaque(MAX_PATH_BYTES)?;
            arguments.end()?;
            let mut mounts = request.mounts.0.lock();
            mounts.retain(|(client, mounted)| *client != address || mounted != path);
        }
        // UMNTALL
        4 => {
            arguments.end()?;
            let mut mounts = request.mounts.0.lock();
            mounts.retain(|(client, _)| *client != address);
        }
        // EXPORT
        5 => {
            arguments.end()?;
            let mut results = reply.results();
            for export in request.exports.iter().filter(|_| known) {
                results.bool(true);
                results.opaque(&export.path);
                for range in &export.clients {
                    results.bool(true);
                    results.opaque(range.to_string().as_bytes());
                }
                results.bool(false);
            }
            results.bool(false);
        }
        _ => return Ok(Done::NoProcedure),
    }
    Ok(Done::Other)
}

async fn mnt<F: FileSystem>(request: &Request<'_, F>, path: &[u8], reply: &mut Reply) -> Done {
    match root_handle(request, path).await {
        Ok(handle) => {
            let mount = (request.client.address, path.to_vec());
            let mut mounts = request.mounts.0.lock();
            if !mounts.contains(&mount) {
                if mounts.len() >= MAX_MOUNTS {
                    mounts.pop_front();
                }
                mounts.push_back(mount);
            }
            let mut results = reply.results();
            results.u32(OK);
            results.opaque(&handle);
            // The flavors of credentials that are of use.
            results.u32(1);
            results.u32(AUTH_SYS);
            Done::Mounted
        }
        Err(status) => {
            reply.results().u32(status);
            Done::Refused
        }
    }
}

/// The handle of a directory at or below an export.
async fn root_handle<F: FileSystem>(
    request: &Request<'_, F>,
    path: &[u8],
) -> Result<[u8; HANDLE_BYTES], u32> {
    // Whoever may mount nothing learns nothing, not even what there is.
    let (export, rest) = request.exports.holding(path, request.client).ok_or(ACCES)?;
    if !request.client.may_use(export) {
        return Err(ACCES);
    }
    let found = async {
        let fs = request.exports.fs(export).ok_or(Error::NotFound)?;
        let root = request.exports.resolve(export).await?;
        walk(fs, root, rest.into_iter()).await
    };
    let inode = found.await.map_err(mount_status)?;
    let export = request.exports.id(export);
    Ok(request.handles.encode(Named { export, inode }))
}

/// `mountstat3` has fewer errors than `nfsstat3`, with the same numbers.
fn mount_status(error: Error) -> u32 {
    match error {
        Error::NotFound | Error::Stale => 2,
        Error::Io => 5,
        Error::Access => ACCES,
        Error::NotDirectory => 20,
        Error::Invalid => 22,
        Error::NameTooLong => 63,
        _ => SERVERFAULT,
    }
}
