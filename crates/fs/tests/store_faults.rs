//! The store misbehaves: it fails, hangs, answers wrongly, and is unreachable for hours. Nothing is lost, nothing
//! wrong is served, local work goes on, and no storm of requests follows an outage.
//!
//! `FOREBAY_SEED` repeats a run: the seed is printed.

use std::time::Duration;

use crate::common::model::{Model, draw};
use crate::common::*;
use forebay_fs::{Compression, Compute, Environment, FsConfig, Volume};
use forebay_object::faults::{FaultKind, Request};
use forebay_object::{RetrySettings, Store, StoreOptions};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn seed() -> u64 {
    let seed =
        std::env::var("FOREBAY_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap());
    eprintln!("FOREBAY_SEED={seed}");
    seed
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    TestRunner::new_with_rng(Config::default(), rng)
}

fn small(config: &mut FsConfig) {
    config.memory_limit = 16 << 20;
    config.node_limit = 4;
    config.checkpoint_interval = Duration::from_millis(300);
}

/// A hung request is cut off soon: there are many of them, and this clock is real.
fn brief(seed: u64) -> RetrySettings {
    RetrySettings {
        answer_limit: Duration::from_millis(400),
        slowest_transfer: 32 << 20,
        seed: Some(seed),
        ..RetrySettings::default()
    }
}

/// Random operations of one client under faults of these kinds; then the store works again, and everything is there,
/// for this gateway and for another one.
fn nothing_is_lost_under(kinds: &[(FaultKind, f64)], operations: usize) {
    let seed = seed();
    let mut runner = runner(seed);
    let bucket = Bucket::new();
    *bucket.retry.lock() = brief(seed);
    let mut life = bucket.start(small);
    life.patient = true;
    let mut model = Model::default();
    bucket.controls.seed(seed);
    for (kind, probability) in kinds {
        bucket.controls.fail_at_random(*kind, *probability);
    }
    // Kinds that have not struck by chance yet strike later.
    let all_struck = || {
        let injected = bucket.controls.injected();
        kinds.iter().all(|(kind, _)| injected.contains_key(kind))
    };
    for i in 0..operations * 8 {
        if i >= operations && all_struck() {
            break;
        }
        let op = draw::op().new_tree(&mut runner).unwrap().current();
        model.step(&life, &op);
        if i % 10 == 9 {
            drop(life.spawn(|volume| async move { volume.flush().await }));
        }
        if i % 40 == 39 {
            life.evict();
        }
        assert_eq!(life.volume.status().stopped, None, "after {i} operations");
    }
    model.check(&life);
    bucket.controls.heal();
    life.flush();
    model.check(&life);
    let injected = bucket.controls.injected();
    eprintln!("{operations} operations, injected: {injected:?}");
    for (kind, _) in kinds {
        assert!(injected.contains_key(kind), "{kind:?} never happened");
    }
    assert_eq!(life.volume.status().store_trouble, None);
    life.crash();
    let mut elsewhere = bucket.start_elsewhere(small);
    elsewhere.patient = true;
    model.check(&elsewhere);
}

#[test]
fn answers_of_500_lose_nothing() {
    nothing_is_lost_under(&[(FaultKind::ServerError, 0.15)], 120);
}

#[test]
fn a_store_that_asks_to_slow_down_loses_nothing() {
    nothing_is_lost_under(&[(FaultKind::SlowDown, 0.15)], 120);
}

#[test]
fn requests_without_an_answer_lose_nothing_and_wedge_nothing() {
    nothing_is_lost_under(&[(FaultKind::Hang, 0.05)], 120);
}

#[test]
fn connections_that_break_off_lose_nothing() {
    nothing_is_lost_under(&[(FaultKind::Reset, 0.15)], 120);
}

#[test]
fn bodies_that_are_cut_short_are_never_served() {
    nothing_is_lost_under(&[(FaultKind::ShortBody, 0.15)], 120);
}

/// One wrong answer about a pack costs a request. If all answers are wrong, the pack is damaged; if all end before
/// the length that they announce, the store is in trouble, and the client tries again.
#[test]
fn an_answer_that_is_wrong_once_is_asked_for_again() {
    for (kind, verdict) in [
        (FaultKind::SeemsCut, Error::Io),
        (FaultKind::WrongBytes, Error::Io),
        (FaultKind::ShortBody, Error::Delay),
    ] {
        let bucket = Bucket::new();
        let life = bucket.start(|config| config.compression = Compression::Off);
        let inode = life.create(b"file");
        let data = pattern(1, 100_000);
        life.write(inode, 0, &data, Stability::Unstable);
        life.flush();
        life.stop();
        let mut reads = 0;
        let mut read = |times: u64| {
            let life = bucket.start_elsewhere(|_| {});
            bucket.controls.next(Request::Get, "packs/", kind, times);
            let read = life.try_read(inode, 0, 100_000);
            bucket.controls.heal();
            let injected = bucket.controls.injected()[&kind] - reads;
            reads += injected;
            life.stop();
            (read, injected)
        };
        let (once, injected) = read(1);
        assert_bytes(&once.unwrap(), &data);
        assert_eq!(injected, 1, "{kind:?}");
        let (always, injected) = read(u64::MAX);
        assert_eq!(always, Err(verdict), "{kind:?}");
        assert!(injected >= 2, "{kind:?}: {injected} times");
        // The pack is not remembered as damaged.
        assert_bytes(&read(1).0.unwrap(), &data);
    }
}

#[test]
fn wrong_bytes_are_never_served() {
    nothing_is_lost_under(&[(FaultKind::WrongBytes, 0.05)], 120);
}

#[test]
fn puts_and_deletes_that_worked_and_were_answered_with_an_error_lose_nothing() {
    nothing_is_lost_under(&[(FaultKind::LostAnswer, 0.3)], 120);
}

#[test]
fn everything_at_once_loses_nothing() {
    let all: Vec<_> = FaultKind::ALL
        .into_iter()
        .filter(|kind| *kind != FaultKind::StaleList)
        .map(|kind| {
            (
                kind,
                if kind == FaultKind::LostAnswer {
                    0.2
                } else {
                    0.03
                },
            )
        })
        .collect();
    nothing_is_lost_under(&all, 250);
}

#[test]
fn a_listing_that_lags_takes_nobody_back_in_time() {
    let bucket = Bucket::new();
    let mut expected = Vec::new();
    for round in 0..8_u64 {
        // A new gateway gets a listing that an earlier one got.
        bucket
            .controls
            .next(Request::List, "meta", FaultKind::StaleList, 2);
        let life = bucket.start_elsewhere(|_| {});
        for (inode, seed) in &expected {
            assert_bytes(&life.read(*inode, 0, 9000), &pattern(*seed, 9000));
        }
        for piece in 0..4 {
            let inode = life.create(format!("file {round} {piece}").as_bytes());
            life.write(inode, 0, &pattern(inode.0, 9000), Stability::Unstable);
            life.flush();
            expected.push((inode, inode.0));
        }
        life.crash();
    }
}

#[test]
fn a_frame_that_arrives_damaged_is_fetched_again_and_an_error_only_if_it_stays_so() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let inode = life.create(b"file");
    let data = pattern(1, 1 << 20);
    life.write(inode, 0, &data, Stability::Unstable);
    life.flush();
    for (kind, times) in [
        (FaultKind::WrongBytes, 3),
        (FaultKind::ShortBody, 3),
        (FaultKind::Reset, 3),
    ] {
        life.evict();
        let before = bucket.controls.injected().get(&kind).copied().unwrap_or(0);
        bucket.controls.next(Request::Get, "packs/", kind, times);
        assert_bytes(&life.read(inode, 0, 1 << 20), &data);
        assert_eq!(
            bucket.controls.injected()[&kind] - before,
            times,
            "{kind:?}"
        );
    }
    life.evict();
    bucket
        .controls
        .next(Request::Get, "packs/", FaultKind::WrongBytes, 4);
    assert_eq!(
        life.try_read(inode, 0, 1000),
        Err(Error::Io),
        "not served, and not for ever"
    );
    assert_bytes(&life.read(inode, 0, 1 << 20), &data);
}

