//! Records of which only half is sent.

use super::{Place, Trouble};
use crate::wire::{LAST_FRAGMENT, Wire};

/// Connections.
const CONNECTIONS: usize = 24;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut half = (LAST_FRAGMENT | 1 << 20).to_be_bytes().to_vec();
    half.resize(512 << 10, 0);
    let mut wires: Vec<Option<Wire>> = (0..CONNECTIONS).map(|_| None).collect();
    while place.turn() {
        for wire in &mut wires {
            if wire.as_mut().is_some_and(Wire::is_open) {
                continue;
            }
            let mut new = place.wire()?;
            // The server may take only a part of it.
            *wire = new.offer(&half).is_ok().then_some(new);
        }
    }
    Ok(())
}
