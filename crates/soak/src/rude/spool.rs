//! A queue of messages.

use forebay_client::{Request, Stable};

use super::{Place, Trouble, directory, expect, file};

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    let incoming = directory(&mut link, &own, "tmp")?;
    let queue = directory(&mut link, &own, "new")?;
    let mut data = vec![b'm'; 1024];
    while place.turn() {
        place.stamp(&mut data);
        let name = format!("message{}", place.turn);
        let message = file(&mut link, &incoming, &name)?;
        let write = Request::write(&message, 0, &data, Stable::FileSync);
        expect(&mut link, &write, &[0])?;
        let rename = Request::rename(&incoming, name.as_bytes(), &queue, name.as_bytes());
        expect(&mut link, &rename, &[0])?;
        expect(&mut link, &Request::remove(&queue, name.as_bytes()), &[0])?;
    }
    Ok(())
}
