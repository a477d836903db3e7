//! A file that grows and shrinks.

use forebay_client::{Request, Stable};

use super::{Place, Trouble, expect, file};

const SIZES: [u64; 7] = [1 << 40, 0, 10 << 20, 1, (4 << 20) + 1, 1 << 30, 4095];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    let mut data = vec![b't'; 4096];
    while place.turn() {
        let at = place.turn as usize % SIZES.len();
        let size = SIZES.get(at).copied().unwrap_or(0);
        expect(&mut link, &Request::setattr(&file, None, Some(size)), &[0])?;
        place.stamp(&mut data);
        let write = Request::write(&file, size, &data, Stable::Unstable);
        expect(&mut link, &write, &[0])?;
    }
    Ok(())
}
