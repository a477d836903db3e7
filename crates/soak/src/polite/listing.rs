//! READDIRPLUS of a small directory.

use std::time::Duration;

use forebay_client::{Reply, Request};

use super::{Call, Client, SMALL_NAMES, Trouble, wrong};

/// Pause between two rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

const LIST: Call = Call {
    name: "READDIRPLUS, 50 names",
    has_goal: true,
    interval: INTERVAL,
};

pub(super) fn round(client: &mut Client, _number: u64) -> Result<(), Trouble> {
    let request = Request::readdirplus(&client.home.small, 0, 64 << 10);
    let listing = client.get(&LIST, &request, Reply::listed)?;
    // With "." and "..".
    let expected = SMALL_NAMES as usize + 2;
    match (listing.eof, listing.entries.len()) {
        (true, names) if names == expected => Ok(()),
        (eof, names) => Err(wrong(format!(
            "a listing of {expected} names gave {names}, its end {eof}"
        ))),
    }
}
