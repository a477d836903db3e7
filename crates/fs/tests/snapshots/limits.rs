//! The most snapshots that there may be, and that may wait; and a deletion that takes more than one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use forebay_fs::{FsConfig, SnapshotError};
use forebay_meta::record::{MAX_SNAPSHOTS, SnapshotRecord, VolumeState};
use forebay_meta::{
    Batch, Entry, Key, MetaStore, Record as _, SlateSettings, SlateStore, StoreError,
};
use forebay_types::{CommitNumber, SnapshotId};
use forebay_vfs::Stability;

use super::{all, delete, eager, names, names_in, settled, snapshot};
use crate::common::metadata::Reads;
use crate::common::{Bucket, Life, eventually, pattern};

/// How many snapshots may wait for the bucket. The publisher has taken one more.
const WAITING: usize = 64;

fn try_snapshot(life: &Life, name: &str) -> Result<(), SnapshotError> {
    let made = life.run(|volume| async move { volume.make_snapshot(name, "a test").await });
    made.map(|_| ())
}

/// Makes snapshots, each with a file more, until one is refused. Returns their number.
fn until_refused(life: &Life) -> usize {
    for number in 0.. {
        life.create(format!("file {number:03}").as_bytes());
        match try_snapshot(life, &format!("s{number}")) {
            Ok(()) => {}
            Err(SnapshotError::TooMany) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn as_many_snapshots_as_may_wait_for_the_bucket_are_replayed_and_published() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    life.create(b"first");
    bucket.controls.everything.close();
    let count = until_refused(&life);
    assert!([WAITING, WAITING + 1].contains(&count), "{count}");
    // Nothing else is refused.
    let later = life.create(b"later");
    life.write(later, 0, b"later", Stability::FileSync);
    assert_eq!(try_snapshot(&life, "one more"), Err(SnapshotError::TooMany));
    life.crash();
    bucket.controls.everything.open();

    // A crash in the middle of publishing them.
    bucket.start(eager).crash();
    let life = bucket.start(eager);
    assert_eq!(names(&life).len(), count);
    assert_eq!(life.read(later, 0, 100), b"later");
    life.flush();
    assert!(all(&life).iter().all(|one| one.is_published));
    for number in [0, 1, WAITING / 2, count - 1] {
        let names = names_in(&life, &format!("s{number}"));
        let files = (0..=number).map(|number| format!("file {number:03}"));
        let expected = ["first".to_owned()].into_iter().chain(files);
        assert_eq!(names, expected.collect::<Vec<_>>());
    }
    snapshot(&life, "one more");
    life.flush();
    assert_eq!(names_in(&life, "one more").len(), count + 3);
    life.stop();
}

/// Writes records of snapshots behind the first one, until there are `count`.
fn forge(bucket: &Bucket, count: u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = bucket.store().await;
        let path = store.path("meta");
        let meta = SlateStore::open(store.store.clone(), path, SlateSettings::default());
        let meta = meta.await.unwrap();
        let read = async |key: &Key| meta.get(&key.encode()).await.unwrap().unwrap();
        let first = Key::Snapshot(SnapshotId(1));
        let record = SnapshotRecord::decode(&first.encode(), &read(&first).await).unwrap();
        let state = VolumeState::decode(&Key::Volume.encode(), &read(&Key::Volume).await);
        let mut state = state.unwrap();
        state.history.last_snapshot = count;
        let mut batch = Batch::new();
        for number in 2..=count {
            let record = SnapshotRecord {
                name: format!("forged {number}"),
                commit: CommitNumber(record.commit.0.saturating_sub(1)),
                ..record.clone()
            };
            batch.put(&Key::Snapshot(SnapshotId(number)), &record);
        }
        batch.put(&Key::Volume, &state);
        meta.commit(&batch).await.unwrap();
        meta.close().await.unwrap();
    });
}

