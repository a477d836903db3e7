//! Repeated transaction numbers.

use std::io;
use std::time::Duration;

use forebay_client::{Caller, Create, Handle, Request};

use super::{Place, Trouble, wrong};
use crate::wire::Wire;

/// NFS3_OK, NFS3ERR_JUKEBOX, NFS3ERR_EXIST.
const OK: u32 = 0;
const LATER: u32 = 10008;
const EXIST: u32 = 17;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    let mut wire = place.wire()?;
    while place.turn() {
        let number = place.world.first_call();
        let (first, second) = (format!("a{}", place.turn), format!("b{}", place.turn));
        let one = create(&mut wire, number, &own, &first)?;
        // Repeated: the first answer again or, if the server has dropped it, that the name is taken.
        let again = create(&mut wire, number, &own, &first)?;
        if one == OK && ![OK, EXIST, LATER].contains(&again) {
            return wrong(format!("a repeated CREATE was answered with {again}"));
        }
        // Another call, which must not get the reply to the first.
        let other = create(&mut wire, number, &own, &second)?;
        let found = super::status(&mut link, &Request::lookup(&own, second.as_bytes()))?;
        if other == OK && found.is_some() {
            return wrong(
                "a CREATE under a number that was used before was acknowledged and not done",
            );
        }
        for name in [first, second] {
            super::status(&mut link, &Request::remove(&own, name.as_bytes()))?;
        }
    }
    Ok(())
}

/// The status of a CREATE that is sent under this number.
fn create(wire: &mut Wire, number: u32, parent: &Handle, name: &str) -> Result<u32, Trouble> {
    let request = Request::create(parent, name.as_bytes(), Create::Guarded, 0o644);
    wire.send(&request.record(number, Caller::ROOT))?;
    let reply = wire.record(Duration::from_secs(60))?;
    // A call that is repeated while it is executed may stay without an answer of its own.
    let reply = reply.ok_or(io::Error::from(io::ErrorKind::TimedOut))?;
    let status = reply.get(24..28).and_then(|bytes| bytes.first_chunk());
    match status {
        Some(status) => Ok(u32::from_be_bytes(*status)),
        None => wrong("a reply to CREATE without a status"),
    }
}
