//! Credentials, versions and programs of all kinds.

use std::time::Duration;

use forebay_client::xdr::Encoder;

use super::{Place, Trouble, wrong};
use crate::wire::{Wire, in_fragments};

/// AUTH_SYS as root, without groups.
fn root() -> Encoder {
    groups(0)
}

/// AUTH_SYS with `count` groups; 16 are allowed.
fn groups(count: u32) -> Encoder {
    let head = Encoder::default().u32s(&[0]).opaque(b"soak");
    let body = head.u32s(&[0, 0, count]).u32s(&vec![7; count as usize]);
    Encoder::default().u32s(&[1]).opaque(&body.0)
}

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut wire = place.wire()?;
    while place.turn() {
        let number = place.world.first_call();
        let nfs = |credential| message(number, 2, (100_003, 3), credential);
        let flavor = |number| Encoder::default().u32s(&[number, 0]);
        let bytes = match place.turn % 10 {
            0 => nfs(flavor(0)),
            1 => nfs(groups(16)),
            2 => nfs(groups(17)),
            // RPCSEC_GSS, and a flavor that does not exist.
            3 => nfs(flavor(6)),
            4 => nfs(flavor(99)),
            // A body that is longer than 400 bytes.
            5 => nfs(Encoder::default().u32s(&[1]).opaque(&[0; 404])),
            // Other versions of RPC and NFS, and other programs.
            6 => message(number, 3, (100_003, 3), root()),
            7 => message(number, 2, (100_003, 4), root()),
            8 => message(number, 2, (100_227, 3), root()),
            _ => message(number, 2, (100_000, 2), root()),
        };
        wire.send(&in_fragments(&bytes, usize::MAX))?;
        answered(&mut wire, number)?;
    }
    Ok(())
}

/// A NULL call.
fn message(number: u32, rpc: u32, (program, version): (u32, u32), credential: Encoder) -> Vec<u8> {
    let head = Encoder::default().u32s(&[number, 0, rpc, program, version, 0]);
    [head.0, credential.0, vec![0; 8]].concat()
}

/// Expects any answer to each of these calls, or a closed connection, after which the client starts over.
fn answered(wire: &mut Wire, number: u32) -> Result<(), Trouble> {
    let Some(reply) = wire.record(Duration::from_secs(60))? else {
        return wrong("a call with an odd credential has had no answer for a minute");
    };
    match reply.get(..4) == Some(&number.to_be_bytes()) {
        true => Ok(()),
        false => wrong("a call with an odd credential was answered under another number"),
    }
}
