//! No bytes that no client wrote reach the bucket or the local disk: earlier content of the process's memory may be a
//! secret of a sealed volume. Here all memory from the allocator is filled with marks, and the test searches for the
//! marks.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::time::Duration;

use forebay_fs::{FsConfig, MIN_DISK_CACHE, Volume};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, SetAttributes, Stability};

struct Marking;

const MARK: u8 = 0xE7;
/// This many marks in a row are no coincidence.
const MARKS: usize = 16;

// SAFETY: every call goes to the system allocator; the written bytes lie within the new allocation, which no code
// uses yet.
unsafe impl GlobalAlloc for Marking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            // SAFETY: the allocator returned this many bytes.
            unsafe { pointer.write_bytes(MARK, layout.size()) };
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Marking = Marking;

/// Whether this many marks in a row are in it.
fn is_marked(bytes: &[u8]) -> bool {
    let runs = bytes.split(|byte| *byte != MARK);
    runs.into_iter().any(|run| run.len() >= MARKS)
}

fn marked_files(folder: &Path, found: &mut Vec<String>) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes += marked_files(&path, found);
        } else if path.is_file() {
            let content = fs::read(&path).unwrap();
            bytes += content.iter().filter(|byte| **byte != 0).count() as u64;
            if is_marked(&content) {
                found.push(path.display().to_string());
            }
        }
    }
    bytes
}

async fn life(bucket: &Path, local: &Path, work: impl AsyncFnOnce(&Volume, &Credentials)) {
    let store = format!("file://{}", bucket.display());
    let options = StoreOptions::default();
    let store = forebay_object::open(&store, &options).await.unwrap();
    let mut config = FsConfig::new(local.to_owned());
    config.disk_cache_limit = MIN_DISK_CACHE;
    config.memory_limit = 64 << 20;
    if fs::read_dir(bucket).unwrap().next().is_none() {
        Volume::format_as(&store, &config.expected).await.unwrap();
    }
    let volume = Volume::open(&store, config).await.unwrap();
    work(&volume, &Credentials::default()).await;
    volume.close(Duration::from_secs(60)).await;
}

/// Lengths that end anywhere in a page, a piece and a block.
const LENGTHS: [usize; 6] = [1, 700, 5000, 70_000, 300_001, 5_000_003];

#[test]
fn nothing_that_nobody_has_written_reaches_the_bucket_or_the_local_disk() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (bucket, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = |length: usize| -> Vec<u8> { (0..length).map(|at| (at % 99) as u8).collect() };
    let name = |length: usize| format!("file of {length}");
    runtime.block_on(life(bucket.path(), local.path(), async |volume, caller| {
        for length in LENGTHS {
            let mode = CreateMode::Unchecked(SetAttributes::default());
            let name = name(length);
            let created = volume.create(caller, Inode::ROOT, name.as_bytes(), &mode);
            let file = created.await.unwrap().attributes.inode;
            for (index, part) in content(length).chunks(1 << 20).enumerate() {
                let at = (index << 20) as u64;
                let written = volume.write(caller, file, at, part, Stability::Unstable);
                written.await.unwrap();
            }
            volume.commit(caller, file, 0, 0).await.unwrap();
        }
    }));
    // With nothing in memory, all of it comes from the bucket, through the disk cache.
    runtime.block_on(life(bucket.path(), local.path(), async |volume, caller| {
        for length in LENGTHS {
            let name = name(length);
            let found = volume.lookup(caller, Inode::ROOT, name.as_bytes());
            let file = found.await.unwrap().inode;
            for at in (0..length).step_by(1 << 20) {
                let read = volume.read(caller, file, at as u64, 1 << 20).await.unwrap();
                let read = read.data.concat();
                let end = length.min(at + (1 << 20));
                assert!(read == content(length)[at..end], "{length} bytes, at {at}");
            }
        }
    }));
    let mut found = Vec::new();
    let in_bucket = marked_files(bucket.path(), &mut found);
    let on_disk = marked_files(local.path(), &mut found);
    assert!(in_bucket > 10_000 && on_disk > in_bucket);
    assert_eq!(found, [""; 0], "memory as it was found");
    assert!(fs::read_dir(local.path().join("cache")).is_ok());

    // The marks would have been noticed.
    let layout = Layout::new::<[u8; MARKS]>();
    // SAFETY: as many bytes are read as were allocated, all of which were written, and they are freed.
    let given = unsafe {
        let given = HEAP.alloc(layout);
        let bytes = *given.cast::<[u8; MARKS]>();
        HEAP.dealloc(given, layout);
        bytes
    };
    assert!(is_marked(&given));
}
