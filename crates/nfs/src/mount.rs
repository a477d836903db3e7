//! The MOUNT protocol, version 3 (RFC 1813, appendix I): how a client gets its first handle.

use std::collections::VecDeque;
use std::net::IpAddr;

use forebay_types::bounded_u32;
use forebay_vfs::{Error, Trees};
use parking_lot::Mutex;

use crate::exports::{Client, Exports, Grant, names, walk};
use crate::handle::{Handle, Handles, Named};
use crate::object::{Object, Shows};
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// The only version of the program that is served.
pub const VERSION: u32 = 3;

/// Longest path that a client may ask for, in bytes (MNTPATHLEN).
const MAX_PATH_BYTES: usize = 1024;

/// `mountstat3`.
const OK: u32 = 0;
const ACCES: u32 = 13;
const SERVERFAULT: u32 = 10006;

/// Mounts remembered for DUMP; the oldest are forgotten. The list is for people to read: clients
/// vanish without notice, and the list does not outlive the server.
const MAX_MOUNTS: usize = 256;
/// Mounts remembered of one client, so that it cannot displace those of all others.
const MAX_MOUNTS_OF_CLIENT: usize = 64;

/// Longest address as text, and longest list that DUMP gives.
const MAX_ADDRESS_BYTES: usize = 48;
const MAX_DUMP_BYTES: usize = MAX_MOUNTS * (3 * 4 + MAX_ADDRESS_BYTES + MAX_PATH_BYTES);

/// Upper bound for the bytes of the reply to a call, known before the call begins.
pub(crate) fn reply_bound(procedure: u32) -> usize {
    match procedure {
        2 => 512 + MAX_DUMP_BYTES,
        // As long as the configuration makes it; clients have no influence on it.
        5 => 64 << 10,
        _ => 512,
    }
}

/// The known mounts of all clients.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<VecDeque<Mount>>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    client: IpAddr,
    /// Without redundant slashes.
    path: Vec<u8>,
    /// Number of the export that holds it.
    export: u32,
}

impl Mounts {
    fn add(&self, mount: Mount) {
        let mut mounts = self.0.lock();
        if mounts.contains(&mount) {
            return;
        }
        let own = mounts.iter().filter(|other| other.client == mount.client);
        if own.count() >= MAX_MOUNTS_OF_CLIENT
            && let Some(oldest) = mounts.iter().position(|other| other.client == mount.client)
        {
            mounts.remove(oldest);
        }
        if mounts.len() >= MAX_MOUNTS {
            mounts.pop_front();
        }
        mounts.push_back(mount);
    }

    fn remove(&self, gone: impl Fn(&Mount) -> bool) {
        self.0.lock().retain(|mount| !gone(mount));
    }
}

/// Removes redundant slashes from a path, so that equal paths compare equal.
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut tidy: Vec<u8> = Vec::new();
    for name in names(path) {
        tidy.push(b'/');
        tidy.extend_from_slice(name);
    }
    if tidy.is_empty() {
        tidy.push(b'/');
    }
    tidy
}

/// Context of a call.
pub(crate) struct Request<'a, F> {
    pub(crate) handles: &'a Handles,
    pub(crate) exports: &'a Exports<F>,
    pub(crate) mounts: &'a Mounts,
    pub(crate) client: &'a Client,
}

/// How a call ended.
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

/// Executes a call and appends its results.
pub(crate) async fn call<F: Trees>(
    request: &Request<'_, F>,
    procedure: u32,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<Done, Malformed> {
    // A client must not be able to find out whether a path exists that only others may mount.
    let client = request.client;
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
            let mounts = request.mounts.0.lock();
            let seen = |mount: &&Mount| client.grant(mount.export).is_some();
            for mount in mounts.iter().filter(seen) {
                results.bool(true);
                results.opaque(mount.client.to_string().as_bytes());
                results.opaque(&mount.path);
            }
            results.bool(false);
        }
        // UMNT
        3 => {
            let path = tidy(arguments.opaque(MAX_PATH_BYTES)?);
            arguments.end()?;
            let gone = |mount: &Mount| mount.client == client.address && mount.path == path;
            request.mounts.remove(gone);
        }
        // UMNTALL
        4 => {
            arguments.end()?;
            let gone = |mount: &Mount| mount.client == client.address;
            request.mounts.remove(gone);
        }
        // EXPORT
        5 => {
            arguments.end()?;
            let mut results = reply.results();
            for export in request.exports.listed_for(client.address) {
                results.bool(true);
                results.opaque(&export.path);
                for range in export.rules.iter().flat_map(|rule| &rule.clients) {
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

async fn mnt<F: Trees>(request: &Request<'_, F>, path: &[u8], reply: &mut Reply) -> Done {
    match root_handle(request, path).await {
        Ok((handle, grant)) => {
            request.mounts.add(Mount {
                client: request.client.address,
                path: tidy(path),
                export: grant.export(),
            });
            let mut results = reply.results();
            results.u32(OK);
            results.opaque(&handle);
            // The flavors of credentials that the rule accepts.
            let flavors = request
                .exports
                .rule(grant)
                .map(|rule| rule.flavors.numbers());
            let count = flavors.as_ref().map_or(0, ExactSizeIterator::len);
            results.u32(bounded_u32(count));
            flavors
                .into_iter()
                .flatten()
                .for_each(|flavor| results.u32(flavor));
            Done::Mounted
        }
        Err(status) => {
            reply.results().u32(status);
            Done::Refused
        }
    }
}

/// Returns the handle of a directory at or below an export, and what the client is allowed there.
async fn root_handle<F: Trees>(
    request: &Request<'_, F>,
    path: &[u8],
) -> Result<(Handle, Grant), u32> {
    let (grant, rest) = request.exports.holding(path, request.client).ok_or(ACCES)?;
    let found = async {
        let (rule, fs) = request.exports.granted(grant).ok_or(Error::NotFound)?;
        let root = request.exports.resolve(grant).await?;
        walk(Object::live(fs, root, Shows::of(rule)), rest.into_iter()).await
    };
    let found = found.await.map_err(mount_status)?;
    let handle = request.handles.encode(Named {
        export: grant.export(),
        tree: found.tree,
        inode: found.inode,
    });
    Ok((handle, grant))
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
