//! No call allocates in the steady state; and the memory that waiting calls hold. Both are counted in the whole process
//! except for the client's thread.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers here are small"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::gated::Gated;
use common::*;
use forebay_nfs::record::mark;
use forebay_nfs::xdr::Writer;
use forebay_vfs::memory::MemoryFileSystem;

/// The system's allocator, with counters.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Live allocations of [`SCRATCH_BYTES`].
static SCRATCHES: AtomicI64 = AtomicI64::new(0);
/// Size of the buffer that a socket is read into.
const SCRATCH_BYTES: usize = 64 << 10;

/// One test counts at a time.
static COUNTS: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread's allocations are the client's.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that is ending has no thread-local values any more; it is not a thread that serves.
    if IS_CLIENT.try_with(Cell::get) == Ok(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls are passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        if layout.size() == SCRATCH_BYTES {
            SCRATCHES.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() == SCRATCH_BYTES {
            SCRATCHES.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps to the contract of `dealloc`, and `alloc` and `realloc` gave the pointer.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract of `realloc`, and `alloc` and `realloc` gave the pointer.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls in flight.
const DEPTH: usize = 32;
/// Upper bound for their bytes together.
const MOST_BYTES: usize = 4 << 20;
/// Bytes that READ and WRITE transfer: a few, and the maximum of one call.
const SHORT: u32 = 4096;
const LONG: u32 = 1 << 20;

/// Allocations per call, measured over many calls with equal replies.
fn allocations(client: &mut Client, procedure: u32, arguments: impl FnOnce(&mut Writer)) -> f64 {
    let message = client.message(NFS, 3, procedure, arguments);
    let mut record = mark(message.len()).to_vec();
    record.extend_from_slice(&message);
    client.send_record(&message);
    let reply = client.receive().unwrap();
    // Accepted, and NFS3_OK.
    assert_eq!(reply[20..28], [0; 8]);
    // If the client only wrote, it would wait for the server, and the server would wait for the client to read.
    let depth = DEPTH.min((MOST_BYTES / record.len().max(reply.len())).max(1));
    let mut calls = record.repeat(depth);
    let mut replies = vec![0; (4 + reply.len()) * depth];
    let mut xid = client.xid;
    let mut round = |count: usize| {
        for _ in 0..count {
            for call in calls.chunks_exact_mut(record.len()) {
                xid = xid.wrapping_add(1);
                call[4..8].copy_from_slice(&xid.to_be_bytes());
            }
            client.stream.write_all(&calls).unwrap();
            client.stream.read_exact(&mut replies).unwrap();
        }
    };
    round(50);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let rounds = 100;
    round(rounds);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    client.xid = xid;
    allocations as f64 / (rounds * depth) as f64
}

fn write(client: &mut Client, file: &[u8], bytes: u32) -> f64 {
    allocations(client, 7, |w| {
        w.opaque(file);
        w.u64(0);
        w.u32(bytes);
        w.u32(0);
        w.opaque(&vec![7; bytes as usize]);
    })
}

fn read(client: &mut Client, file: &[u8], bytes: u32) -> f64 {
    allocations(client, 6, |w| {
        w.opaque(file);
        w.u64(0);
        w.u32(bytes);
    })
}

#[test]
fn waiting_calls_of_a_connection_keep_what_one_read_brought_and_no_more() {
    let _counts = COUNTS.lock();
    let fs = Gated::new(true);
    let server = Running::new(fs.clone(), config());
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let before = SCRATCHES.load(Ordering::Relaxed);
    fs.set_writes_open(false);
    for waiting in 1..=20 {
        let data = [7; SHORT as usize];
        client.send(NFS, 3, 7, |w| write_arguments(w, &file, 0, &data, 0));
        server.wait_for("nfs_calls_waiting", |calls| calls == waiting);
    }
    // In addition to idle buffers, of which each thread has one.
    let threads = std::thread::available_parallelism().unwrap().get() as i64;
    let kept = SCRATCHES.load(Ordering::Relaxed) - before;
    assert!(kept <= 1 + threads, "{kept}");
    fs.set_writes_open(true);
    for _ in 0..20 {
        assert_eq!(accepted(&client.receive().unwrap()).status(), 0);
    }
}

#[test]
fn calls_allocate_nothing() {
    let _counts = COUNTS.lock();
    IS_CLIENT.set(true);
    let mut config = config();
    // So that the cache is full soon, and stops growing.
    config.limits.replay_entries = 512;
    let server = Running::new(Arc::new(MemoryFileSystem::new()), config);
    let mut client = server.client();
    let root = client.root();
    let file = client.create(&root, "file");
    let mut measured = Vec::new();
    // A caller without supplementary groups, and one with five.
    for groups in [vec![], vec![4, 24, 27, 100, 1000]] {
        client.caller = As::User(0, 0, groups);
        let mut check = |name: &str, count: f64| {
            measured.push(format!("{name}: {count:.3}"));
            // The buffers of calls in flight grow now and then, not with each call.
            (count <= 0.1).then_some(()).ok_or(name.to_owned())
        };
        let outcomes = [
            check("GETATTR", allocations(&mut client, 1, |w| w.opaque(&file))),
            check(
                "SETATTR",
                allocations(&mut client, 2, |w| {
                    w.opaque(&file);
                    no_attributes(w);
                    w.u32(0);
                }),
            ),
            check(
                "LOOKUP",
                allocations(&mut client, 3, |w| {
                    w.opaque(&root);
                    w.opaque(b"file");
                }),
            ),
            check(
                "ACCESS",
                allocations(&mut client, 4, |w| {
                    w.opaque(&file);
                    w.u32(0x3f);
                }),
            ),
            check("WRITE", write(&mut client, &file, SHORT)),
            check("READ", read(&mut client, &file, SHORT)),
            check("WRITE of 1 MiB", write(&mut client, &file, LONG)),
            check("READ of 1 MiB", read(&mut client, &file, LONG)),
        ];
        let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(failed.is_empty(), "{failed:?}: {measured:#?}");
    }
}
