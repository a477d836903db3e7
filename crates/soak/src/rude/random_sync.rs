//! Stable writes at random places. The end of the run compares the acknowledged ones.

use forebay_client::{Reply, Request, Stable};
use forebay_crash::random::content;

use super::{Place, Trouble, lookup, wrong};
use crate::ledger::BLOCK_BYTES;

/// Blocks of the file.
const BLOCKS: u64 = 2048;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let name = format!("file{}", place.thread);
    // The file must not be emptied after its connection has broken: it holds acknowledged data.
    let file = match lookup(&mut link, &home, &name) {
        Ok(file) => file,
        Err(_) => super::file(&mut link, &home, &name)?,
    };
    let path = format!("{}/{name}", place.kind.name);
    while place.turn() {
        let block = place.random.below(BLOCKS);
        let seed = place.random.number();
        let data = content(seed, BLOCK_BYTES);
        let offset = block * BLOCK_BYTES as u64;
        place.world.ledger.writing(&path, block, seed);
        let request = Request::write(&file, offset, &data, Stable::FileSync);
        let written = link.get(&request, Reply::written)?;
        if written.count as usize != BLOCK_BYTES || written.stable != Stable::FileSync {
            return wrong("a stable WRITE was not done as a whole");
        }
        place.world.ledger.written(&path, block, seed);
    }
    Ok(())
}
