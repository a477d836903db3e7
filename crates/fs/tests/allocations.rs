//! Reads and writes of bytes in memory, and commits of nothing, allocate nothing in a whole volume: counted for the
//! caller's thread, because other threads work for uploads and the log meanwhile. A volume that was closed and
//! dropped has freed all of its memory. And names that are made as fast as possible take no more memory than is
//! counted for them.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_fs::{CommitMode, FsConfig, Volume};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, Error, FileSystem, NewNode, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

struct Counting;

thread_local! {
    // Constant, and nothing to drop: using it in the allocator never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that all threads have allocated now.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The highest value of that.
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(in_use, Ordering::Relaxed);
}

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const FILE_BYTES: u64 = 8 << 20;
/// Bytes of a short call, and of the longest one.
const CALL_BYTES: [u64; 2] = [4096, 1 << 20];
/// Bytes that all calls of one kind move.
const TURN_BYTES: u64 = 8 << 20;

/// Allocations of this thread in `calls` calls, after the same calls that are not counted: the list of places that a block
/// has in the log grows with the number of its writes, by doubling.
async fn allocations(calls: u64, mut call: impl AsyncFnMut(u64)) -> u64 {
    for turn in 0..calls {
        call(turn).await;
    }
    let before = ALLOCATIONS.get();
    for turn in 0..calls {
        call(turn).await;
    }
    ALLOCATIONS.get() - before
}

/// Offsets all over the file, for calls of this many bytes.
fn offset(turn: u64, bytes: u64) -> u64 {
    turn * 7919 % (FILE_BYTES / bytes) * bytes
}

/// A new volume in memory, with these additional settings.
async fn volume(local: &Path, set: impl FnOnce(&mut FsConfig)) -> Volume {
    let options = StoreOptions::default();
    let store = forebay_object::open("memory://", &options).await.unwrap();
    let mut config = FsConfig::new(local.to_owned());
    set(&mut config);
    Volume::format_as(&store, &config.expected).await.unwrap();
    Volume::open(&store, config).await.unwrap()
}

/// One test at a time: others would allocate meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn reads_and_writes_of_what_is_in_memory_allocate_nothing() {
    let _alone = ALONE.lock();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let allocated = runtime.block_on(in_memory());
    assert!(
        allocated.iter().all(|(_, count)| *count == 0),
        "{allocated:#?}"
    );
}

/// Allocations of writes, reads and commits of a file in memory.
async fn in_memory() -> Vec<(String, u64)> {
    let local = tempfile::tempdir().unwrap();
    // A write to bytes that are being uploaded copies them.
    let set = |config: &mut FsConfig| {
        config.early_bytes = u64::MAX;
        config.checkpoint_interval = Duration::from_secs(3600);
        config.checkpoint_bytes = u64::MAX;
    };
    let volume = volume(local.path(), set).await;
    let caller = Credentials {
        groups: [4, 24, 27, 100, 1000].as_slice().into(),
        ..Credentials::default()
    };
    let mode = CreateMode::Unchecked(SetAttributes::default());
    let created = volume.create(&caller, Inode::ROOT, b"file", &mode).await;
    let file = created.unwrap().attributes.inode;
    let filling = vec![7; FILE_BYTES as usize];
    let written = volume.write(&caller, file, 0, &filling, Stability::FileSync);
    written.await.unwrap();

    let mut allocated = Vec::new();
    for bytes in CALL_BYTES {
        let calls = TURN_BYTES / bytes;
        let data = &filling[..bytes as usize];
        for stability in [Stability::Unstable, Stability::FileSync] {
            let count = allocations(calls, async |turn| {
                let written = volume.write(&caller, file, offset(turn, bytes), data, stability);
                assert_eq!(u64::from(written.await.unwrap().count), bytes);
            });
            allocated.push((format!("{bytes} written, {stability:?}"), count.await));
        }
        let count = allocations(calls, async |turn| {
            let read = volume.read(&caller, file, offset(turn, bytes), bytes as u32);
            let read = read.await.unwrap().data;
            assert_eq!(
                read.iter().map(|piece| piece.len() as u64).sum::<u64>(),
                bytes
            );
        });
        allocated.push((format!("{bytes} read"), count.await));
    }
    volume.commit(&caller, file, 0, 0).await.unwrap();
    let count = allocations(1000, async |_| {
        volume.commit(&caller, file, 0, 0).await.unwrap();
    });
    allocated.push(("committed".to_owned(), count.await));
    volume.close(Duration::from_secs(60)).await;
    allocated
}

/// A life of a volume, with metadata in several tables, data in memory and in the bucket, and some that were read
/// back.
async fn life() {
    let local = tempfile::tempdir().unwrap();
    let volume = volume(local.path(), |_| ()).await;
    let caller = Credentials::default();
    let mode = CreateMode::Unchecked(SetAttributes::default());
    for number in 0..FILES {
        let name = format!("file {number}");
        let created = volume.create(&caller, Inode::ROOT, name.as_bytes(), &mode);
        let file = created.await.unwrap().attributes.inode;
        let written = volume.write(&caller, file, 0, &[7; 16 << 10], Stability::Unstable);
        written.await.unwrap();
        if number % (FILES / 4) == 0 {
            volume.flush().await.unwrap();
            volume.read(&caller, file, 0, 16 << 10).await.unwrap();
        }
    }
    volume.close(Duration::from_secs(60)).await;
}

const FILES: u64 = 1000;

