//! Volumes between this version, which leaves SlateDB's log alone, and the version before, which did not.

use slatedb::Db;
use slatedb::config::{FlushOptions, FlushType, WriteOptions};

use super::collector::{checked, path};
use super::*;
use crate::slate::clock::VolumeClock;
use crate::slate::engine::engine_settings;
use crate::slate::{BLOCK_SIZE, SlateFolder};

/// Opens the store as the version before did: SlateDB looks for its log, and writes a fence.
pub(super) async fn open_as_before(bucket: &TestBucket) -> Db {
    let clock = Arc::new(VolumeClock::default());
    let builder = Db::builder(path(), checked(bucket))
        .with_settings(engine_settings())
        .with_system_clock(clock.clone())
        .with_sst_block_size(BLOCK_SIZE);
    let db = builder.build().await.unwrap();
    clock.follow(&db);
    db
}

pub(super) async fn commit_as_before(db: &Db, number: u32) {
    let mut write = slatedb::WriteBatch::new();
    write.put(b"latest", number.to_be_bytes());
    let options = WriteOptions::default();
    db.write_with_options(write, &options).await.unwrap();
    let flush = db.flush_with_options(FlushOptions {
        flush_type: FlushType::MemTable,
    });
    flush.await.unwrap();
}

async fn logs(bucket: &TestBucket) -> usize {
    let objects = bucket.objects().await;
    objects.iter().filter(|name| name.contains("/wal/")).count()
}

/// One life of a gateway.
#[derive(Clone, Copy, Debug)]
struct Life {
    is_before: bool,
    commits: bool,
    closes: bool,
}

impl Life {
    fn all() -> Vec<Life> {
        let flags = |n: u8| [n & 1 > 0, n & 2 > 0, n & 4 > 0];
        let lives = (0..8).map(flags);
        lives
            .map(|[is_before, commits, closes]| Life {
                is_before,
                commits,
                closes,
            })
            .collect()
    }

    /// Lives once, and checks what was committed last.
    async fn live(self, bucket: &TestBucket, last: &mut u32) {
        let number = *last + 1;
        let found = if self.is_before {
            let db = open_as_before(bucket).await;
            let found = db.get(b"latest").await.unwrap();
            if self.commits {
                commit_as_before(&db, number).await;
            }
            if self.closes {
                db.close().await.unwrap();
            }
            found
        } else {
            let store = open(bucket, settings()).await.unwrap();
            let found = store.get(b"latest").await.unwrap();
            if self.commits {
                store.commit(&numbered(number)).await.unwrap();
            }
            if self.closes {
                store.close().await.unwrap();
            }
            found
        };
        let found = found.map_or(0, |found| u32::from_be_bytes(found[..].try_into().unwrap()));
        assert_eq!(found, *last);
        if self.commits {
            *last = number;
        }
    }
}

/// With commits and without, closed and killed, in each order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_version_and_the_one_before_open_what_the_other_wrote() {
    for first in Life::all() {
        for second in Life::all() {
            let bucket = TestBucket::default();
            let mut last = 0;
            // Twice: numbers that grow without need are found out about.
            for life in [first, second, first, second] {
                life.live(&bucket, &mut last).await;
            }
            for is_before in [true, false, true, true, false] {
                let life = Life {
                    is_before,
                    commits: true,
                    closes: true,
                };
                life.live(&bucket, &mut last).await;
            }
        }
    }
}

#[tokio::test]
async fn numbers_of_logs_do_not_grow() {
    let bucket = TestBucket::default();
    for _ in 0..3 {
        open_as_before(&bucket).await.close().await.unwrap();
    }
    let before = logs(&bucket).await;
    assert_eq!(before, 3);
    let mut numbers = Vec::new();
    for round in 0..6 {
        let store = open(&bucket, settings()).await.unwrap();
        if round > 2 {
            store.commit(&numbered(round)).await.unwrap();
        }
        let manifest = store.db.manifest();
        numbers.push((manifest.replay_after_wal_id(), manifest.next_wal_sst_id()));
        store.close().await.unwrap();
    }
    let (first, last) = (numbers[0], numbers[5]);
    assert_eq!(numbers[..3], [first; 3]);
    assert_eq!(numbers[3..], [last; 3]);
    assert_eq!(last, (first.1 - 1, first.1));
    assert_eq!(logs(&bucket).await, before);
}

#[tokio::test]
async fn changes_that_are_added_to_a_folder_leave_no_log() {
    let bucket = TestBucket::default();
    let store = open(&bucket, settings()).await.unwrap();
    store.commit(&numbered(1)).await.unwrap();
    store.close().await.unwrap();
    let objects: Arc<dyn ObjectStore> = Arc::new(bucket.clone());
    let folder = SlateFolder::new(objects, path(), settings().timeout, None);
    folder.add(&[numbered(2), numbered(3)]).await.unwrap();
    assert_eq!(logs(&bucket).await, 0);
    let latest = read(&bucket).await.get(b"latest").await.unwrap().unwrap();
    assert_eq!(latest[..], 3u32.to_be_bytes());
}
