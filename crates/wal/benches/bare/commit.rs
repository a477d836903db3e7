//! Clients who each append 4 KiB, wait until that is durable, and begin again, beside bare flushes of as many bytes:
//! if no flush were made for fewer than all of them, and none waited for another, both rates would be the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::Failure;
use crate::log::{Log, Waits, wait};
use crate::region::Region;

const CLIENTS: [usize; 3] = [1, 8, 64];
const RECORD: usize = 4 << 10;
const HEADER: usize = 32;
/// Of one turn.
const TIME: Duration = Duration::from_secs(2);

/// Records a second of so many clients, and flushes a second.
fn clients(log: &Log, count: usize, time: Duration) -> Result<(f64, f64), Failure> {
    let payload = [0x5a; RECORD];
    let (over, records) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = || -> Result<(), String> {
        while !over.load(Ordering::Relaxed) {
            let appended = log.append(&payload, &mut Waits::default());
            let appended = appended.map_err(|error| error.to_string())?;
            wait(log.wal.durable(appended.end)).map_err(|error| error.to_string())?;
            records.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let flushes = log.wal.stats().flushes;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(client)).collect();
        while began.elapsed() < time {
            std::thread::sleep(Duration::from_millis(50));
            log.wal.recycle(log.wal.durable_lsn());
        }
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| "a client has panicked")??;
        }
        Ok::<_, Failure>(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let flushes = log.wal.stats().flushes - flushes;
    Ok((
        records.into_inner() as f64 / seconds,
        flushes as f64 / seconds,
    ))
}

/// Flushes a second of as many bytes as so many clients append.
fn flushes(region: &mut Region, count: usize, time: Duration) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut flushes = 0;
    while began.elapsed() < time {
        let bytes = count * (HEADER + RECORD);
        let (start, place) = region.next(bytes.next_multiple_of(4096));
        place.fill(flushes as u8);
        region.flush(start, bytes)?;
        flushes += 1;
    }
    Ok(f64::from(flushes) / began.elapsed().as_secs_f64())
}

fn key(clients: usize, of: &str) -> String {
    format!("{clients} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let time = if full {
        TIME
    } else {
        Duration::from_millis(20)
    };
    let log = Log::open()?;
    let region = std::cell::RefCell::new(Region::new()?);
    let mut of_clients = || {
        let mut round = Round::default();
        for count in CLIENTS {
            let (records, flushes) = clients(&log, count, time)?;
            round.insert(key(count, "records"), records);
            round.insert(key(count, "group"), records / flushes);
        }
        Ok::<_, Failure>(round)
    };
    let mut of_flushes = || {
        let mut round = Round::default();
        for count in CLIENTS {
            let rate = flushes(&mut region.borrow_mut(), count, time)?;
            round.insert(key(count, "records"), count as f64 * rate);
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut of_clients, &mut of_flushes])?;
    Ok(match &rounds[..] {
        [clients, flushes] => shown(clients, flushes),
        _ => String::new(),
    })
}

fn shown(clients: &Rounds, flushes: &Rounds) -> String {
    let mut text = table::head(&[
        "clients that commit 4 KiB each",
        "records a second",
        "of one flush",
        "flushes a second, times clients",
        "share",
    ]);
    for count in CLIENTS {
        let records = key(count, "records");
        text += &table::line([
            count.to_string(),
            table::whole(clients.median(&records)),
            table::digits(clients.median(&key(count, "group"))),
            table::whole(flushes.median(&records)),
            table::times(clients.ratio_to(flushes, &records)),
        ]);
    }
    text
}
