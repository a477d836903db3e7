//! A copy, and a listing beside it over the same connection. The latencies of the listing's calls are measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_client::{CallId, Failure, Link, Request, Stable, Status, Steady};

use super::{Place, Trouble, file, wrong};

/// WRITEs in flight, as many as a kernel's client has.
const UNDER_WAY: usize = 16;

/// Size in MiB after which the file is written again from its start.
const FILE_MIB: u64 = 64;

/// The listing makes calls in one of this number of turns.
const ASKS_EACH: u64 = 10;

/// Interval of its calls if it does not wait.
const INTERVAL: Duration = Duration::from_millis(500);

/// Calls of the listing without an answer: their kind, and when they were sent.
type Asked = BTreeMap<CallId, (&'static str, Instant)>;

pub(super) fn run(place: &mut Place<'_>) -> Result<(), Trouble> {
    let mut link = place.link();
    let home = place.home(&mut link)?;
    let small = file(&mut link, &home, "small")?;
    let file = file(&mut link, &home, "large")?;
    let mut data = vec![0x3c; 1 << 20];
    let mut asked = Asked::new();
    while place.turn() {
        if link.outstanding() >= UNDER_WAY {
            answer(place, &mut link, &mut asked)?;
        }
        place.stamp(&mut data);
        let offset = (place.turn % FILE_MIB) << 20;
        link.send(&Request::write(&file, offset, &data, Stable::Unstable))?;
        if !place.each(ASKS_EACH) {
            continue;
        }
        for (kind, request) in [
            (
                "GETATTR beside a copy, same connection",
                Request::getattr(&small),
            ),
            (
                "LOOKUP beside a copy, same connection",
                Request::lookup(&home, b"small"),
            ),
        ] {
            asked.insert(link.send(&request)?, (kind, Instant::now()));
        }
        while !asked.is_empty() {
            answer(place, &mut link, &mut asked)?;
        }
    }
    Ok(())
}

/// Takes the next answer.
fn answer(place: &Place<'_>, link: &mut Link<Steady>, asked: &mut Asked) -> Result<(), Trouble> {
    let Some(answer) = link.receive()? else {
        return Ok(());
    };
    if let Some((kind, since)) = asked.remove(&answer.call) {
        let latencies = place.latencies;
        latencies.record(kind, true, INTERVAL, since.elapsed(), 0);
    }
    match answer.reply.done() {
        Ok(()) | Err(Failure::Status(Status::JUKEBOX)) => Ok(()),
        Err(failure) => wrong(format!("a copy: {failure}")),
    }
}
