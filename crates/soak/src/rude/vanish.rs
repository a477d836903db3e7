//! Clients that vanish in the middle of a call.

use forebay_client::{Caller, Request, Stable};

use super::{Place, Trouble, file};

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    let data = vec![b'v'; 1 << 20];
    while place.turn() {
        let first = place.world.first_call();
        let mut wire = place.wire()?;
        if place.each(2) {
            let write = Request::write(&file, 0, &data, Stable::Unstable);
            let record = write.record(first, Caller::ROOT);
            wire.send(record.get(..record.len() / 2).unwrap_or_default())?;
        } else {
            for number in 0..8_u32 {
                let read = Request::read(&file, 0, 1 << 20);
                wire.send(&read.record(first.wrapping_add(number), Caller::ROOT))?;
            }
        }
        wire.reset();
    }
    Ok(())
}
