//! Records that arrive byte by byte.

use forebay_client::{Caller, Request};

use super::{Place, Trouble};
use crate::wire::Wire;

const CONNECTIONS: usize = 16;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let root = place.world.root.clone();
    let record = Request::getattr(&root).record(place.world.first_call(), Caller::ROOT);
    let mut wires: Vec<Option<(Wire, usize)>> = (0..CONNECTIONS).map(|_| None).collect();
    while place.turn() {
        for place_of in &mut wires {
            let Some((wire, sent)) = place_of else {
                *place_of = Some((place.wire()?, 0));
                continue;
            };
            let byte = record.get(*sent % record.len()..).and_then(<[u8]>::first);
            match wire.send(&byte.map_or([0], |byte| [*byte])) {
                Ok(()) if wire.is_open() => *sent += 1,
                _ => *place_of = None,
            }
        }
    }
    Ok(())
}
