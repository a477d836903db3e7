//! No deadlock, and no leak: clients that do anything and give up at any moment, with a log, a memory and an overlay
//! that are too small, and a store that comes and goes. A watchdog fails every operation that makes no progress while
//! the store answers.
//!
//! `FOREBAY_SEED` repeats a history (as far as threads let it), `FOREBAY_LONG_TESTS` makes it long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::disk::{Disk, Fault, Step};
use crate::common::watchdog::Watchdog;
use crate::common::*;
use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, NewNode, SetAttributes, Stability};

const CLIENTS: u64 = 8;

/// xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn seed() -> u64 {
    let seed =
        std::env::var("FOREBAY_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap());
    eprintln!("FOREBAY_SEED={seed}");
    seed | 1
}

fn long() -> bool {
    std::env::var_os("FOREBAY_LONG_TESTS").is_some()
}

fn cramped(config: &mut FsConfig) {
    config.log = LogConfig::Disk {
        limit: 2 << 20,
        segment: 512 << 10,
    };
    config.memory_limit = 16 << 20;
    config.overlay_limit = 32 << 10;
    config.node_limit = 8;
    config.checkpoint_interval = Duration::from_millis(50);
    config.fetch_parallel = 2;
}

/// The errors that a client may get. An I/O error only if the disk fails during a change of names that cannot be made
/// a second time.
fn check(what: &str, once: bool, error: Error) {
    let expected = matches!(
        error,
        Error::Delay
            | Error::Exists
            | Error::NotFound
            | Error::Stale
            | Error::NotEmpty
            | Error::Invalid
            | Error::IsDirectory
            | Error::NotDirectory
    ) || (once && error == Error::Io);
    assert!(expected, "{what}: {error:?}");
}

/// One call of a client; the largest write is almost a log segment.
async fn call(
    volume: &Volume,
    random: &mut Random,
    file: Inode,
) -> (String, bool, Result<(), Error>) {
    let name = format!("name-{}", random.below(12)).into_bytes();
    let other = format!("name-{}", random.below(12)).into_bytes();
    let offset = random.below(40) * 300_000;
    let set = SetAttributes::default();
    let root = Inode::ROOT;
    let what = random.below(12);
    let done = match what {
        0..=3 => {
            let len = [100, 5000, 100_000, 500_000][random.below(4) as usize];
            let how = if what < 2 {
                Stability::Unstable
            } else {
                Stability::FileSync
            };
            let data = pattern(offset, len);
            volume
                .write(&ROOT, file, offset, &data, how)
                .await
                .map(drop)
        }
        4..=5 => volume.read(&ROOT, file, offset, 1 << 20).await.map(drop),
        6 => volume.commit(&ROOT, file, 0, 0).await.map(drop),
        7 => {
            let size = Some(offset);
            let set = SetAttributes { size, ..set };
            volume.setattr(&ROOT, file, &set, None).await.map(drop)
        }
        8 => {
            let mode = CreateMode::Unchecked(set);
            volume.create(&ROOT, root, &name, &mode).await.map(drop)
        }
        9 => {
            let directory = NewNode::Directory;
            volume
                .make(&ROOT, root, &name, directory, &set)
                .await
                .map(drop)
        }
        10 => volume
            .rename(&ROOT, (root, &name), (root, &other))
            .await
            .map(drop),
        _ => match volume.remove(&ROOT, root, &name).await {
            Err(Error::IsDirectory) => volume.rmdir(&ROOT, root, &name).await.map(drop),
            removed => removed.map(drop),
        },
    };
    (format!("call {what} at {offset}"), what > 8, done)
}

/// A client: makes calls until it is stopped; some calls are given up after a moment.
async fn client(
    volume: Volume,
    watchdog: Arc<Watchdog>,
    mut random: Random,
    file: Inode,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    disk_fails: bool,
) {
    while !stop.load(Ordering::SeqCst) {
        let watched = watchdog.enter(format!("a call of the client of file {file}"));
        let time_limit = match random.below(3) {
            0 => Duration::from_micros(random.below(20_000)),
            _ => Duration::MAX,
        };
        let call = call(&volume, &mut random, file);
        let answered = tokio::time::timeout(time_limit, call).await;
        drop(watched);
        match answered {
            Ok((what, once, Err(error))) => {
                check(&what, once && disk_fails, error);
                if error == Error::Delay {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Ok((_, _, Ok(()))) => {
                done.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => {}
        }
    }
}

/// No call holds anything any more: as much is admitted as by a volume that was just opened.
fn nothing_leaked(bucket: &Bucket, life: &Life, watchdog: &Watchdog) {
    life.flush();
    watchdog.check();
    let status = life.volume.status();
    assert_eq!((status.dirty_bytes, status.unpublished_bytes()), (0, 0));
    assert_eq!(status.admitted_bytes, 0);
    assert_eq!(status.log_trouble, None);
    let inode = life.create(b"after");
    life.flush();
    bucket.controls.pack_puts.close();
    let writer = life.spawn(move |volume| async move {
        for i in 0..12u64 {
            let data = pattern(i, 100_000);
            write(&volume, inode, i << 20, &data, Stability::Unstable).await;
        }
    });
    life.join(writer);
    bucket.controls.pack_puts.open();
    life.flush();
}

fn run(disk_fails: bool) {
    let seed = seed();
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, cramped);
    let files: Vec<Inode> = (0..CLIENTS)
        .map(|i| life.create(format!("file-{i}").as_bytes()))
        .collect();
    let watchdog = Arc::new(Watchdog::new(life.volume.clone()));
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clients: Vec<_> = files
        .iter()
        .map(|&file| {
            let random = Random(seed.wrapping_mul(file.0 + 1) | 1);
            let (watchdog, stop, done) = (watchdog.clone(), stop.clone(), done.clone());
            life.spawn(move |volume| client(volume, watchdog, random, file, stop, done, disk_fails))
        })
        .collect();
    let mut random = Random(seed);
    let rounds = if long() { 600 } else { 25 };
    for _ in 0..rounds {
        let controls = &bucket.controls;
        watchdog.set_away(true);
        match random.below(5) {
            0 => controls.set_down(true),
            1 => controls.everything.close(),
            2 => controls.pack_puts.close(),
            3 => controls.pack_gets.close(),
            _ => controls.meta_puts.close(),
        }
        if disk_fails {
            let (step, fault) = match random.below(3) {
                0 => (Step::Flush, Fault::Io),
                1 => (Step::Create, Fault::NoSpace),
                _ => (Step::Rename, Fault::NoSpace),
            };
            disk.fail(step, fault, random.below(5), 1 + random.below(2));
        }
        std::thread::sleep(Duration::from_millis(10 + random.below(100)));
        controls.heal();
        for gate in [
            &controls.everything,
            &controls.pack_puts,
            &controls.pack_gets,
            &controls.meta_puts,
        ] {
            gate.open();
        }
        watchdog.set_away(false);
        let before = done.load(Ordering::SeqCst);
        // Some calls must complete before the store fails again.
        eventually("calls are answered while the store is there", || {
            watchdog.check();
            done.load(Ordering::SeqCst) > before + 3
        });
    }
    stop.store(true, Ordering::SeqCst);
    disk.heal();
    clients.into_iter().for_each(|client| life.join(client));
    nothing_leaked(&bucket, &life, &watchdog);
    eprintln!("{} calls", done.load(Ordering::SeqCst));
}

#[test]
fn clients_that_give_up_and_a_store_that_comes_and_goes_leave_nobody_waiting() {
    run(false);
}

#[test]
fn the_same_while_the_disk_fails_now_and_then() {
    run(true);
}
