//! READs of a file that is read all the time, and so stays in memory.

use std::sync::LazyLock;
use std::time::Duration;

use forebay_client::{Reply, Request};
use forebay_crash::random::content;

use super::{Call, Client, HOT_BYTES, HOT_SEED, Trouble, wrong};

/// Pause between two rounds.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// One in this number of rounds reads 1 MiB.
const LARGE_EACH: u64 = 10;

const SMALL: Call = Call {
    name: "READ 4 KiB",
    has_goal: true,
    interval: INTERVAL,
};
const LARGE: Call = Call {
    name: "READ 1 MiB",
    has_goal: true,
    interval: Duration::from_millis(500),
};

static HOT: LazyLock<Vec<u8>> = LazyLock::new(|| content(HOT_SEED, HOT_BYTES));

pub(super) fn round(client: &mut Client, number: u64) -> Result<(), Trouble> {
    // Moves on by 509 blocks: reads all of them in turn, and never two adjacent ones in a row.
    let block = number * 509 % (HOT_BYTES as u64 / 4096);
    read(client, &SMALL, block * 4096, 4096)?;
    if number.is_multiple_of(LARGE_EACH) {
        let piece = number / LARGE_EACH % (HOT_BYTES as u64 >> 20);
        read(client, &LARGE, piece << 20, 1 << 20)?;
    }
    Ok(())
}

fn read(client: &mut Client, call: &Call, offset: u64, count: u32) -> Result<(), Trouble> {
    let request = Request::read(&client.home.hot, offset, count);
    let (data, _) = client.get(call, &request, Reply::data)?;
    // A server may return fewer bytes than requested, but not other ones.
    let start = offset as usize;
    if data.is_empty() || HOT.get(start..start + data.len()) != Some(data.as_slice()) {
        return Err(wrong(format!(
            "{} at {offset} gave {} bytes that are not those of the file",
            call.name,
            data.len()
        )));
    }
    Ok(())
}
