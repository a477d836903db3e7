//! A measurement: how long comparisons take. Its figures are in docs/snapshots.md.
//!
//! `cargo test --release --package forebay-changes --test measure -- --ignored --nocapture`

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "it prints figures"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_changes::{Pair, compare, is_compared};
use forebay_meta::record::{
    BlockMap, Content, CookieRecord, Directory, FrameAddress, InodeRecord, Kind, NameRecord,
    Timestamp, TruncatedBlocks,
};
use forebay_meta::{
    Batch, Key, MetaStore, SlateReader, SlateSettings, SlateStore, keys_that_may_differ,
};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

/// Files in a directory.
const FILES: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(600);
const FIRST_FILE: u64 = 1 << 32;

fn record(content: Content, time: i64) -> InodeRecord {
    let at = Timestamp {
        seconds: time,
        nanos: 0,
    };
    InodeRecord {
        content,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        nlink: 1,
        size: 70_000,
        used: 70_000,
        atime: at,
        mtime: at,
        ctime: at,
        create_verifier: None,
        tree: None,
        truncated: TruncatedBlocks::default(),
    }
}

fn directory_of(file: u64) -> Inode {
    Inode(2 + file / FILES)
}

fn name_of(file: u64) -> bytes::Bytes {
    format!("a file with a name {file:08}").into_bytes().into()
}

fn put_directory(batch: &mut Batch, inode: Inode) {
    let own = Directory {
        parent: Inode::ROOT,
        next_cookie: 3,
        entries: FILES,
    };
    batch.put(&Key::Inode(inode), &record(Content::Directory(own), 1));
    if inode != Inode::ROOT {
        let name = format!("directory {}", inode.0).into_bytes();
        put_name(batch, Inode::ROOT, name.into(), inode, Kind::Directory);
    }
}

fn put_name(batch: &mut Batch, directory: Inode, name: bytes::Bytes, inode: Inode, kind: Kind) {
    let cookie = inode.0;
    let found = NameRecord {
        inode,
        cookie,
        kind,
    };
    batch.put(&Key::Name(directory, name.clone()), &found);
    let listed = CookieRecord { inode, kind, name };
    batch.put(&Key::Cookie(directory, cookie), &listed);
}

fn put_content(batch: &mut Batch, file: u64, time: i64) {
    let inode = Inode(FIRST_FILE + file);
    batch.put(&Key::Inode(inode), &record(Content::Regular, time));
    let frame = FrameAddress {
        pack: PackId((time.unsigned_abs() << 32) + file / 100),
        offset: 70,
        stored_len: 50_000,
        raw_len: 70_000,
        raw_start: 0,
        crc32: 7,
        origin: None,
    };
    let mut map = BlockMap::new();
    map.insert(ByteRange::new(0, 70_000), frame).unwrap();
    let block = BlockIndex(0);
    batch.put(&Key::Block(BlockKey { inode, block }), &map);
}

