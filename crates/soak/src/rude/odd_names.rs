//! Invalid names, and names that look like something else.

use forebay_client::{Create, Request};

use super::{Place, Trouble, expect};

/// NFS3ERR_ACCES, NFS3ERR_EXIST, NFS3ERR_INVAL, NFS3ERR_NAMETOOLONG.
const REFUSED: [u32; 4] = [13, 17, 22, 63];

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    let (longest, too_long, endless) = (vec![b'n'; 255], vec![b'n'; 256], vec![b'n'; 60_000]);
    let names: [(&[u8], bool); 10] = [
        (b"", false),
        (b".", false),
        (b"..", false),
        (b"a/b", false),
        (b"a\0b", false),
        (&too_long, false),
        (&endless, false),
        (&longest, true),
        (b"\xff\xfe\x80", true),
        (b"-rf *\n", true),
    ];
    while place.turn() {
        let Some((name, good)) = names.get(place.turn as usize % names.len()) else {
            continue;
        };
        let create = Request::create(&own, name, Create::Guarded, 0o644);
        if *good {
            expect(&mut link, &create, &[0])?;
            expect(&mut link, &Request::lookup(&own, name), &[0])?;
            expect(&mut link, &Request::remove(&own, name), &[0])?;
        } else {
            expect(&mut link, &create, &REFUSED)?;
        }
    }
    Ok(())
}
