//! Appends a GiB in records, flushed every 8 MiB and recycled some time later, as of clients that write without
//! pause: processor time of all threads, and wall time. Beside it the same records by system calls to [files that
//! were written before](crate::mapped), with `fdatasync`.

use std::time::Instant;

use forebay_measure::{Round, Rounds, in_turns, table};
use forebay_types::Lsn;

use crate::Failure;
use crate::clock::process_cpu;
use crate::log::{Log, Waits, wait};
use crate::mapped::Written;

const SIZES: [(&str, usize); 4] = [
    ("4 KiB", 4 << 10),
    ("16 KiB", 16 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
];
const TURN_BYTES: u64 = 1 << 30;
const FLUSHED: u64 = 8 << 20;
/// Bytes of the log that are kept.
const RETAINED: u64 = 256 << 20;

fn log(log: &Log, payload: &[u8], bytes: u64) -> Result<(), Failure> {
    let mut since = 0;
    for _ in 0..bytes / payload.len() as u64 {
        let end = log.append(payload, &mut Waits::default())?.end;
        since += payload.len() as u64;
        if since >= FLUSHED {
            since = 0;
            wait(log.wal.durable(end))?;
            log.wal.recycle(Lsn(end.0.saturating_sub(RETAINED)));
        }
    }
    Ok(())
}

fn bare(written: &mut Written, payload: &[u8], bytes: u64) -> Result<(), Failure> {
    let mut since = 0;
    for number in 0..bytes / payload.len() as u64 {
        written.append(number, payload)?;
        since += payload.len() as u64;
        if since >= FLUSHED {
            since = 0;
            written.flush()?;
        }
    }
    Ok(())
}

/// Seconds of processor time, and of wall time.
fn taken(work: impl FnOnce() -> Result<(), Failure>) -> Result<[f64; 2], Failure> {
    let (began, before) = (Instant::now(), process_cpu());
    work()?;
    let processor = process_cpu() - before;
    Ok([processor.as_secs_f64(), began.elapsed().as_secs_f64()])
}

const LOG: &str = "log";
const BARE: &str = "bare";

fn key(size: &str, whose: &str, of: &str) -> String {
    format!("{size} {whose} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let turn = if full { TURN_BYTES } else { 16 << 20 };
    let (opened, mut written) = (Log::open()?, Written::new()?);
    let payload = vec![0x5a; 1 << 20];
    // Each segment has had an earlier life.
    log(&opened, &payload, turn)?;
    let mut once = || {
        let mut round = Round::default();
        for (name, size) in SIZES {
            let payload = &payload[..size];
            let ours = taken(|| log(&opened, payload, turn))?;
            let theirs = taken(|| bare(&mut written, payload, turn))?;
            for (whose, [processor, wall]) in [(LOG, ours), (BARE, theirs)] {
                round.insert(key(name, whose, "processor"), processor);
                round.insert(key(name, whose, "wall"), wall);
            }
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "1 GiB, flushed every 8 MiB",
        "log, s of processor time",
        "`pwrite` and `fdatasync`",
        "log / that",
        "log, s",
        "`pwrite` and `fdatasync`",
        "log / that",
    ]);
    for (size, _) in SIZES {
        let mut cells = vec![size.to_owned()];
        for of in ["processor", "wall"] {
            let [ours, theirs] = [LOG, BARE].map(|whose| key(size, whose, of));
            cells.push(table::digits(rounds.median(&ours)));
            cells.push(table::digits(rounds.median(&theirs)));
            cells.push(table::times(rounds.ratio(&ours, &theirs)));
        }
        text += &table::line(cells);
    }
    text
}
