//! Measurements: how long making a snapshot takes beside writers, and what a thousand snapshots cost.
//!
//! `cargo test --release --workspace --test fs -- --ignored --nocapture snapshots::costs`

#![allow(clippy::print_stdout, reason = "measurements are printed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_fs::{Compression, FsConfig, LogConfig, Volume};
use forebay_object::CountingStore;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability};
use futures_util::StreamExt;
use futures_util::stream::iter;

use super::snapshot;
use crate::common::{Bucket, Life, ROOT, pattern, read};
use crate::far_store::far_away;

const CLIENTS: u64 = 8;
const OBJECTS: u64 = 100_000;
/// Calls at the same time, which share flushes of the log.
const AT_ONCE: usize = 256;

/// The median and the maximum.
fn shown(times: &mut [Duration]) -> String {
    times.sort();
    let at = |index: usize| times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3;
    let (half, last) = (times.len() / 2, times.len().saturating_sub(1));
    format!("{:.2} ms, at most {:.2} ms", at(half), at(last))
}

async fn make(volume: &Volume, name: String) -> Inode {
    let mode = CreateMode::Unchecked(SetAttributes::default());
    let made = volume
        .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
        .await;
    made.unwrap().attributes.inode
}

async fn touch(volume: &Volume, inode: Inode, mode: u32) {
    let set = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    volume.setattr(&ROOT, inode, &set, None).await.unwrap();
}

/// Durations of calls that do not wait for stable storage, and of COMMITs.
#[derive(Default)]
struct Calls {
    quick: Vec<Duration>,
    commits: Vec<Duration>,
}

/// Writes until it is over.
async fn client(volume: Volume, number: u64, is_over: Arc<AtomicBool>) -> Calls {
    let file = make(&volume, format!("client-{number}")).await;
    let bytes = pattern(number, 4096);
    let mut calls = Calls::default();
    for round in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let at = round % 16 * 4096;
        let caller = ROOT;
        let written = volume.write(&caller, file, at, &bytes, Stability::Unstable);
        written.await.unwrap();
        calls.quick.push(begun.elapsed());
        let begun = Instant::now();
        volume.getattr(file).await.unwrap();
        calls.quick.push(begun.elapsed());
        if round % 16 == 15 {
            let begun = Instant::now();
            volume.commit(&ROOT, file, 0, 0).await.unwrap();
            calls.commits.push(begun.elapsed());
        }
        tokio::task::yield_now().await;
    }
    calls
}

fn with_clients(life: &Life, what: &str, work: impl FnOnce() -> Vec<Duration>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let is_over = is_over.clone();
            life.spawn(|volume| client(volume, number, is_over))
        })
        .collect();
    let mut creates = work();
    is_over.store(true, Ordering::Relaxed);
    let mut all = Calls::default();
    for client in clients {
        let calls = life.join(client);
        all.quick.extend(calls.quick);
        all.commits.extend(calls.commits);
    }
    println!(
        "{what}: {} creates: {}; {} writes and attributes beside them: {}; {} COMMITs: {}",
        creates.len(),
        shown(&mut creates),
        all.quick.len(),
        shown(&mut all.quick),
        all.commits.len(),
        shown(&mut all.commits)
    );
}

fn timed_snapshot(life: &Life, name: &str) -> Duration {
    let begun = Instant::now();
    snapshot(life, name);
    begun.elapsed()
}

/// How long creates and all other calls take beside each other: with 100,000 changed objects, and with 63 snapshots that wait
/// for a bucket that is away.
#[test]
#[ignore = "a measurement"]
fn measured_create_beside_writers() {
    let mut bucket = Bucket::new();
    // On a disk.
    bucket.local = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let life = bucket.start(|config| {
        config.overlay_limit = 1 << 30;
        config.node_limit = 2 * OBJECTS as usize;
        config.log = LogConfig::Disk {
            limit: 4 << 30,
            segment: 32 << 20,
        };
    });
    let objects: Vec<Inode> = life.run(|volume| async move {
        let made = iter(0..OBJECTS).map(|number| make(&volume, format!("object {number}")));
        made.buffer_unordered(AT_ONCE).collect().await
    });
    let touch_some = |count: u64, mode: u32| {
        let objects = objects.clone();
        life.run(|volume| async move {
            let touched = iter(objects).take(count as usize);
            let touched = touched.map(|inode| touch(&volume, inode, mode));
            touched.buffer_unordered(AT_ONCE).collect::<()>().await;
        });
    };
    let mut mode = 0o600;
    with_clients(&life, "100,000 changed objects before each", || {
        let create = |number| {
            mode ^= 0o7;
            touch_some(OBJECTS, mode);
            timed_snapshot(&life, &format!("many-{number}"))
        };
        (0..5).map(create).collect()
    });
    with_clients(&life, "200 snapshots", || {
        let create = |number| {
            // At most 63 wait for their publication.
            if number % 32 == 0 {
                life.flush();
            }
            timed_snapshot(&life, &format!("one-{number}"))
        };
        (0..200).map(create).collect()
    });
    life.flush();
    bucket.controls.set_down(true);
    with_clients(&life, "the bucket is away", || {
        let create = |number| {
            touch_some(1000, 0o640 + number % 8);
            timed_snapshot(&life, &format!("away-{number}"))
        };
        (0..63_u32).map(create).collect()
    });
    with_clients(&life, "63 wait", || vec![timed_snapshot(&life, "last")]);
    bucket.controls.set_down(false);
    life.flush();
    life.stop();
}

