//! Connections that come and go.

use std::time::Duration;

use forebay_client::{Caller, Request};

use super::{Place, Trouble};

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    while place.turn() {
        let mut wire = place.wire()?;
        let null = Request::null().record(place.world.first_call(), Caller::ROOT);
        match place.turn % 4 {
            0 => {}
            1 => {
                wire.send(&null)?;
                wire.record(Duration::from_secs(1))?;
            }
            2 => wire.send(&null)?,
            _ => {
                // It sends nothing more.
                wire.send(&null)?;
                wire.finish();
                wire.record(Duration::from_secs(1))?;
            }
        }
    }
    Ok(())
}
