//! Exclusive CREATEs of one name.

use forebay_client::{Create, Request};

use super::{Place, Trouble, expect};

/// NFS3ERR_EXIST
const EXIST: u32 = 17;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    while place.turn() {
        let verifier = place.turn.to_be_bytes();
        let other = (!place.turn).to_be_bytes();
        let create = |how| Request::create(&own, b"lock", how, 0o600);
        expect(&mut link, &create(Create::Exclusive(verifier)), &[0])?;
        expect(&mut link, &create(Create::Exclusive(verifier)), &[0])?;
        expect(&mut link, &create(Create::Exclusive(other)), &[EXIST])?;
        expect(&mut link, &create(Create::Guarded), &[EXIST])?;
        expect(&mut link, &Request::remove(&own, b"lock"), &[0])?;
    }
    Ok(())
}
