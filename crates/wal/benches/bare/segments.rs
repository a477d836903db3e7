//! Appends at full speed: how many had to wait for a segment, for how long in total, and the rate.

use std::time::Instant;

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::Failure;
use crate::log::Log;

const SIZES: [(&str, usize); 3] = [("512 B", 512), ("32 KiB", 32 << 10), ("1 MiB", 1 << 20)];
/// Bytes of payload of one turn.
const TURN_BYTES: u64 = 1 << 30;

fn key(size: &str, of: &str) -> String {
    format!("{size} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let turn = if full { TURN_BYTES } else { 80 << 20 };
    let log = Log::open()?;
    let payload = vec![0x5a; 1 << 20];
    log.append_bytes(&payload, turn)?;
    let mut once = || {
        let mut round = Round::default();
        for (name, size) in SIZES {
            let began = Instant::now();
            let waits = log.append_bytes(&payload[..size], turn)?;
            let taken = began.elapsed().as_secs_f64();
            round.insert(key(name, "waits"), waits.count as f64);
            round.insert(key(name, "ms"), waits.time.as_secs_f64() * 1e3);
            round.insert(key(name, "rate"), turn as f64 / taken / 1e6);
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "1 GiB appended at full speed",
        "waits for a segment",
        "ms waited",
        "MB/s",
    ]);
    for (size, _) in SIZES {
        text += &table::line([
            size.to_owned(),
            table::whole(rounds.median(&key(size, "waits"))),
            table::digits(rounds.median(&key(size, "ms"))),
            table::whole(rounds.median(&key(size, "rate"))),
        ]);
    }
    text
}
