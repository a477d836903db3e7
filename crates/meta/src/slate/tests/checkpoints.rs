//! A measurement: what checkpoints of SlateDB cost, which snapshots are made of. Its figures are in
//! docs/decisions/0066-snapshots-as-checkpoints-of-slatedb.md.

use std::collections::HashSet;
use std::fmt::Write;

use futures_util::TryStreamExt;
use slatedb::{Checkpoint, CheckpointCreateResult, DbReaderMode};

use super::bucket::Tally;
use super::collector::{checked, checkpoint, collect_with_slatedb, path};
use super::*;
use crate::slate::collector::Collector;
use crate::slate::reader;

const FILES: u64 = 6_667;
/// Of three entries each.
const CHANGED_FILES: u64 = 67;
/// A bucket in the same region: 10 ms for each request, and 100 MB/s.
const NEARBY: Option<(u64, u64)> = Some((10_000, 100));
const FOREVER: Duration = Duration::from_secs(3600);

/// Changes files: two of three exist, and the others are new.
struct Files {
    next: u64,
    chance: u64,
}

impl Files {
    fn change(&mut self, files: u64) -> Batch {
        let mut batch = Batch::new();
        for n in 0..files {
            self.chance = self
                .chance
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let is_new = self.next < FILES || n % 3 == 0;
            let inode = match is_new {
                true => self.next,
                false => (self.chance >> 33) % self.next,
            };
            self.next += u64::from(is_new);
            let random = |len: usize| -> Bytes {
                let mut seed = self.chance;
                let bytes = (0..len).map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (seed >> 56) as u8
                });
                bytes.collect()
            };
            let numbered = |kind: u8| [&[kind][..], &inode.to_be_bytes()].concat();
            let folder = [&b"n"[..], &(inode / 100).to_be_bytes()].concat();
            let name = format!("a name of a file {inode:06}");
            batch.put_encoded(numbered(b'i').into(), random(70));
            batch.put_encoded([&folder[..], name.as_bytes()].concat().into(), random(10));
            batch.put_encoded([&numbered(b'b')[..], &[0; 4]].concat().into(), random(60));
        }
        batch
    }
}

fn lasting(retention: Duration) -> SlateSettings {
    SlateSettings {
        timeout: Duration::from_secs(60).min(retention),
        retention,
        cache_bytes: 32 << 20,
    }
}

fn median<T: Ord + Clone>(values: &mut [T]) -> T {
    values.sort();
    values[values.len() / 2].clone()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn words(tally: &Tally) -> String {
    let mut words = String::new();
    let (mut requests, mut bytes) = (0, 0);
    for ((method, kind), (count, size)) in &tally.0 {
        let _ = write!(words, ", {method} {kind} {count} ({size})");
        requests += count;
        bytes += if *method == "LIST" { 0 } else { *size };
    }
    format!("{requests} requests, {bytes} B{words}")
}

async fn timed<T>(
    bucket: &TestBucket,
    slow: bool,
    call: impl Future<Output = T>,
) -> (T, Duration, Tally) {
    let before = bucket.tally();
    bucket.slow_down(NEARBY.filter(|_| slow));
    let began = Instant::now();
    let made = call.await;
    let took = began.elapsed();
    bucket.slow_down(None);
    (made, took, bucket.tally() - before)
}

/// Commits without merges and collections at the same time.
async fn commits(
    bucket: &TestBucket,
    store: &SlateStore,
    files: &mut Files,
    slow: bool,
) -> (Duration, Tally) {
    let (mut times, mut tallies) = (Vec::new(), Vec::new());
    while times.len() < 20 {
        let batch = files.change(CHANGED_FILES);
        let merges = store.tables().0 + 1 >= COMPACT_AT_TABLES;
        let (done, time, tally) = timed(bucket, slow, store.commit(&batch)).await;
        done.unwrap();
        match merges {
            true => settle(bucket).await,
            false => {
                times.push(time);
                tallies.push((words(&tally), tally));
            }
        }
    }
    tallies.sort_by(|one, other| one.0.cmp(&other.0));
    (median(&mut times), tallies[tallies.len() / 2].1.clone())
}

async fn bytes_of(bucket: &TestBucket, folder: &str) -> (usize, u64) {
    let objects: Vec<_> = bucket.raw().list(None).try_collect().await.unwrap();
    let sizes = objects
        .iter()
        .filter(|one| one.location.as_ref().contains(folder));
    sizes.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.size))
}

