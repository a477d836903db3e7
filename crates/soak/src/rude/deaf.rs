//! Clients that never read a reply.

use super::drip::{readable_file, reads};
use super::{Place, Trouble};
use crate::wire::Wire;

/// Connections.
const CONNECTIONS: usize = 8;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let file = readable_file(place)?;
    let calls = reads(place, &file, 256);
    let mut wires: Vec<Option<(Wire, usize)>> = (0..CONNECTIONS).map(|_| None).collect();
    while place.turn() {
        for place_of in &mut wires {
            match place_of {
                Some((wire, sent)) => {
                    let rest = calls.get(*sent..).unwrap_or_default();
                    match wire.offer(rest) {
                        Ok(taken) => *sent += taken,
                        Err(_) => *place_of = None,
                    }
                }
                None => *place_of = Some((place.narrow_wire()?, 0)),
            }
        }
    }
    Ok(())
}
