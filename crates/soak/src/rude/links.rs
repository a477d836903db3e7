//! One file under many names, and links that point to each other.

use forebay_client::{Reply, Request};

use super::{Place, Trouble, directory, expect, file};

/// Most names of the file.
const NAMES: u64 = 500;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    let other = directory(&mut link, &own, "other")?;
    let file = file(&mut link, &own, "file")?;
    while place.turn() {
        let name = format!("name{}", place.turn);
        expect(
            &mut link,
            &Request::link(&file, &other, name.as_bytes()),
            &[0],
        )?;
        if place.turn > NAMES {
            let oldest = format!("name{}", place.turn - NAMES);
            // The name is missing if this life began later.
            expect(
                &mut link,
                &Request::remove(&other, oldest.as_bytes()),
                &[0, 2],
            )?;
        }
        if place.each(4) {
            let (first, second) = (format!("x{}", place.turn), format!("y{}", place.turn));
            for (name, target) in [(&first, &second), (&second, &first)] {
                let symlink = Request::symlink(&own, name.as_bytes(), target.as_bytes());
                let made = link.get(&symlink, Reply::made)?.handle;
                link.get(&Request::readlink(&made), Reply::target)?;
                // A link is no directory: NFS3ERR_NOTDIR.
                expect(&mut link, &Request::lookup(&made, b"z"), &[20])?;
            }
            for name in [first, second] {
                expect(&mut link, &Request::remove(&own, name.as_bytes()), &[0])?;
            }
        }
    }
    Ok(())
}
