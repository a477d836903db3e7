//! Directories that were large once.

use std::collections::BTreeMap;

use forebay_client::{Create, Failure, Link, Reply, Request, Status, Steady};

use super::{Place, Trouble, wrong};

/// CREATEs and REMOVEs of a turn.
const BATCH: u64 = 10;

/// "." and "..".
const EMPTY: usize = 2;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    while place.turn() {
        let names: Vec<_> = (0..BATCH)
            .map(|number| format!("m{}", place.turn * BATCH + number))
            .collect();
        let mut created = Vec::new();
        for name in &names {
            let request = Request::create(&own, name.as_bytes(), Create::Guarded, 0o644);
            created.push(request);
        }
        all(&mut link, &created)?;
        let removals = names
            .iter()
            .map(|name| Request::remove(&own, name.as_bytes()));
        all(&mut link, &removals.collect::<Vec<_>>())?;
        if place.each(10) {
            let request = Request::readdirplus(&own, 0, 8192);
            let listing = link.get(&request, Reply::listed)?;
            if !listing.eof || listing.entries.len() != EMPTY {
                return wrong(format!(
                    "a directory from which all was removed lists {} names",
                    listing.entries.len()
                ));
            }
        }
    }
    Ok(())
}

/// Makes all these calls at once; each has to succeed.
fn all(link: &mut Link<Steady>, requests: &[Request]) -> Result<(), Trouble> {
    let mut calls = BTreeMap::new();
    for request in requests {
        calls.insert(link.send(request)?, request);
    }
    while let Some(answer) = link.receive()? {
        let Some(request) = calls.remove(&answer.call) else {
            continue;
        };
        match answer.reply.done() {
            Ok(()) => {}
            Err(Failure::Status(Status::JUKEBOX)) => {
                calls.insert(link.send(request)?, request);
            }
            Err(failure) => return wrong(format!("{}: {failure}", request.name)),
        }
    }
    Ok(())
}
