//! An address that no export names.

use std::time::Duration;

use forebay_client::{Caller, Request};

use super::{Place, Trouble, wrong};
use crate::wire::Wire;

/// Connections that it tries to keep.
const CONNECTIONS: usize = 200;

/// New connections in a turn.
const NEW: usize = 50;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut wires: Vec<Wire> = Vec::new();
    while place.turn() {
        wires.retain_mut(Wire::is_open);
        for _ in 0..NEW.min(CONNECTIONS - wires.len()) {
            wires.push(place.wire()?);
        }
        let mut wire = place.wire()?;
        let call = Request::mount(b"/").record(place.world.first_call(), Caller::ROOT);
        // Closed without a word, or refused.
        if wire.send(&call).is_ok()
            && let Ok(Some(reply)) = wire.record(Duration::from_secs(1))
        {
            // Number, reply, accepted, verifier, executed; then the status of MNT.
            let accepted = reply.get(8..12) == Some(&[0; 4]);
            let executed = reply.get(20..24) == Some(&[0; 4]);
            if accepted && executed && reply.get(24..28) == Some(&[0; 4]) {
                return wrong("a stranger has mounted the volume");
            }
        }
    }
    Ok(())
}