/// What was measured with a number of snapshots.
struct Costs {
    flush: Duration,
    opening: Duration,
    /// From the first commit until the gateway is idle.
    upkeep: Duration,
}

/// Changes 100 files, one after the other.
async fn change(volume: &Volume, files: &[Inode], seed: u64) {
    let caller = ROOT;
    for (number, file) in files.iter().enumerate() {
        let bytes = pattern(seed << 16 | number as u64, 8192);
        let written = volume.write(&caller, *file, 0, &bytes, Stability::Unstable);
        written.await.unwrap();
    }
}

/// Waits until no request was sent for three seconds; the moment of the last one.
async fn quiet(counts: &CountingStore) -> Instant {
    let (mut last, mut at) = (counts.counts(), Instant::now());
    while at.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = counts.counts();
        if now != last {
            (last, at) = (now, Instant::now());
        }
    }
    at
}

/// Each request to the bucket takes `tick`.
async fn costs_with(snapshots: u64, tick: Duration) -> Costs {
    let (store, counts) = far_away(tick);
    let local = Bucket::unformatted();
    let config = || FsConfig {
        compression: Compression::Off,
        overlay_limit: 256 << 20,
        ..local.config()
    };
    let volume = Volume::format_and_open(&store, config()).await.unwrap();
    let mut files = Vec::new();
    for number in 0..100 {
        files.push(make(&volume, format!("file {number}")).await);
    }
    change(&volume, &files, 1).await;
    for number in 0..snapshots {
        let (bytes, caller) = (number.to_be_bytes(), ROOT);
        let written = volume.write(&caller, files[0], 0, &bytes, Stability::Unstable);
        written.await.unwrap();
        let name = format!("snapshot {number}");
        volume.make_snapshot(&name, "a test").await.unwrap();
        if number % 32 == 31 {
            volume.flush().await.unwrap();
        }
    }
    volume.flush().await.unwrap();
    quiet(&counts).await;
    volume.close(Duration::from_secs(60)).await;
    drop(volume);

    let begun = Instant::now();
    let volume = Volume::open(&store, config()).await.unwrap();
    read(&volume, files[1], 0, 100).await.unwrap();
    let opening = begun.elapsed();
    let begun = Instant::now();
    change(&volume, &files, 2).await;
    volume.flush().await.unwrap();
    let upkeep = quiet(&counts).await - begun;
    let (before, mut times) = (counts.counts(), Vec::new());
    for round in 0..60 {
        change(&volume, &files, 3 + round).await;
        let begun = Instant::now();
        volume.flush().await.unwrap();
        times.push(begun.elapsed());
    }
    let after = counts.counts();
    println!(
        "{snapshots} snapshots, {tick:?} a request: a flush of 100 files {}, {} requests and {} KB put for {}; opening until the first READ {opening:.1?}; upkeep after the first commit {upkeep:.1?}",
        shown(&mut times),
        after.requests() - before.requests(),
        (after.bytes_put - before.bytes_put) / 1000,
        times.len(),
    );
    volume.close(Duration::from_secs(60)).await;
    Costs {
        flush: times[times.len() / 2],
        opening,
        upkeep,
    }
}

/// A flush of 100 files, opening, and the first round of the collector of metadata, without and with 1,000 snapshots. Once with a
/// bucket that answers at once, which shows the work alone, and once with one that is as far away as S3 in the same region.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of some minutes"]
async fn measured_a_thousand_snapshots() {
    let ratio = |one: Duration, other: Duration| other.as_secs_f64() / one.as_secs_f64();
    for tick in [0, 10].map(Duration::from_millis) {
        let (without, with) = (costs_with(0, tick).await, costs_with(1000, tick).await);
        println!(
            "flush: {:.3} times; opening: {:.1?} more, {:.2} times; upkeep: {:.1?} more",
            ratio(without.flush, with.flush),
            with.opening.saturating_sub(without.opening),
            ratio(without.opening, with.opening),
            with.upkeep.saturating_sub(without.upkeep),
        );
    }
}