#[test]
fn a_pack_that_the_store_refuses_is_put_before_anything_of_it_is_published() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    let data = pattern(1, 1 << 20);
    life.write(inode, 0, &data, Stability::Unstable);
    // More often than one request is repeated on its own.
    let times = 9;
    let kind = FaultKind::ServerError;
    bucket.controls.next(Request::Put, "packs/", kind, times);
    life.flush();
    assert_eq!(bucket.controls.injected()[&kind], times);
    life.crash();
    let elsewhere = bucket.start_elsewhere(|_| {});
    assert_bytes(&elsewhere.read(inode, 0, 1 << 20), &data);
}

/// The manifest is the one object that two gateways may both want to write. Its put is conditional, so a put that
/// worked and was answered with an error meets its own result when it is repeated.
fn a_manifest_that_was_written_is_not_taken_for_that_of_a_rival(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let bucket = Bucket::unformatted();
    runtime.block_on(async {
        let options = StoreOptions {
            create: true,
            ..StoreOptions::default()
        };
        let opened = forebay_object::open(url, &options).await.unwrap();
        let faulty =
            forebay_object::faults::FaultyStore::new(opened.store, bucket.controls.clone());
        let faulty = std::sync::Arc::new(faulty);
        let store = Store::new(faulty, opened.root, opened.url, RetrySettings::default());
        Volume::format(&store).await.unwrap();
        let volume = Volume::open(&store, bucket.config()).await.unwrap();
        for i in 0..10_u64 {
            let name = format!("file {i}");
            let mode = CreateMode::Guarded(SetAttributes::default());
            let created = volume
                .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                .await;
            let inode = created.unwrap().attributes.inode;
            write(&volume, inode, 0, &pattern(i, 5000), Stability::Unstable).await;
            bucket
                .controls
                .next(Request::Put, "manifest", FaultKind::LostAnswer, 2 + i % 3);
            volume.flush().await.unwrap();
        }
        assert_eq!(volume.status().stopped, None, "it took itself for a rival");
        assert!(bucket.controls.injected()[&FaultKind::LostAnswer] >= 10);
        volume.close(TIMEOUT).await;
        drop(volume);
        let mut config = bucket.config();
        config.data_dir = bucket.folder.path().join("elsewhere");
        let volume = Volume::open(&store, config).await.unwrap();
        for i in 0..10_u64 {
            let name = format!("file {i}");
            let found = volume
                .lookup(&ROOT, Inode::ROOT, name.as_bytes())
                .await
                .unwrap();
            assert_bytes(
                &read(&volume, found.inode, 0, 5000).await.unwrap(),
                &pattern(i, 5000),
            );
        }
        volume.close(TIMEOUT).await;
    });
}

