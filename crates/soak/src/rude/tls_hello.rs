//! TLS, without asking and after asking.

use std::time::Duration;

use forebay_client::xdr::Encoder;

use super::{Place, Trouble, wrong};
use crate::wire::{LAST_FRAGMENT, in_fragments};

/// The beginning of a ClientHello of TLS 1.2: handshake, version, length, then its body.
const HELLO: [u8; 11] = [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];

/// Flavor of the probe of RFC 9289.
const AUTH_TLS: u32 = 7;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut hello = HELLO.to_vec();
    hello.resize(205, 0x2a);
    while place.turn() {
        let mut wire = place.wire()?;
        if place.each(2) {
            let number = place.world.first_call();
            let probe = Encoder::default().u32s(&[number, 0, 2, 100_003, 3, 0, AUTH_TLS, 0, 0, 0]);
            wire.send(&in_fragments(&probe.0, LAST_FRAGMENT as usize - 1))?;
            if let Some(reply) = wire.record(Duration::from_secs(1))?
                && reply.windows(8).any(|bytes| bytes == b"STARTTLS")
            {
                return wrong("a gateway without a certificate offers TLS");
            }
        }
        // The server may have closed.
        let _ = wire.send(&hello);
        let _ = wire.record(Duration::from_millis(20));
    }
    Ok(())
}
