//! Calls in fragments of one byte, which RFC 5531 allows.

use std::time::Duration;

use forebay_client::{Caller, Request};

use super::{Place, Trouble, wrong};
use crate::wire::in_fragments;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut wire = place.wire()?;
    let root = place.world.root.clone();
    while place.turn() {
        let number = place.world.first_call();
        let record = Request::getattr(&root).record(number, Caller::ROOT);
        let message = record.get(4..).unwrap_or_default();
        wire.send(&in_fragments(message, 1))?;
        let Some(reply) = wire.record(super::TIMEOUT.min(Duration::from_secs(60)))? else {
            return wrong("a call in small fragments has had no answer for a minute");
        };
        if reply.get(..4) != Some(&number.to_be_bytes()) {
            return wrong("a call in small fragments was answered under another number");
        }
    }
    Ok(())
}
