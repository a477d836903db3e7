//! A call that goes out, and the reply to it (RFC 5531).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Program;
use crate::rpc::{AUTH_NONE, CALL, MAX_AUTH_BYTES, REPLY, RPC_VERSION};
use crate::xdr::{Malformed, Reader, Writer};

/// Why a call has no results.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No reply arrived.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
    /// The other side replied, without results.
    #[error("{0}")]
    Refused(&'static str),
}

/// The next call's transaction id. The first value does not matter: each call has a socket of its own.
static XID: AtomicU32 = AtomicU32::new(1);

/// Encodes a call without credentials; returns its transaction id and the message.
pub(crate) fn call(program: Program, procedure: u32, arguments: &[u8]) -> (u32, Vec<u8>) {
    let xid = XID.fetch_add(1, Ordering::Relaxed);
    let mut wire = Vec::with_capacity(40 + arguments.len());
    let mut writer = Writer::new(&mut wire);
    let Program { number, version } = program;
    for value in [xid, CALL, RPC_VERSION, number, version, procedure] {
        writer.u32(value);
    }
    // Credential and verifier.
    for _ in 0..2 {
        writer.u32(AUTH_NONE);
        writer.opaque(&[]);
    }
    wire.extend_from_slice(arguments);
    (xid, wire)
}

/// Returns the results in a reply to the call with this transaction id.
pub(crate) fn results(xid: u32, reply: &[u8]) -> Result<&[u8], Failure> {
    let malformed = |Malformed| Failure::Refused("its reply is malformed");
    let mut reader = Reader::new(reply);
    let mut number = || reader.u32().map_err(malformed);
    if (number()?, number()?) != (xid, REPLY) {
        return Err(Failure::Refused("its reply is to another call"));
    }
    if number()? != 0 {
        return Err(Failure::Refused("it denies the call"));
    }
    // The verifier; AUTH_NONE, so its contents do not matter.
    number()?;
    reader.opaque(MAX_AUTH_BYTES).map_err(malformed)?;
    match reader.u32().map_err(malformed)? {
        0 => Ok(reader.rest()),
        1 | 2 => Err(Failure::Refused("it does not have the program")),
        3 => Err(Failure::Refused("it does not have the procedure")),
        _ => Err(Failure::Refused("it cannot do the call")),
    }
}
