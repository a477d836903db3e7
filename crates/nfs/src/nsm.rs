//! NSM, the network status monitor, version 1 (X/Open XNFS, chapter 11): notices of reboots.
//!
//! A client sends SM_NOTIFY after it has rebooted; that releases all locks it held before. The other procedures
//! are for the lock manager on the same machine, which does not need them here: monitoring is refused.

use std::net::IpAddr;

use crate::locks::LockManager;
use crate::nlm::object;
use crate::rpc::Reply;
use crate::xdr::{Malformed, Reader, Writer};

/// Program number.
pub const PROGRAM: u32 = 100_024;
/// The only version of the program that is served.
pub const VERSION: u32 = 1;

/// SM_NOTIFY.
pub(crate) const NOTIFY: u32 = 6;

/// `res`: no host is monitored for others.
const STAT_FAIL: u32 = 1;

/// Whether the procedure exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    NoProcedure,
}

/// Executes a call that came from `host`, and appends its results.
pub(crate) fn call(
    locks: &LockManager,
    host: IpAddr,
    procedure: u32,
    mut arguments: Reader<'_>,
    reply: &mut Reply,
) -> Result<Done, Malformed> {
    let state = locks.state().cast_unsigned();
    match procedure {
        // SM_NULL
        0 => arguments.end()?,
        // SM_STAT, SM_MON: the arguments (the host to monitor, the callback) do not matter.
        1 | 2 => {
            object(&mut arguments)?;
            let mut results = reply.results();
            results.u32(STAT_FAIL);
            results.u32(state);
        }
        // SM_UNMON, SM_UNMON_ALL
        3 | 4 => reply.results().u32(state),
        NOTIFY => {
            let name = object(&mut arguments)?;
            let state = arguments.u32()?.cast_signed();
            arguments.end()?;
            // A host speaks for itself only: otherwise it could take the locks of others away.
            locks.rebooted(host, name, state);
        }
        _ => return Ok(Done::NoProcedure),
    }
    Ok(Done::Yes)
}

/// Arguments of SM_NOTIFY: the server, under `name`, has restarted.
pub(crate) fn notice(name: &str, state: i32) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut writer = Writer::new(&mut arguments);
    writer.opaque(name.as_bytes());
    writer.u32(state.cast_unsigned());
    arguments
}
