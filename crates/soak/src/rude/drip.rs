//! Clients that take their replies slowly, and never stop.

use forebay_client::{Caller, Handle, Request, Stable};

use super::{Place, Trouble, file};
use crate::wire::Wire;

/// Connections.
const CONNECTIONS: usize = 12;

/// Bytes that each takes in a turn.
const SIP: usize = 20_000;

/// READs that a connection sends when it is new: 64 MiB of replies.
const READS: u32 = 64;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let file = readable_file(place)?;
    let mut wires: Vec<Option<Wire>> = (0..CONNECTIONS).map(|_| None).collect();
    while place.turn() {
        for wire in &mut wires {
            if let Some(open) = wire {
                // The server may close it; the next connection is opened a turn later.
                if open.sip(SIP).is_err() {
                    *wire = None;
                }
                continue;
            }
            let mut new = place.narrow_wire()?;
            new.send(&reads(place, &file, READS))?;
            *wire = Some(new);
        }
    }
    Ok(())
}

/// A file of 1 MiB in the directory of this kind.
pub(super) fn readable_file(place: &mut Place<'_>) -> Result<Handle, Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    let data = vec![0x77; 1 << 20];
    let write = Request::write(&file, 0, &data, Stable::FileSync);
    link.get(&write, |reply| reply.written())?;
    Ok(file)
}

/// Records of `count` READs of 1 MiB.
pub(super) fn reads(place: &Place<'_>, file: &Handle, count: u32) -> Vec<u8> {
    let first = place.world.first_call();
    let records = (0..count).map(|number| {
        Request::read(file, 0, 1 << 20).record(first.wrapping_add(number), Caller::ROOT)
    });
    records.collect::<Vec<_>>().concat()
}
