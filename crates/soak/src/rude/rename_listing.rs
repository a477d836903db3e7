//! Renames of the names in a listing, as programs do that mark files as done.

use forebay_client::{Reply, Request};

use super::{Place, Trouble, expect, file, wrong};

const NAMES: usize = 300;

/// Bytes of a reply: some 20 names.
const REPLY_BYTES: u32 = 4096;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    for number in 0..NAMES {
        file(&mut link, &own, &format!("f{number:04}"))?;
    }
    loop {
        let (mut cookie, mut given, mut ended) = (0, 0, false);
        while !ended {
            let request = Request::readdirplus(&own, cookie, REPLY_BYTES);
            let listing = link.get(&request, Reply::listed)?;
            ended = listing.eof;
            for entry in listing.entries {
                cookie = entry.cookie;
                if entry.name.starts_with(b".") {
                    continue;
                }
                given += 1;
                if !place.turn() {
                    return Ok(());
                }
                let mut other = entry.name.clone();
                match other.first_mut() {
                    Some(first) if *first == b'f' => *first = b'g',
                    Some(first) => *first = b'f',
                    None => return wrong("a name without bytes"),
                }
                expect(
                    &mut link,
                    &Request::rename(&own, &entry.name, &own, &other),
                    &[0],
                )?;
            }
            if given > 3 * NAMES {
                return wrong(format!(
                    "a listing of {NAMES} names that are renamed meanwhile has given {given} and has no end"
                ));
            }
        }
    }
}
