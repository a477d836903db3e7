//! A file of 256 MiB in records of 1 MiB, with one commit at the end and nothing recycled meanwhile, as of a client that
//! copies a file. Beside it as many bytes by `write` with one `fdatasync` at the end, as `dd bs=1M conv=fdatasync`
//! writes them: to a new file, and over an existing one.
//!
//! * *Fresh*: the log is new, so each segment is a new file.
//! * *Recycled*: each segment has had an earlier life, and is not mapped when it is prepared.
//! * *After a rest*: the same, and nothing has happened for 6 s.
//!
//! *The last wait* is the time of the commit: a log that begins to write while records arrive has little left then.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::clock::process_cpu;
use crate::log::{Log, Waits, wait};
use crate::{Failure, disk};

const RECORD: usize = 1 << 20;
/// Bytes of payload of one turn.
const TURN_BYTES: u64 = 256 << 20;
const REST: Duration = Duration::from_secs(6);

const FRESH: &str = "log, fresh";
const RECYCLED: &str = "log, recycled";
const RESTED: &str = "log, after 6 s of rest";
const NEW: &str = "`write` and `fdatasync`, new file";
const EXISTING: &str = "`write` and `fdatasync`, existing file";
const ROWS: [&str; 5] = [FRESH, RECYCLED, RESTED, NEW, EXISTING];

const RATE: &str = "MB/s";
const LAST: &str = "last wait";
const WAITS: &str = "waits";
const WAITED: &str = "waited";
const FLUSHES: &str = "flushes";
const PROCESSOR: &str = "processor";
const WRITES: &str = "writes";

fn key(row: &str, of: &str) -> String {
    format!("{row} {of}")
}

/// Runs `work`, which writes `bytes`, and notes its rate, its processor time and the writes of the disk.
fn timed<T>(
    round: &mut Round,
    row: &str,
    bytes: u64,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (asked, processor, began) = (disk::asked(), process_cpu(), Instant::now());
    let result = work()?;
    let (taken, processor) = (began.elapsed(), process_cpu() - processor);
    round.insert(key(row, RATE), bytes as f64 / taken.as_secs_f64() / 1e6);
    let gigabytes = bytes as f64 / 1e9;
    round.insert(key(row, PROCESSOR), processor.as_secs_f64() / gigabytes);
    if let Some((before, now)) = asked.zip(disk::asked()) {
        round.insert(key(row, WRITES), now.since(before).writes as f64);
    }
    Ok(result)
}

fn stream(
    log: &Log,
    payload: &[u8],
    bytes: u64,
    row: &str,
    round: &mut Round,
) -> Result<(), Failure> {
    let flushes = log.wal.stats().flushes;
    let mut waits = Waits::default();
    let last = timed(round, row, bytes, || {
        let mut end = log.wal.next_lsn();
        for _ in 0..bytes / payload.len() as u64 {
            end = log.append(payload, &mut waits)?.end;
        }
        let began = Instant::now();
        wait(log.wal.durable(end))?;
        Ok(began.elapsed())
    })?;
    round.insert(key(row, LAST), last.as_secs_f64() * 1e3);
    round.insert(key(row, WAITS), waits.count as f64);
    round.insert(key(row, WAITED), waits.time.as_secs_f64() * 1e3);
    let flushes = log.wal.stats().flushes - flushes;
    round.insert(key(row, FLUSHES), flushes as f64);
    Ok(())
}

/// Writes the file from its first byte on.
fn written(file: &mut File, payload: &[u8], bytes: u64) -> Result<(), Failure> {
    file.rewind()?;
    for _ in 0..bytes / payload.len() as u64 {
        file.write_all(payload)?;
    }
    Ok(file.sync_data()?)
}

/// Recycles everything, and gives the log time to prepare its next segment.
fn recycle(log: &Log) {
    log.wal.recycle(log.wal.durable_lsn());
    std::thread::sleep(Duration::from_millis(100));
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let (turn, rest) = match full {
        true => (TURN_BYTES, REST),
        false => (40 << 20, Duration::ZERO),
    };
    let payload = vec![0x5a; RECORD];
    let used = Log::open()?;
    // As many segments as one turn takes have had an earlier life, and one that is current.
    for _ in 0..2 {
        stream(&used, &payload, turn, RECYCLED, &mut Round::default())?;
        recycle(&used);
    }
    let mut existing = tempfile::tempfile()?;
    written(&mut existing, &payload, turn)?;
    // The works that are compared run right one after the other.
    let mut once = || {
        let mut round = Round::default();
        let mut new = tempfile::tempfile()?;
        timed(&mut round, NEW, turn, || written(&mut new, &payload, turn))?;
        drop(new);
        let fresh = Log::open()?;
        stream(&fresh, &payload, turn, FRESH, &mut round)?;
        drop(fresh);
        timed(&mut round, EXISTING, turn, || {
            written(&mut existing, &payload, turn)
        })?;
        stream(&used, &payload, turn, RECYCLED, &mut round)?;
        recycle(&used);
        std::thread::sleep(rest);
        stream(&used, &payload, turn, RESTED, &mut round)?;
        recycle(&used);
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "256 MiB in records of 1 MiB, one commit",
        "MB/s",
        "to a new file",
        "to an existing file",
        "last wait, ms",
        "waits for a segment",
        "ms waited",
        "flushes",
        "s of processor time a GB",
        "writes of the disk",
    ]);
    for row in ROWS {
        let of = |of: &str| rounds.median(&key(row, of));
        let mut cells = vec![
            row.to_owned(),
            table::whole(of(RATE)),
            table::times(rounds.ratio(&key(row, RATE), &key(NEW, RATE))),
            table::times(rounds.ratio(&key(row, RATE), &key(EXISTING, RATE))),
        ];
        match [NEW, EXISTING].contains(&row) {
            true => cells.extend([""; 4].map(str::to_owned)),
            false => cells.extend([
                table::digits(of(LAST)),
                table::whole(of(WAITS)),
                table::digits(of(WAITED)),
                table::whole(of(FLUSHES)),
            ]),
        }
        cells.extend([table::digits(of(PROCESSOR)), table::whole(of(WRITES))]);
        text += &table::line(cells);
    }
    text
}