#[test]
fn a_manifest_whose_answer_was_lost_is_known_by_its_metadata() {
    a_manifest_that_was_written_is_not_taken_for_that_of_a_rival("memory://");
}

#[test]
fn a_manifest_whose_answer_was_lost_is_known_without_metadata_of_objects_too() {
    let folder = folder();
    let url = format!("file://{}", folder.path().display());
    a_manifest_that_was_written_is_not_taken_for_that_of_a_rival(&url);
}

#[test]
fn trouble_of_a_reader_is_over_with_the_next_answer() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    life.evict();
    assert_eq!(life.volume.status().store_trouble, None);
    bucket
        .controls
        .next(Request::Get, "packs/", FaultKind::Reset, 4);
    assert_eq!(life.try_read(inode, 0, 1000), Err(Error::Delay));
    assert!(life.volume.status().store_trouble.is_some());
    assert_bytes(&life.read(inode, 0, 1000), &pattern(1, 1 << 20)[..1000]);
    assert_eq!(life.volume.status().store_trouble, None);
}

/// Lets time pass on a paused clock, which advances whenever no task can run.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A volume with realistic limits, in which a file of `cached` MiB is in memory and one named `cold` is not.
async fn with_a_cold_file(bucket: &Bucket) -> (Volume, Inode, Inode) {
    let mut config = bucket.config();
    config.memory_limit = 32 << 20;
    config.checkpoint_interval = Duration::from_secs(5);
    // The test counts the requests of callers that wait for the bucket: packs are rewritten at any time.
    config.rewrite_below = 0;
    // A paused clock leaps while no task runs, so also while packs are built in other threads; tasks that poll would
    // send requests again and again meanwhile.
    let environment = Environment {
        compute: Compute::InPlace,
        ..Environment::real(config.data_dir.clone())
    };
    let opened = Volume::open_in(&bucket.store().await, config, environment).await;
    let volume = opened.unwrap();
    let mode = CreateMode::Guarded(SetAttributes::default());
    let create = async |name: &[u8]| {
        let made = volume.create(&ROOT, Inode::ROOT, name, &mode).await;
        made.unwrap().attributes.inode
    };
    let (cold, filler) = (create(b"cold").await, create(b"filler").await);
    write(&volume, cold, 0, &pattern(9, 8 << 20), Stability::Unstable).await;
    volume.flush().await.unwrap();
    for i in 0..32 {
        write(
            &volume,
            filler,
            i << 20,
            &pattern(i, 1 << 20),
            Stability::Unstable,
        )
        .await;
    }
    volume.flush().await.unwrap();
    let warm = create(b"warm").await;
    write(&volume, warm, 0, &pattern(1, 2 << 20), Stability::Unstable).await;
    volume.flush().await.unwrap();
    (volume, warm, cold)
}

