//! What the collector deletes, and how often it reads manifests of checkpoints.

use std::collections::{BTreeSet, HashSet};

use object_store::ObjectStoreExt;
use slatedb::admin::{Admin, AdminBuilder};
use slatedb::config::{
    CheckpointOptions, CheckpointScope, GarbageCollectorDirectoryOptions, GarbageCollectorOptions,
};
use slatedb::{
    Checkpoint, CheckpointCreateResult, GarbageCollectorBuilder, GcFilter, ObjectMetadata,
};

use super::no_log::{commit_as_before, open_as_before};
use super::*;
use crate::slate::collector::Collector;
use crate::slate::verified;

pub(super) fn path() -> Path {
    Path::from("volume/meta")
}

pub(super) fn checked(bucket: &TestBucket) -> Arc<dyn ObjectStore> {
    verified(Arc::new(bucket.clone()), &path(), None)
}

/// SlateDB's collector with all its tasks. With a filter, it deletes what that lets it.
pub(super) async fn collect_with_slatedb(
    bucket: &TestBucket,
    min_age: Duration,
    filter: Option<Arc<dyn GcFilter>>,
) {
    let directory = Some(GarbageCollectorDirectoryOptions {
        interval: None,
        min_age,
        dry_run: false,
    });
    let options = GarbageCollectorOptions {
        manifest_options: directory,
        wal_options: directory,
        wal_fence_options: directory,
        compacted_options: directory,
        compactions_options: directory,
        detach_options: None,
        ..GarbageCollectorOptions::default()
    };
    let builder = GarbageCollectorBuilder::new(path(), checked(bucket)).with_options(options);
    let builder = match filter {
        Some(filter) => builder.with_gc_filter(filter),
        None => builder,
    };
    builder.build().run_gc_once().await;
}

pub(super) async fn checkpoint(store: &SlateStore, number: u32) -> CheckpointCreateResult {
    let options = CheckpointOptions {
        lifetime: None,
        source: None,
        name: Some(number.to_string()),
    };
    let made = store
        .db
        .create_checkpoint(CheckpointScope::Durable, &options);
    made.await.unwrap()
}

fn admin(bucket: &TestBucket) -> Admin {
    AdminBuilder::new(path(), checked(bucket)).build()
}

/// All checkpoints, also those of merges.
async fn checkpoints(bucket: &TestBucket) -> Vec<Checkpoint> {
    admin(bucket).list_checkpoints(None).await.unwrap()
}

async fn release(bucket: &TestBucket, one: &Checkpoint) {
    admin(bucket).delete_checkpoint(one.id).await.unwrap();
}

/// Notes all candidates and spares them.
#[derive(Default)]
struct Candidates(parking_lot::Mutex<BTreeSet<String>>);

#[async_trait]
impl GcFilter for Candidates {
    async fn filter(&self, candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        let names = candidates.into_iter().map(|one| one.location.to_string());
        let of_this = names.filter(|name| name.ends_with(".sst"));
        self.0.lock().extend(of_this);
        HashSet::new()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collector_deletes_what_that_of_slatedb_would() {
    let bucket = TestBucket::default();
    let mut collector = Collector::new(checked(&bucket), path(), Duration::ZERO);
    let (mut number, mut most, mut held_at_most) = (0, 0, 0);
    let mut logs_at_most = 0;
    for round in 0..6 {
        if round % 2 == 0 {
            // Logs that the version before left: it opened the store a few times, and committed.
            for _ in 0..3 {
                open_as_before(&bucket).await.close().await.unwrap();
            }
            let before = open_as_before(&bucket).await;
            commit_as_before(&before, number).await;
            before.close().await.unwrap();
            number += 1;
        }
        let store = open(&bucket, settings()).await.unwrap();
        if round % 2 == 1 {
            checkpoint(&store, number).await;
        }
        for _ in 0..COMPACT_AT_TABLES + 1 {
            store.commit(&numbered(number)).await.unwrap();
            if number.is_multiple_of(5) {
                checkpoint(&store, number).await;
            }
            number += 1;
        }
        settle(&bucket).await;
        for _ in 0..2 * round {
            let made = checkpoints(&bucket).await;
            if let Some(one) = made.get(made.len() / 2) {
                release(&bucket, one).await;
            }
            let candidates = Arc::new(Candidates::default());
            collect_with_slatedb(&bucket, Duration::ZERO, Some(candidates.clone())).await;
            let found = collector.find().await.unwrap();
            let found: BTreeSet<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, *candidates.0.lock());
            most = most.max(found.len());
            let logs = found.iter().filter(|name| name.contains("/wal/"));
            logs_at_most = logs_at_most.max(logs.count());
            held_at_most = held_at_most.max(collector.held_tables());
        }
        store.close().await.unwrap();
    }
    assert!(most > 12, "{most} objects to delete");
    assert!(held_at_most > 12, "{held_at_most} tables held");
    assert!(logs_at_most > 2, "{logs_at_most} logs to delete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_of_a_checkpoint_is_read_once() {
    let bucket = TestBucket::default();
    // Checkpoints of merges do not expire during the test.
    let lasting = SlateSettings {
        retention: Duration::from_secs(3600),
        ..settings()
    };
    let store = open(&bucket, lasting.clone()).await.unwrap();
    for n in 0..20 {
        store.commit(&numbered(n)).await.unwrap();
        checkpoint(&store, n).await;
    }
    settle(&bucket).await;
    let mut collector = Collector::new(checked(&bucket), path(), lasting.retention);
    let made = checkpoints(&bucket).await;
    let referred: BTreeSet<u64> = made.iter().map(|one| one.manifest_id).collect();
    assert!(referred.len() >= 20);
    let mut rounds = Vec::new();
    for round in 0..4 {
        if round == 3 {
            checkpoint(&store, 20).await;
            for one in &made[..10] {
                release(&bucket, one).await;
            }
        }
        let before = bucket.tally();
        collector.collect().await;
        rounds.push((bucket.tally() - before).of("GET", "manifest").0);
    }
    let [first, second, third, last] = rounds[..] else {
        panic!("{rounds:?}");
    };
    assert_eq!(first - second, referred.len() as u64, "{rounds:?}");
    assert_eq!((second, last - third), (third, 1), "{rounds:?}");
    assert!(second < 8, "{rounds:?}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_manifest_of_a_checkpoint_nothing_may_be_deleted() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(0)).await.unwrap();
    let one = checkpoint(&store, 0).await;
    for n in 0..=COMPACT_AT_TABLES as u32 {
        store.commit(&numbered(n)).await.unwrap();
    }
    settle(&bucket).await;
    store.close().await.unwrap();
    let name = format!("volume/meta/manifest/{:020}.manifest", one.manifest_id);
    let name = Path::from(name);
    let manifest = bucket.raw().get(&name).await.unwrap();
    let manifest = manifest.bytes().await.unwrap();
    bucket.raw().delete(&name).await.unwrap();
    let mut collector = Collector::new(checked(&bucket), path(), Duration::ZERO);
    let failure = collector.find().await.unwrap_err();
    assert!(failure.to_string().contains("is gone"), "{failure}");
    bucket.raw().put(&name, manifest.into()).await.unwrap();
    collector.find().await.unwrap();
}
