//! Restarts of machines that do not exist, and locks under ever more names.

use forebay_client::Request;
use forebay_client::xdr::Encoder;

use super::locks::{answers, lock};
use super::{Place, Trouble, file};

/// The status monitor.
const NSM: (u32, u32) = (100_024, 1);

const BATCH: u64 = 10;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let file = file(&mut link, &home, "file")?;
    while place.turn() {
        let first = place.turn * BATCH;
        for number in first..first + BATCH {
            let name = format!("machine{number}");
            let arguments = Encoder::default()
                .opaque(name.as_bytes())
                .u32s(&[number as u32]);
            link.send(&Request::new(NSM, 6, "SM_NOTIFY", arguments))?;
        }
        // SM_NOTIFY has no results.
        while link.receive()?.is_some() {}
        for number in first..first + BATCH {
            let name = format!("name{number}");
            link.send(&lock(&file, name.as_bytes(), number, number, false))?;
        }
        answers(&mut link)?;
    }
    Ok(())
}
