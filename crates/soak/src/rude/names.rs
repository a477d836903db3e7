//! Ever more names. Each acknowledged one must exist in the end.

use std::collections::BTreeMap;

use forebay_client::{Create, Failure, Request, Status};

use super::{Place, Trouble, directory, wrong};
use crate::ledger::numbered;

/// CREATEs in flight.
const BATCH: u32 = 32;

/// Names in a directory; then the next one is begun.
const DIRECTORY: u32 = 20_000;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    let own_path = format!("{}/{}", place.kind.name, place.own_name());
    let mut number = 0;
    let mut current = None;
    while place.turn() {
        let name = format!("d{}", number / DIRECTORY);
        let path = format!("{own_path}/{name}");
        let parent = match &current {
            Some((known, handle)) if *known == name => handle,
            _ => {
                let handle = directory(&mut link, &own, &name)?;
                &current.insert((name, handle)).1
            }
        };
        let create = |number| {
            let name = numbered(number);
            Request::create(parent, name.as_bytes(), Create::Unchecked, 0o644)
        };
        let mut calls = BTreeMap::new();
        for number in number..number + BATCH {
            calls.insert(link.send(&create(number))?, number);
        }
        while let Some(answer) = link.receive()? {
            let Some(number) = calls.remove(&answer.call) else {
                continue;
            };
            match answer.reply.done() {
                Ok(()) => place.world.ledger.name(&path, number),
                Err(Failure::Status(Status::JUKEBOX)) => {
                    calls.insert(link.send(&create(number))?, number);
                }
                Err(failure) => return wrong(format!("CREATE: {failure}")),
            }
        }
        number += BATCH;
    }
    Ok(())
}
