//! Clients that each append 4 KiB, wait until it is durable, and repeat, beside bare flushes of as many bytes
//! (`pwrite` and `fdatasync`, of a file that was written before): if each flush served all clients, and they took no
//! time between two flushes, both rates would be the same. On the actual disk, and on one [that takes 4
//! ms](crate::slow) for a flush. The writes that a flush of the log causes on the disk are counted [by the
//! kernel](crate::disk).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Context, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use forebay_measure::{Round, Rounds, in_turns, table};

use crate::log::{Log, Waits};
use crate::{Failure, disk, slow};

const CLIENTS: [usize; 3] = [1, 8, 64];
const RECORD: usize = 4 << 10;
const HEADER: usize = 32;
/// Bytes of the log above which it is recycled.
const RECYCLED: u64 = 32 << 20;
/// Duration of one turn.
const TIME: Duration = Duration::from_millis(250);

const RECORDS: &str = "records";
const GROUP: &str = "group";
const WRITES: &str = "writes";
const WRITTEN: &str = "written";
const BARE: &str = "bare";

/// The clients that are due to be polled.
#[derive(Default)]
struct Ready {
    clients: Mutex<Vec<usize>>,
}

/// The waker of a client: makes the thread that polls all clients poll this one.
struct Poll {
    client: usize,
    ready: Arc<Ready>,
    thread: Thread,
}

impl Wake for Poll {
    fn wake(self: Arc<Self>) {
        let mut clients = self
            .ready
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        clients.push(self.client);
        // Otherwise the thread is already awake.
        if clients.len() == 1 {
            self.thread.unpark();
        }
    }
}

/// Runs this many clients for a while. All are tasks of one thread, as those of a server are of a few.
fn clients(
    log: &Log,
    count: usize,
    time: Duration,
    mut keep: impl FnMut(&str, f64),
) -> Result<(), Failure> {
    let payload = [0x5a; RECORD];
    let ready = Arc::new(Ready::default());
    let wakers: Vec<_> = (0..count)
        .map(|client| {
            let (ready, thread) = (Arc::clone(&ready), std::thread::current());
            Waker::from(Arc::new(Poll {
                client,
                ready,
                thread,
            }))
        })
        .collect();
    let begin = || {
        let appended = log.append(&payload, &mut Waits::default())?;
        Ok::<_, Failure>(Box::pin(log.wal.durable(appended.end)))
    };
    let mut waiting = Vec::new();
    let (flushes, asked) = (log.wal.stats().flushes, disk::asked());
    let (began, mut records) = (Instant::now(), 0);
    for waker in &wakers {
        waiting.push(begin()?);
        waker.wake_by_ref();
    }
    let mut polled = Vec::new();
    while began.elapsed() < time {
        std::mem::swap(
            &mut polled,
            &mut *ready.clients.lock().unwrap_or_else(PoisonError::into_inner),
        );
        if polled.is_empty() {
            std::thread::park();
        }
        for client in polled.drain(..) {
            let mut cx = Context::from_waker(&wakers[client]);
            while let task::Poll::Ready(outcome) = waiting[client].as_mut().poll(&mut cx) {
                outcome?;
                records += 1;
                waiting[client] = begin()?;
            }
        }
        if log.wal.used_bytes() > RECYCLED {
            log.wal.recycle(log.wal.durable_lsn());
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let flushes = (log.wal.stats().flushes - flushes) as f64;
    keep(RECORDS, f64::from(records) / seconds);
    keep(GROUP, f64::from(records) / flushes);
    if let Some((before, now)) = asked.zip(disk::asked()) {
        let asked = now.since(before);
        keep(WRITES, asked.writes as f64 / flushes);
        keep(WRITTEN, asked.bytes as f64 / 1024.0 / flushes);
    }
    Ok(())
}

/// A file that was written before, and is overwritten cyclically.
struct Written {
    file: File,
    at: u64,
    slow: bool,
}

const FILE_BYTES: u64 = 64 << 20;

impl Written {
    fn new(slow: bool) -> Result<Written, Failure> {
        let file = tempfile::tempfile()?;
        file.write_all_at(&vec![1; FILE_BYTES as usize], 0)?;
        file.sync_all()?;
        Ok(Written { file, at: 0, slow })
    }

    /// Flushes per second, each of as many bytes as this many clients append.
    fn flushes(&mut self, count: usize, time: Duration) -> Result<f64, Failure> {
        let bytes = vec![0x5a; count * (HEADER + RECORD)];
        let began = Instant::now();
        let mut flushes = 0;
        while began.elapsed() < time {
            if self.at + bytes.len() as u64 > FILE_BYTES {
                self.at = 0;
            }
            let write = || {
                self.file.write_all_at(&bytes, self.at)?;
                self.file.sync_data()
            };
            match self.slow {
                true => slow::flush(write)?,
                false => write()?,
            }
            self.at += bytes.len() as u64;
            flushes += 1;
        }
        Ok(f64::from(flushes) / began.elapsed().as_secs_f64())
    }
}

/// A disk: its name, the log on it, and the bare file.
struct Disk {
    name: &'static str,
    log: Log,
    written: Written,
}

const DISKS: [&str; 2] = ["this one", "4 ms a flush"];

fn key(disk: &str, clients: usize, of: &str) -> String {
    format!("{disk} {clients} {of}")
}

pub(crate) fn table(rounds: usize, full: bool) -> Result<String, Failure> {
    let time = if full {
        TIME
    } else {
        Duration::from_millis(20)
    };
    let [this, slow] = DISKS;
    let mut disks = [
        Disk {
            name: this,
            log: Log::open()?,
            written: Written::new(false)?,
        },
        Disk {
            name: slow,
            log: Log::open_slow()?,
            written: Written::new(true)?,
        },
    ];
    for Disk { log, .. } in &disks {
        // Each segment has had an earlier life, like the file.
        log.append_bytes(&vec![1; 1 << 20], if full { 1 << 30 } else { 64 << 20 })?;
    }
    // The works that are compared run right one after the other: the speed of a shared disk changes within seconds.
    let mut once = || {
        let mut round = Round::default();
        for Disk { name, log, written } in &mut disks {
            for count in CLIENTS {
                clients(log, count, time, |of, value| {
                    round.insert(key(name, count, of), value);
                })?;
                let bare = written.flushes(count, time)?;
                round.insert(key(name, count, BARE), bare * count as f64);
            }
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    Ok(rounds.iter().map(shown).collect())
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "disk",
        "clients that commit 4 KiB each",
        "records a second",
        "of one flush",
        "writes of the disk for it",
        "KiB",
        "bare flushes a second, times clients",
        "share",
    ]);
    for disk in DISKS {
        for count in CLIENTS {
            let [records, group, writes, written, bare] =
                [RECORDS, GROUP, WRITES, WRITTEN, BARE].map(|of| key(disk, count, of));
            text += &table::line([
                disk.to_owned(),
                count.to_string(),
                table::whole(rounds.median(&records)),
                table::digits(rounds.median(&group)),
                table::digits(rounds.median(&writes)),
                table::digits(rounds.median(&written)),
                table::whole(rounds.median(&bare)),
                table::times(rounds.ratio(&records, &bare)),
            ]);
        }
    }
    text
}
