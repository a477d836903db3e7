//! READDIR, READDIRPLUS (RFC 1813, sections 3.3.16, 3.3.17).
//!
//! Cookies come from the file system and never become invalid, so the cookie verifier is always zero and
//! any verifier from a client is accepted.

use forebay_vfs::{DirectoryEntry, Trees};

use super::request::Target;
use super::wire::FATTR_BYTES;
use super::{Request, Status, wire};
use crate::TRANSFER_BYTES;
use crate::handle::{HANDLE_BYTES, SNAPSHOT_HANDLE_BYTES, Tree};
use crate::object::Object;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader, opaque_bytes};

const VERIFIER: [u8; 8] = [0; 8];

/// `READDIR3resok` without entries: the directory's attributes, the verifier, the end of the list and
/// `eof`.
const FRAME_BYTES: usize = 4 + FATTR_BYTES + VERIFIER.len() + 4 + 4;

/// Entries requested at a time: enough to fill a typical reply at once, but few enough that most are
/// used.
const BATCH_ENTRIES: std::ops::RangeInclusive<usize> = 4..=1024;

/// Bytes of an entry with a name of some 16 bytes.
const TYPICAL_ENTRY_BYTES: usize = 40;
/// The same with attributes and a handle.
const TYPICAL_ENTRY_PLUS_BYTES: usize = TYPICAL_ENTRY_BYTES + PLUS_BYTES;

/// Attributes and handle of an entry.
const PLUS_BYTES: usize = 4 + FATTR_BYTES + 4 + opaque_bytes(HANDLE_BYTES);

pub(super) async fn readdir<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let cookie = arguments.u64()?;
    arguments.array::<8>()?;
    let count = arguments.u32()?;
    arguments.end()?;
    let wanted = Wanted {
        cookie,
        name_bytes: usize::MAX,
        reply_bytes: count.min(TRANSFER_BYTES) as usize,
        plus: false,
    };
    list(request, request.target(handle), &wanted, reply).await;
    Ok(())
}

pub(super) async fn readdirplus<F: Trees>(
    request: &Request<'_, F>,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<(), Malformed> {
    let handle = wire::handle(&mut arguments)?;
    let cookie = arguments.u64()?;
    arguments.array::<8>()?;
    let dircount = arguments.u32()?;
    let maxcount = arguments.u32()?;
    arguments.end()?;
    let wanted = Wanted {
        cookie,
        name_bytes: dircount as usize,
        reply_bytes: maxcount.min(TRANSFER_BYTES) as usize,
        plus: true,
    };
    list(request, request.target(handle), &wanted, reply).await;
    Ok(())
}

/// The request of a client.
struct Wanted {
    cookie: u64,
    /// Limit for names, cookies and file ids alone (`dircount`).
    name_bytes: usize,
    /// Limit for all results (`count`, `maxcount`).
    reply_bytes: usize,
    plus: bool,
}

async fn list<F: Trees>(
    request: &Request<'_, F>,
    target: Result<Target<'_, F>, Status>,
    wanted: &Wanted,
    reply: &mut Reply,
) {
    let begin = reply.result_bytes();
    if let Err(status) = fill(request, target, wanted, reply).await {
        reply.truncate(begin);
        let attributes = request.attributes(target).await;
        let mut results = reply.results();
        results.status(status);
        results.post_op(request.ids(target), attributes.as_ref());
    }
}

/// Appends as many entries as fit.
async fn fill<F: Trees>(
    request: &Request<'_, F>,
    target: Result<Target<'_, F>, Status>,
    wanted: &Wanted,
    reply: &mut Reply,
) -> Result<(), Status> {
    let target = target?;
    let mut room = wanted
        .reply_bytes
        .checked_sub(FRAME_BYTES)
        .ok_or(Status::TOOSMALL)?;
    let mut name_room = wanted.name_bytes;
    let caller = request.identity(target)?;
    let beside = request.listed_beside(target).await?;
    let mut cookie = wanted.cookie;
    let mut entries = 0;
    let eof = 'listing: loop {
        let typical = match wanted.plus {
            false => TYPICAL_ENTRY_BYTES,
            true => TYPICAL_ENTRY_PLUS_BYTES,
        };
        let batch = (room / typical).clamp(*BATCH_ENTRIES.start(), *BATCH_ENTRIES.end());
        let directory = target.object;
        let listing = directory.readdir(&caller, cookie, batch, wanted.plus, beside);
        let listing = listing.await?;
        if entries == 0 && cookie == wanted.cookie {
            let mut results = reply.results();
            results.status(Status::OK);
            results.post_op(request.ids(Ok(target)), Some(&listing.directory));
            results.fixed(&VERIFIER);
        }
        let before = cookie;
        for mut entry in listing.entries {
            // Clients of an export must not see the directories above it.
            if &*entry.name == b".." && request.leads_out(target).await? {
                entry.inode = directory.inode;
                entry.attributes = entry.attributes.map(|_| listing.directory);
            }
            let object = directory.entry(&entry, &caller);
            let name_bytes = 8 + opaque_bytes(entry.name.len()) + 8;
            let bytes = 4
                + name_bytes
                + if wanted.plus {
                    plus_bytes(&entry, object.tree)
                } else {
                    0
                };
            if bytes > room || (name_bytes > name_room && entries > 0) {
                break 'listing false;
            }
            room -= bytes;
            name_room = name_room.saturating_sub(name_bytes);
            cookie = entry.cookie;
            entries += 1;
            append(request, (target, object), &entry, wanted.plus, reply);
        }
        if listing.end {
            break true;
        }
        if directory.is_trash() || cookie == before {
            // In the trash a step may pass over many files of others: one in a call. Elsewhere the file system returned
            // no entries, and not the end either.
            break false;
        }
    };
    if entries == 0 && !eof {
        return Err(Status::TOOSMALL);
    }
    let mut results = reply.results();
    results.bool(false);
    results.bool(eof);
    Ok(())
}

fn plus_bytes(entry: &DirectoryEntry, tree: Tree) -> usize {
    match (&entry.attributes, tree) {
        (None, _) => 8,
        (Some(_), Tree::Live | Tree::Removed) => PLUS_BYTES,
        (Some(_), _) => PLUS_BYTES + SNAPSHOT_HANDLE_BYTES - HANDLE_BYTES,
    }
}

fn append<F: Trees>(
    request: &Request<'_, F>,
    (directory, object): (Target<'_, F>, Object<'_, F>),
    entry: &DirectoryEntry,
    plus: bool,
    reply: &mut Reply,
) {
    let mut results = reply.results();
    results.bool(true);
    let ids = request.handles.ids(object.tree);
    results.u64(ids.fileid(object.inode));
    results.opaque(&entry.name);
    results.u64(entry.cookie);
    if !plus {
        return;
    }
    results.post_op(ids, entry.attributes.as_ref());
    results.bool(entry.attributes.is_some());
    if entry.attributes.is_some() {
        results.opaque(&request.handle(directory, object));
    }
}
