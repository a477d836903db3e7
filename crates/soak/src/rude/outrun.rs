//! Writers that outrun the bucket.

use forebay_client::{Request, Stable};

use super::{Place, Trouble, file, settle};

/// WRITEs in flight.
const UNDER_WAY: usize = 8;

/// Size in MiB after which each file is written again from its start.
const FILE_MIB: u64 = 64;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, &format!("large{}", place.thread))?;
    let mut data = vec![0x5a; 1 << 20];
    while place.turn() {
        place.stamp(&mut data);
        let offset = (place.turn % FILE_MIB) << 20;
        settle(&mut link, UNDER_WAY - 1)?;
        link.send(&Request::write(&file, offset, &data, Stable::Unstable))?;
    }
    Ok(())
}