async fn newest_manifest(bucket: &TestBucket) -> u64 {
    let objects: Vec<_> = bucket.raw().list(None).try_collect().await.unwrap();
    let manifests = objects
        .iter()
        .filter(|one| one.location.extension() == Some("manifest"));
    manifests.max_by_key(|one| &one.location).unwrap().size
}

async fn measure(bucket: &TestBucket, files: &mut Files, made: &[CheckpointCreateResult]) {
    let shown = |what: &str, time: Duration, tally: &Tally| {
        eprintln!("  {what}: {}, {}", ms(time), words(tally));
    };
    eprintln!("{} checkpoints:", made.len());
    let (store, time, tally) = timed(bucket, true, open(bucket, lasting(FOREVER))).await;
    let store = store.unwrap();
    shown("opening for writing, near bucket", time, &tally);
    // The first commit is followed by the only collection.
    store.commit(&files.change(CHANGED_FILES)).await.unwrap();
    settle(bucket).await;
    eprintln!("  newest manifest: {} B", newest_manifest(bucket).await);
    let (count, size) = bytes_of(bucket, "/manifest/").await;
    eprintln!("  all manifests: {count}, {size} B");
    let (count, size) = bytes_of(bucket, "/compacted/").await;
    let live: HashSet<_> = store
        .db
        .manifest()
        .all_sst_views()
        .map(|view| view.sst.id)
        .collect();
    eprintln!(
        "  tables in the bucket: {count}, {size} B; live: {}",
        live.len()
    );
    for (slow, what) in [(false, "commit in memory"), (true, "commit, near bucket")] {
        let (time, tally) = commits(bucket, &store, files, slow).await;
        shown(what, time, &tally);
    }
    settle(bucket).await;
    let (one, time, tally) = timed(bucket, true, checkpoint(&store, 1_000_000)).await;
    shown("create_checkpoint, near bucket", time, &tally);
    let admin = slatedb::admin::AdminBuilder::new(path(), checked(bucket)).build();
    let (gone, time, tally) = timed(bucket, true, admin.delete_checkpoint(one.id)).await;
    gone.unwrap();
    shown("delete_checkpoint, near bucket", time, &tally);
    let ((), time, tally) = timed(bucket, true, collect_with_slatedb(bucket, FOREVER, None)).await;
    shown("collection by SlateDB, near bucket", time, &tally);
    let mut collector = Collector::new(checked(bucket), path(), FOREVER);
    for round in 1..=3 {
        let ((), time, tally) = timed(bucket, true, collector.collect()).await;
        shown(&format!("collection {round}, near bucket"), time, &tally);
    }
    eprintln!(
        "  tables that checkpoints hold: {}",
        collector.held_tables()
    );
    if let Some(first) = made.first() {
        let mode = DbReaderMode::Checkpoint(first.id);
        let opening = reader::build(checked(bucket), path(), mode, Duration::from_secs(60));
        let (reader, time, tally) = timed(bucket, true, opening).await;
        shown("opening a checkpoint, near bucket", time, &tally);
        reader.unwrap().close().await.unwrap();
    }
    let checkpoints = store.db.manifest().checkpoints().clone();
    let names: usize = checkpoints
        .iter()
        .filter_map(|one| one.name.as_ref())
        .map(String::len)
        .sum();
    let heap = checkpoints.len() * size_of::<Checkpoint>() + names;
    eprintln!("  checkpoints in one manifest in memory: {heap} B");
    store.close().await.unwrap();
}

#[ignore = "a measurement of some minutes, not a test"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measured_cost_of_checkpoints() {
    let bucket = TestBucket::default();
    let mut files = Files { next: 0, chance: 7 };
    let mut made = Vec::new();
    let brief = Duration::from_secs(1);
    let store = open(&bucket, lasting(brief)).await.unwrap();
    for _ in 0..10 {
        store.commit(&files.change(FILES / 10)).await.unwrap();
    }
    settle(&bucket).await;
    store.close().await.unwrap();
    measure(&bucket, &mut files, &made).await;
    for checkpoints in [10, 100, 1000] {
        // With merges and collections among them.
        let store = open(&bucket, lasting(brief)).await.unwrap();
        while made.len() < checkpoints {
            let batch = files.change(CHANGED_FILES);
            while let Err(error) = store.commit(&batch).await {
                assert!(matches!(error, StoreError::Transient(_)), "{error}");
            }
            made.push(checkpoint(&store, made.len() as u32).await);
        }
        settle(&bucket).await;
        super::collect(&store, &bucket, &files.change(CHANGED_FILES)).await;
        store.close().await.unwrap();
        measure(&bucket, &mut files, &made).await;
    }
}
