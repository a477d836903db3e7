//! Renames across directories, into the depth of a tree.

use forebay_client::{Reply, Request};

use super::{Place, Trouble, directory, expect, file};

/// Most levels of a tree.
const DEEPEST: u64 = 20_000;

/// From about this level on, no directory can be moved there: it would have 4096 above it (docs/semantics.md).
const FAR: u64 = 4_000;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let own = place.own(&mut link)?;
    file(&mut link, &own, "moved")?;
    let mut bottom = directory(&mut link, &own, "deep")?;
    let mut depth = 0;
    while place.turn() {
        if depth < DEEPEST {
            let deeper = Request::mkdir(&bottom, b"d", 0o755);
            bottom = link.get(&deeper, Reply::made)?.handle;
            depth += 1;
        }
        match place.turn % 4 {
            // To the bottom and back.
            0 => {
                let there = Request::rename(&own, b"moved", &bottom, b"moved");
                expect(&mut link, &there, &[0])?;
                let back = Request::rename(&bottom, b"moved", &own, b"moved");
                expect(&mut link, &back, &[0])?;
            }
            // A directory into itself: NFS3ERR_INVAL, or NFS3ERR_NAMETOOLONG where the root is too far up for the
            // check.
            1 => {
                let into_itself = Request::rename(&own, b"deep", &bottom, b"deep");
                let refused: &[u32] = match depth < FAR {
                    true => &[22],
                    false => &[22, 63],
                };
                expect(&mut link, &into_itself, refused)?;
            }
            _ => {
                let nothing = Request::rename(&own, b"no such name", &bottom, b"z");
                expect(&mut link, &nothing, &[2])?;
            }
        }
    }
    Ok(())
}
