//! GETATTR and LOOKUP.

use std::time::Duration;

use forebay_client::{Reply, Request};

use super::{Call, Client, HOT_BYTES, SMALL_NAMES, Trouble, small_name, wrong};

/// Pause between two rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

const GETATTR: Call = Call {
    name: "GETATTR",
    has_goal: true,
    interval: INTERVAL,
};
const LOOKUP: Call = Call {
    name: "LOOKUP",
    has_goal: true,
    interval: INTERVAL,
};

pub(super) fn round(client: &mut Client, number: u64) -> Result<(), Trouble> {
    let request = Request::getattr(&client.home.hot);
    let attributes = client.get(&GETATTR, &request, Reply::attributes)?;
    if attributes.size != HOT_BYTES as u64 {
        return Err(wrong(format!("a file has {} bytes", attributes.size)));
    }
    let name = small_name(number as u32 % SMALL_NAMES);
    let request = Request::lookup(&client.home.small, name.as_bytes());
    client.get(&LOOKUP, &request, Reply::found)?;
    Ok(())
}
