//! The same call, as often as possible.

use forebay_client::Request;

use super::{Place, Trouble, settle};

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let request = Request::getattr(&home);
    while place.turn() {
        for _ in 0..64 {
            link.send(&request)?;
        }
        settle(&mut link, 0)?;
    }
    Ok(())
}
