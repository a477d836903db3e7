//! Single bytes with gaps between them.

use forebay_client::{Reply, Request, Stable};

use super::{Place, Trouble, file, settle};

/// The range in which the bytes are.
const RANGE: u64 = 1 << 20;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    while place.turn() {
        for _ in 0..50 {
            let offset = place.random.below(RANGE);
            link.send(&Request::write(&file, offset, b"x", Stable::Unstable))?;
        }
        settle(&mut link, 0)?;
        if place.each(10) {
            link.get(&Request::read(&file, 0, RANGE as u32), Reply::data)?;
        }
    }
    Ok(())
}