#[test]
fn a_volume_that_was_closed_has_given_its_memory_back() {
    let _alone = ALONE.lock();
    let after_a_life = || {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(life());
        drop(runtime);
        IN_USE.load(Ordering::Relaxed)
    };
    // Memory that the process keeps for good is allocated in the first lives.
    let before = [after_a_life(), after_a_life()][1];
    let after = [after_a_life(), after_a_life(), after_a_life()][2];
    let grown = after.saturating_sub(before);
    assert!(grown < 256 << 10, "{grown} bytes more after three lives");
}

/// Files that are made at the same time, and altogether.
const MAKERS: u64 = 4;
const NAMES: u64 = 25_000;

/// Objects of other kinds, which are larger than a file with a short name or take more calls.
const FEWER: u64 = 9_000;

/// The kind of object that the makers make as fast as possible.
#[derive(Clone, Copy, Debug)]
enum Made {
    /// Files with short names.
    Files,
    /// Files with names of 255 bytes.
    LongNames,
    Directories,
    /// Symbolic links with paths of 4096 bytes.
    Symlinks,
    /// Names of 255 bytes, all of one file.
    Links,
    /// Files that get another mode and a name of 255 bytes, and are removed.
    Passing,
}

impl Made {
    fn count(self) -> u64 {
        match self {
            Made::Files => NAMES,
            _ => FEWER,
        }
    }
}

/// A name of 255 bytes.
fn long(number: u64) -> Vec<u8> {
    format!("{number:0>255}").into_bytes()
}

/// Makes objects in a volume with little memory for names, whose bucket is a folder; returns the peak of its memory
/// in bytes, less the memory after the first thousand.
async fn memory_of_names(made: Made, set: impl FnOnce(&mut FsConfig)) -> usize {
    let (local, bucket) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", bucket.path().display());
    let options = StoreOptions::default();
    let store = forebay_object::open(&url, &options).await.unwrap();
    let mut config = FsConfig::new(local.path().to_owned()).with_memory(64 << 20);
    config.metadata_cache = 1 << 20;
    set(&mut config);
    Volume::format_as(&store, &config.expected).await.unwrap();
    let volume = Volume::open(&store, config).await.unwrap();
    // No call waits for the disk, so that the publisher falls behind.
    let volume = volume.with_commit_mode(CommitMode::Async);
    let linked = make(&volume, Made::Files, Inode::ROOT, 0..1000).await;
    volume.flush().await.unwrap();
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let each = (made.count() - 1000) / MAKERS;
    let makers: Vec<_> = (0..MAKERS)
        .map(|maker| {
            let (volume, first) = (volume.clone(), 1000 + maker * each);
            tokio::spawn(async move { make(&volume, made, linked, first..first + each).await })
        })
        .collect();
    for maker in makers {
        maker.await.unwrap();
    }
    let peak = PEAK.load(Ordering::Relaxed);
    volume.close(Duration::from_secs(60)).await;
    peak.saturating_sub(before)
}

/// Makes objects with these numbers; returns the last one that remains.
async fn make(volume: &Volume, made: Made, linked: Inode, numbers: std::ops::Range<u64>) -> Inode {
    let mut last = linked;
    for number in numbers {
        let new = loop {
            match make_one(volume, made, linked, number).await {
                // The bucket is too slow for a second: clients repeat the call.
                Err(Error::Delay) => {}
                new => break new.unwrap(),
            }
        };
        last = new.unwrap_or(last);
    }
    last
}

/// Makes one object; returns it if it remains.
async fn make_one(
    volume: &Volume,
    made: Made,
    linked: Inode,
    number: u64,
) -> Result<Option<Inode>, Error> {
    let caller = Credentials::default();
    let root = Inode::ROOT;
    let attributes = SetAttributes::default();
    let mode = CreateMode::Unchecked(attributes);
    let name = format!("a file with the number {number}").into_bytes();
    let long = long(number);
    let new = match made {
        Made::Files => volume.create(&caller, root, &name, &mode).await?,
        Made::LongNames => volume.create(&caller, root, &long, &mode).await?,
        Made::Directories => {
            let made = volume.make(&caller, root, &name, NewNode::Directory, &attributes);
            made.await?
        }
        Made::Symlinks => {
            let path = NewNode::Symlink(&[b'p'; 4096]);
            volume.make(&caller, root, &name, path, &attributes).await?
        }
        Made::Links => {
            volume.link(&caller, linked, root, &long).await?;
            return Ok(None);
        }
        Made::Passing => {
            let file = volume.create(&caller, root, &name, &mode).await?;
            let set = SetAttributes {
                mode: Some(0o600),
                ..attributes
            };
            let inode = file.attributes.inode;
            volume.setattr(&caller, inode, &set, None).await?;
            volume.rename(&caller, (root, &name), (root, &long)).await?;
            volume.remove(&caller, root, &long).await?;
            return Ok(None);
        }
    };
    Ok(Some(new.attributes.inode))
}

fn are_within_their_memory(made: Made) {
    let _alone = ALONE.lock();
    let runtime = Runtime::new().unwrap();
    let mut allowed = 0;
    let peak = runtime.block_on(memory_of_names(made, |config| {
        // Beside them: 16 MiB of names that were looked up, and tables that are merged: little of small records.
        let merging = if matches!(made, Made::Symlinks) {
            16
        } else {
            0
        };
        allowed = config.names_memory() as usize + ((16 + merging) << 20);
    }));
    assert!(
        peak <= allowed,
        "{made:?}: {peak} bytes, and {allowed} are allowed"
    );
}

#[test]
fn names_take_no_more_memory_than_is_counted_for_them() {
    are_within_their_memory(Made::Files);
}

#[test]
fn what_is_larger_or_takes_more_calls_is_counted_too() {
    for made in [
        Made::LongNames,
        Made::Directories,
        Made::Symlinks,
        Made::Links,
        Made::Passing,
    ] {
        are_within_their_memory(made);
    }
}