#[test]
fn a_volume_has_at_most_1024_snapshots_and_room_again_when_one_is_deleted() {
    assert_eq!(MAX_SNAPSHOTS, 1024);
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    snapshot(&life, "first");
    life.stop();
    forge(&bucket, MAX_SNAPSHOTS as u64 - 1);

    let life = bucket.start(eager);
    snapshot(&life, "last");
    assert_eq!(try_snapshot(&life, "too many"), Err(SnapshotError::Full));
    life.flush();
    assert_eq!(try_snapshot(&life, "too many"), Err(SnapshotError::Full));
    assert_eq!(names(&life).len(), MAX_SNAPSHOTS);
    // By its number.
    delete(&life, "7").unwrap();
    assert!(!names(&life).contains(&"forged 7".to_owned()));
    eventually("there is room for another one", || {
        life.flush();
        try_snapshot(&life, "too many").is_ok()
    });
    assert_eq!(try_snapshot(&life, "again"), Err(SnapshotError::Full));
    life.stop();
}

/// More packs than one step of a deletion passes on: 512.
const PACKS: u64 = 600;
const FILE: usize = 5000;

/// A pack for each file.
fn small_packs(config: &mut FsConfig) {
    eager(config);
    config.pack_bytes = 4096;
}

/// Lets one step of a deletion through, and no second one.
#[derive(Default)]
struct OneStep {
    steps: AtomicU64,
    passed_on: AtomicU64,
}

#[async_trait]
impl Reads for OneStep {
    async fn commits(&self, batch: &Batch) -> Result<(), StoreError> {
        let passes_on = |(key, entry): &&(bytes::Bytes, Entry)| {
            *entry == Entry::Deleted && matches!(Key::decode(key), Ok(Key::Holding(..)))
        };
        let packs = batch.changes().iter().filter(passes_on).count();
        if packs == 0 {
            return Ok(());
        }
        match self.steps.fetch_add(1, Ordering::SeqCst) {
            0 => {
                self.passed_on.store(packs as u64, Ordering::SeqCst);
                Ok(())
            }
            _ => Err(StoreError::Transient("the second step fails".into())),
        }
    }
}

#[test]
fn a_deletion_that_is_cut_off_between_its_steps_gives_back_all_packs_in_the_end() {
    let bucket = Bucket::new();
    let life = bucket.start(small_packs);
    let kept = life.create(b"kept");
    life.write(kept, 0, &pattern(9, FILE), Stability::Unstable);
    for number in 0..PACKS {
        let file = life.create(format!("{number}").as_bytes());
        life.write(file, 0, &pattern(number, FILE), Stability::Unstable);
    }
    snapshot(&life, "old");
    life.flush();
    let packs = bucket.packs().len();
    assert!(packs as u64 >= PACKS, "{packs} packs");
    for number in 0..PACKS {
        life.remove(format!("{number}").as_bytes());
    }
    settled(&life, &bucket);
    assert_eq!(bucket.packs().len(), packs);
    let held = life.volume.status().held_bytes;
    assert!(held >= PACKS * FILE as u64, "{held}");
    life.stop();

    let one_step = Arc::new(OneStep::default());
    let mut config = bucket.config();
    small_packs(&mut config);
    let life = bucket.start_watched(config, one_step.clone());
    delete(&life, "old").unwrap();
    eventually("the second step has begun", || {
        one_step.steps.load(Ordering::SeqCst) > 1
    });
    let passed_on = one_step.passed_on.load(Ordering::SeqCst);
    assert_eq!(passed_on, 512);
    assert!(life.volume.status().held_bytes < held);
    life.crash();

    let life = bucket.start(small_packs);
    assert!(names(&life).is_empty());
    settled(&life, &bucket);
    eventually("nothing is held", || {
        life.flush();
        life.volume.status().held_bytes == 0
    });
    settled(&life, &bucket);
    assert!(bucket.packs().len() < 10, "{} packs", bucket.packs().len());
    assert_eq!(life.read(kept, 0, FILE), pattern(9, FILE));
    life.stop();
}