#[test]
fn through_hours_of_outage_local_work_goes_on_for_a_trickle_of_requests_and_drains_without_a_storm()
{
    const MINUTES: u64 = 4 * 60;
    let bucket = Bucket::new();
    let runtime = one_thread();
    let mut expected = pattern(1, 2 << 20);
    runtime.block_on(async {
        let (volume, warm, cold) = with_a_cold_file(&bucket).await;
        bucket.controls.set_down(true);
        // Names alone need no pack: only the metadata cannot be published.
        let published = volume.status().published;
        let (from, to) = ((Inode::ROOT, &b"filler"[..]), (Inode::ROOT, &b"filled"[..]));
        volume.rename(&ROOT, from, to).await.unwrap();
        pass(Duration::from_secs(300)).await;
        assert_eq!(volume.status().published, published);
        for minute in 0..MINUTES {
            pass(Duration::from_secs(60)).await;
            // Writes, commits, cached reads, and changes of cached names.
            let at = (minute * 8000 % (2 << 20) / 8000 * 8000) as usize;
            let part = pattern(minute, 5000);
            write(&volume, warm, at as u64, &part, Stability::FileSync).await;
            expected[at..at + 5000].copy_from_slice(&part);
            assert_bytes(&read(&volume, warm, 0, 2 << 20).await.unwrap(), &expected);
            let mode = CreateMode::Guarded(SetAttributes::default());
            let name = format!("new {minute}");
            let created = volume
                .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                .await;
            created.unwrap();
            let to = format!("renamed {minute}");
            let (from, to) = ((Inode::ROOT, name.as_bytes()), (Inode::ROOT, to.as_bytes()));
            volume.rename(&ROOT, from, to).await.unwrap();
            // Many readers of bytes that are not in memory are told to try again, and cost nothing.
            for i in 0..20 {
                let read = volume.read(&ROOT, cold, i << 16, 4096).await;
                assert!(matches!(read, Err(Error::Delay)), "{read:?}");
            }
        }
        let asked = bucket.controls.refused() as u64;
        eprintln!("{asked} requests in {MINUTES} minutes of outage");
        assert!(asked >= MINUTES, "it would not notice the end: {asked}");
        assert!(
            asked <= 10 * MINUTES,
            "{asked} requests in {MINUTES} minutes"
        );
        let status = volume.status();
        assert!(status.store_trouble.is_some() && status.stopped.is_none());

        // The store is back, and all callers send requests at once.
        bucket.controls.set_down(false);
        bucket.controls.take_most_in_flight();
        let before = bucket.counts();
        tokio::time::pause();
        let readers: Vec<_> = (0..60_u64)
            .map(|i| {
                let volume = volume.clone();
                tokio::spawn(async move {
                    loop {
                        match read(&volume, cold, i << 17, 1 << 17).await {
                            Err(Error::Delay) => tokio::time::sleep(Duration::from_secs(1)).await,
                            result => return (i, result.unwrap()),
                        }
                    }
                })
            })
            .collect();
        volume.flush().await.unwrap();
        for reader in readers {
            let (i, bytes) = reader.await.unwrap();
            let at = (i << 17) as usize;
            assert_bytes(&bytes, &pattern(9, 8 << 20)[at..at + (1 << 17)]);
        }
        tokio::time::resume();
        let (most, after) = (bucket.controls.take_most_in_flight(), bucket.counts());
        let requests = after.requests() - before.requests();
        eprintln!("{requests} requests to drain, {most} at most at the same time");
        assert!(most <= 16, "{most} requests at the same time");
        assert!(requests <= 100, "{requests} requests");
        assert_eq!(volume.status().store_trouble, None);
        assert_eq!(volume.status().unpublished_bytes(), 0);
        volume.close(TIMEOUT).await;
    });
    drop(runtime);
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(
        &life.read(life.lookup(b"warm").inode, 0, 2 << 20),
        &expected,
    );
    for minute in 0..MINUTES {
        life.lookup(format!("renamed {minute}").as_bytes());
    }
}

#[test]
fn a_request_that_hangs_is_cut_off_and_made_again() {
    let bucket = Bucket::new();
    let runtime = one_thread();
    runtime.block_on(async {
        let (volume, warm, cold) = with_a_cold_file(&bucket).await;
        for (request, name) in [
            (Request::Put, "packs/"),
            (Request::Put, "compacted"),
            (Request::Put, "manifest"),
        ] {
            bucket.controls.next(request, name, FaultKind::Hang, 1);
            write(&volume, warm, 0, &pattern(3, 5000), Stability::Unstable).await;
            tokio::time::pause();
            volume.flush().await.unwrap();
            tokio::time::resume();
        }
        bucket
            .controls
            .next(Request::Get, "packs/", FaultKind::Hang, 1);
        tokio::time::pause();
        let bytes = read(&volume, cold, 0, 1 << 20).await.unwrap();
        tokio::time::resume();
        assert_bytes(&bytes, &pattern(9, 8 << 20)[..1 << 20]);
        assert_eq!(bucket.controls.injected()[&FaultKind::Hang], 4);
        volume.close(TIMEOUT).await;
    });
}
