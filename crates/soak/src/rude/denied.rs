//! A user without rights.

use forebay_client::{Create, Reply, Request, Stable};

use super::{Place, Trouble, expect, file};

/// NFS3ERR_PERM and NFS3ERR_ACCES.
const REFUSED: [u32; 2] = [1, 13];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let closed = super::directory(&mut link, &home, "closed")?;
    let file = file(&mut link, &closed, "file")?;
    for (object, mode) in [(&file, 0o600), (&closed, 0o700)] {
        link.get(&Request::setattr(object, Some(mode), None), Reply::changed)?;
    }
    let mut user = place.link_as(1000);
    let calls = [
        Request::lookup(&closed, b"file"),
        Request::create(&closed, b"own", Create::Guarded, 0o644),
        Request::create(&home, b"own", Create::Unchecked, 0o644),
        Request::mkdir(&closed, b"own", 0o755),
        Request::remove(&closed, b"file"),
        Request::rename(&closed, b"file", &home, b"file"),
        Request::read(&file, 0, 4096),
        Request::write(&file, 0, b"mine", Stable::FileSync),
        Request::setattr(&file, Some(0o777), None),
        Request::readdirplus(&closed, 0, 8192),
    ];
    while place.turn() {
        for call in &calls {
            expect(&mut user, call, &REFUSED)?;
        }
    }
    Ok(())
}
