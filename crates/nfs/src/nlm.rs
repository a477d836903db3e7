//! NLM, the network lock manager, version 4 (X/Open XNFS, chapter 10; RFC 1813, appendix II): byte-range locks
//! and share reservations between clients.
//!
//! Each of the four locking calls has two forms: with its results in the reply, or with an empty reply and the
//! results in a separate call from the server (`_MSG` and `_RES`). Linux uses the first, BSD and macOS the second;
//! both end in the same procedures here. NFSv3 uses version 4; older versions are for NFSv2.

mod procedures;
mod wire;

pub(crate) use procedures::Request;
pub(crate) use wire::{Lock, Status, object};

use forebay_lock::Grant;
use forebay_vfs::Trees;

use crate::locks::Callback;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader, Writer};

/// Program number.
pub const PROGRAM: u32 = 100_021;
/// The only version of the program that is served.
pub const VERSION: u32 = 4;

/// NLM_GRANTED, which this server calls on its clients.
pub(crate) const GRANTED: u32 = 5;
const TEST_MSG: u32 = 6;
const UNLOCK_MSG: u32 = 9;
const GRANTED_MSG: u32 = 10;
/// Offset from a procedure's number to that of its asynchronous form, and from there to that of its results.
const FORM: u32 = 5;
const FREE_ALL: u32 = 23;

/// Whether the procedure exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    NoProcedure,
}

/// Whether a late call, after others of its client, could do harm: a LOCK whose
/// lock has been released meanwhile, or an UNLOCK of a range that has been locked again. Repetitions of these calls get
/// the first reply. A new call for the same lock (as Linux sends while it waits) is evaluated again.
pub(crate) fn is_replayed(procedure: u32) -> bool {
    matches!(procedure, 2..=4 | 7..=9 | 20..=FREE_ALL)
}

/// Upper bound for the bytes of a reply: that of TEST, with the other owner's handle and the cookie.
pub(crate) const REPLY_BYTES: usize = 128 + 2 * wire::MAX_OBJECT_BYTES;

/// Executes a call; appends its results, or queues them for a separate call.
pub(crate) async fn call<F: Trees>(
    request: &Request<'_, F>,
    procedure: u32,
    arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<Done, Malformed> {
    match procedure {
        // NULL
        0 => arguments.end()?,
        1..=4 => {
            let mut results = Vec::new();
            request.answer(procedure, arguments, &mut results).await?;
            reply.results().fixed(&results);
        }
        TEST_MSG..=UNLOCK_MSG => {
            let mut results = Vec::new();
            request
                .answer(procedure - FORM, arguments, &mut results)
                .await?;
            request
                .locks
                .send_results(request.remote(), procedure + FORM, results);
        }
        // This server waits for no locks, so it refuses grants. It sends no calls of the asynchronous form either:
        // result calls (TEST_RES and so on) have no addressee here.
        GRANTED | GRANTED_MSG => {
            let mut results = Vec::new();
            procedures::not_waiting(arguments, &mut results)?;
            if procedure == GRANTED {
                reply.results().fixed(&results);
            } else {
                request
                    .locks
                    .send_results(request.remote(), procedure + FORM, results);
            }
        }
        11..=15 => {}
        // SHARE, UNSHARE, NM_LOCK
        20..=22 => {
            let mut results = Vec::new();
            request.answer(procedure, arguments, &mut results).await?;
            reply.results().fixed(&results);
        }
        FREE_ALL => request.free_all(arguments)?,
        _ => return Ok(Done::NoProcedure),
    }
    Ok(Done::Yes)
}

/// Arguments of NLM_GRANTED.
pub(crate) fn granted_arguments(grant: &Grant<Callback>) -> Vec<u8> {
    let (lock, owner) = (&grant.lock, &grant.lock.owner);
    let mut arguments = Vec::new();
    let mut writer = Writer::new(&mut arguments);
    writer.opaque(&grant.tag.cookie);
    writer.bool(lock.exclusive);
    let wire = Lock {
        caller: &owner.client.name,
        handle: &grant.tag.handle,
        owner: &owner.handle,
        process: owner.process,
        offset: lock.range.offset(),
        length: lock.range.length(),
    };
    wire.encode(&mut writer);
    arguments
}

/// Decodes a client's answer to NLM_GRANTED.
pub(crate) fn granted_answer(results: &[u8]) -> Result<Status, Malformed> {
    let mut reader = Reader::new(results);
    object(&mut reader)?;
    Ok(Status(reader.u32()?))
}