fn put_file(batch: &mut Batch, file: u64, time: i64) {
    put_content(batch, file, time);
    let inode = Inode(FIRST_FILE + file);
    put_name(
        batch,
        directory_of(file),
        name_of(file),
        inode,
        Kind::Regular,
    );
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks = fields.skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// Changes the file with this number.
type Change = fn(&mut Batch, u64);

struct Volume {
    bucket: Arc<dyn ObjectStore>,
    store: SlateStore,
}

impl Volume {
    async fn with(files: u64) -> Volume {
        let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let settings = SlateSettings {
            timeout: TIMEOUT,
            ..SlateSettings::default()
        };
        let store = SlateStore::open(bucket.clone(), Path::from("meta"), settings).await;
        let volume = Volume {
            bucket,
            store: store.unwrap(),
        };
        let mut batch = Batch::new();
        put_directory(&mut batch, Inode::ROOT);
        (0..files.div_ceil(FILES)).for_each(|n| put_directory(&mut batch, Inode(2 + n)));
        for file in 0..files {
            put_file(&mut batch, file, 1);
            if file % 50_000 == 49_999 {
                volume
                    .store
                    .commit(&std::mem::take(&mut batch))
                    .await
                    .unwrap();
            }
        }
        volume.store.commit(&batch).await.unwrap();
        volume.settle().await;
        volume.keep(&Batch::new(), "old").await;
        volume
    }

    /// Waits until merges of tables have ended.
    async fn settle(&self) {
        let (mut tables, mut same) = (self.store.tables(), 0);
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.store.tables();
            same = if now == tables { same + 1 } else { 0 };
            tables = now;
        }
    }

    async fn keep(&self, batch: &Batch, name: &str) {
        self.store.commit(batch).await.unwrap();
        self.store.keep(name).await.unwrap();
    }

    async fn open(&self, name: &str) -> Arc<SlateReader> {
        let path = Path::from("meta");
        let opened = SlateReader::open_kept(self.bucket.clone(), path, name, TIMEOUT, None).await;
        Arc::new(opened.unwrap().unwrap())
    }

    /// Both ways of a comparison, with readers that have nothing in memory.
    async fn compare(&self, what: &str, name: &str) {
        for skips in [true, false] {
            let (old, new) = (self.open("old").await, self.open(name).await);
            let (begun, used) = (Instant::now(), cpu_seconds());
            let mut keys = None;
            if skips {
                keys = keys_that_may_differ(&old, &new, is_compared).await.unwrap();
                if keys.is_none() {
                    continue;
                }
            }
            let looked_up = keys.as_ref().map(Vec::len);
            let (mut changes, mut bytes) = (0_u64, 0);
            let pair = Pair::new(old, new, keys);
            let compared = compare(&pair, |change| {
                changes += 1;
                bytes += change.path.len();
                Ok(())
            });
            compared.await.unwrap();
            let seconds = begun.elapsed().as_secs_f64();
            let (rate, cpu) = (changes as f64 / seconds, cpu_seconds() - used);
            println!(
                "{what}: {changes} changes in {seconds:.2} s, {rate:.0}/s, {cpu:.2} s of processor time, keys {looked_up:?}, {bytes} bytes of paths"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measured_time_of_comparisons() {
    let files = 1_000_000;
    let volume = Volume::with(files).await;
    volume.compare("nothing", "old").await;
    let mut batch = Batch::new();
    (0..10).for_each(|n| put_content(&mut batch, n * 99_991, 2));
    volume.keep(&batch, "ten").await;
    volume.compare("ten contents", "ten").await;
    let mut batch = Batch::new();
    put_directory(&mut batch, directory_of(files));
    (0..10).for_each(|n| put_file(&mut batch, files + n, 2));
    volume.keep(&batch, "made").await;
    volume.compare("ten contents, ten made", "made").await;

    let all: [(&str, Change); 3] = [
        ("made", |batch, n| put_file(batch, 200_000 + n, 2)),
        ("contents", |batch, n| put_content(batch, n, 2)),
        ("renamed", |batch, n| {
            batch.put(
                &Key::Inode(Inode(FIRST_FILE + n)),
                &InodeRecord {
                    ctime: Timestamp {
                        seconds: 2,
                        nanos: 0,
                    },
                    ..record(Content::Regular, 1)
                },
            );
            batch.delete(&Key::Name(directory_of(n), name_of(n)));
            let to = format!("renamed {n:08}").into_bytes().into();
            put_name(
                batch,
                directory_of(n + 1),
                to,
                Inode(FIRST_FILE + n),
                Kind::Regular,
            );
        }),
    ];
    for (what, change) in all {
        let volume = Volume::with(200_000).await;
        let mut batch = Batch::new();
        (200..=400).for_each(|n| put_directory(&mut batch, Inode(2 + n)));
        (0..200_000).for_each(|n| change(&mut batch, n));
        volume.keep(&batch, "new").await;
        volume
            .compare(&format!("200,000 files, 200,000 {what}"), "new")
            .await;
    }
}
