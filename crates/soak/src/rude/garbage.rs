//! Bytes that are no RPC.

use std::time::Duration;

use forebay_crash::random::content;

use super::{Place, Trouble};
use crate::wire::LAST_FRAGMENT;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    while place.turn() {
        let mut bytes = content(place.random.number(), 300);
        if place.each(2) {
            bytes.splice(0..0, (LAST_FRAGMENT | 300).to_be_bytes());
        }
        let mut wire = place.wire()?;
        wire.send(&bytes)?;
        // Any answer is allowed; most often the server closes the connection.
        let _ = wire.record(Duration::from_millis(20));
    }
    Ok(())
}
