//! Handles that the server has not issued.

use forebay_client::{Handle, Request, Stable};
use forebay_crash::random::content;

use super::{Place, Trouble, expect, file};

/// NFS3ERR_STALE, NFS3ERR_BADHANDLE.
const REFUSED: [u32; 2] = [70, 10001];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    while place.turn() {
        let forged = match place.turn % 3 {
            // One changed bit in a valid handle.
            0 => {
                let mut bytes = file.0.clone();
                let bit = place.random.below(bytes.len() as u64 * 8);
                if let Some(byte) = bytes.get_mut(bit as usize / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                bytes
            }
            1 => content(place.random.number(), file.0.len()),
            _ => {
                let length = place.random.below(65);
                content(place.random.number(), length as usize)
            }
        };
        let forged = Handle(forged);
        expect(&mut link, &Request::getattr(&forged), &REFUSED)?;
        let write = Request::write(&forged, 0, b"forged", Stable::FileSync);
        expect(&mut link, &write, &REFUSED)?;
    }
    Ok(())
}
