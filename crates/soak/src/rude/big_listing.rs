//! Large listings, from valid and made-up cookies.

use forebay_client::{Create, Failure, Reply, Request, Status};

use super::{Place, Trouble, settle, wrong};

const NAMES: u32 = 3000;

/// Bytes of a reply.
const REPLY_BYTES: u32 = 1 << 20;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    for number in 0..NAMES {
        settle(&mut link, 31)?;
        let name = format!("name{number}");
        link.send(&Request::create(
            &home,
            name.as_bytes(),
            Create::Unchecked,
            0o644,
        ))?;
        if number % 100 == 0 && place.world.is_ending() {
            return Ok(());
        }
    }
    settle(&mut link, 0)?;
    let mut cookie = 0;
    while place.turn() {
        let from = match place.turn % 4 {
            0 => 0,
            1 => place.random.number(),
            2 => u64::MAX,
            _ => cookie,
        };
        let reply = link.call(&Request::readdirplus(&home, from, REPLY_BYTES))?;
        match Reply::listed(reply) {
            Ok(listing) if from == 0 && listing.entries.is_empty() => {
                return wrong("a listing from the start gave nothing");
            }
            Ok(listing) => cookie = listing.entries.last().map_or(0, |entry| entry.cookie),
            // NFS3ERR_BAD_COOKIE
            Err(Failure::Status(Status(10003))) if from != 0 => {}
            Err(failure) => return wrong(format!("a listing: {failure}")),
        }
    }
    Ok(())
}
