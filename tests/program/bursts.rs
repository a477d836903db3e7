//! Bursts that are larger than memory: a client writes while the bucket takes nothing, and SIGKILL ends the gateway again and again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_client::{Handle, Link, LinkError, Reply, Request, Stable, Steady};

use crate::support::preload::HeldPacks;
use crate::support::{Gateway, Place, TIMEOUT, run};

/// Bytes of one WRITE or READ.
const PIECE: u64 = 1 << 20;
/// WRITEs before a COMMIT.
const BATCH: u64 = 4;
/// How many pieces of each file are committed when the gateway is killed. `memory_limit` has room for 56 that are dirty.
const KILLED_AT: [u64; 3] = [20, 50, 80];
const FLAGS: [&str; 5] = [
    "--memory-limit=64MiB",
    "--log-limit=1GiB",
    "--checkpoint-bytes=16MiB",
    "--checkpoint-interval=200ms",
    "--compression=off",
];

/// A client that writes one file from its beginning on, until the gateway is gone.
struct Writer {
    file: u64,
    committed: Arc<AtomicU64>,
    thread: JoinHandle<LinkError>,
}

/// A file, and how many of its pieces were committed.
struct Written {
    file: u64,
    pieces: u64,
}

/// The bytes of a piece: each page of 4 KiB begins with its place.
fn bytes(file: u64, piece: u64) -> Vec<u8> {
    let mut bytes = vec![0; PIECE as usize];
    for (page, content) in (0_u64..).zip(bytes.chunks_mut(4096)) {
        content.fill((file + piece + page) as u8);
        content[..8].copy_from_slice(&(file << 48 | piece << 24 | page).to_le_bytes());
    }
    bytes
}

fn name(file: u64) -> String {
    format!("burst-{file}")
}

impl Writer {
    fn start(gateway: &Gateway, file: u64) -> Writer {
        let mut client = gateway.client();
        let root = client.mount();
        let handle = client.create(&root, name(file).as_bytes());
        let committed = Arc::new(AtomicU64::new(0));
        let (mut link, count) = (client.into_link(), committed.clone());
        let thread = thread::spawn(move || {
            loop {
                if let Err(gone) = write_batch(&mut link, &handle, file, &count) {
                    return gone;
                }
            }
        });
        Writer {
            file,
            committed,
            thread,
        }
    }

    /// Waits until this many pieces are committed.
    #[track_caller]
    fn reaches(&self, pieces: u64) {
        let deadline = Instant::now() + TIMEOUT;
        while self.committed.load(Ordering::Acquire) < pieces {
            assert!(Instant::now() < deadline, "the writer stands still");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What it has written, after the gateway is gone.
    #[track_caller]
    fn written(self) -> Written {
        let ended = self.thread.join().unwrap();
        assert!(matches!(ended, LinkError::Gone), "{ended}");
        Written {
            file: self.file,
            pieces: self.committed.load(Ordering::Acquire),
        }
    }
}

/// Writes the next pieces, and counts them when they are committed.
fn write_batch(
    link: &mut Link<Steady>,
    handle: &Handle,
    file: u64,
    committed: &AtomicU64,
) -> Result<(), LinkError> {
    let first = committed.load(Ordering::Acquire);
    for piece in first..first + BATCH {
        let data = bytes(file, piece);
        let request = Request::write(handle, piece * PIECE, &data, Stable::Unstable);
        link.get(&request, Reply::written)?;
    }
    link.get(&Request::commit(handle), Reply::committed)?;
    committed.store(first + BATCH, Ordering::Release);
    Ok(())
}

/// Every committed byte must be there.
#[track_caller]
fn assert_has(gateway: &Gateway, all: &[Written], when: &str) {
    let mut client = gateway.client();
    let root = client.mount();
    for Written { file, pieces } in all {
        let handle = client.lookup(&root, name(*file).as_bytes()).unwrap();
        for piece in 0..*pieces {
            let read = client.read(&handle, piece * PIECE, PIECE as u32).unwrap();
            assert!(
                read == bytes(*file, piece),
                "{when}: MiB {piece} of {}",
                name(*file)
            );
        }
    }
}

#[test]
fn a_burst_larger_than_memory_outlives_kills_and_is_read_back_while_it_is_uploaded() {
    let place = Place::new();
    let held = HeldPacks::writes(&place);
    let flags = [&place.flags("data")[..], &FLAGS.map(str::to_owned)].concat();
    let start = || Gateway::start(&flags, &[("LD_PRELOAD", &held.library)]);
    let mut all: Vec<Written> = Vec::new();
    for (file, pieces) in (0..).zip(KILLED_AT) {
        let gateway = start();
        assert_has(&gateway, &all, "after a kill");
        let writer = Writer::start(&gateway, file);
        writer.reaches(pieces);
        gateway.kill();
        all.push(writer.written());
    }
    held.wait();

    let gateway = start();
    let status = gateway.status();
    let number = |name: &str| status[name].as_u64().unwrap();
    let written = all.iter().map(|written| written.pieces * PIECE).sum();
    assert!(number("dirty_bytes") >= written, "{status}");
    assert!(number("spilled_bytes") >= written - (56 << 20), "{status}");
    // A pack and the records for it may be beside it.
    assert!(number("memory_bytes") <= 96 << 20, "{status}");
    assert_has(&gateway, &all, "while the bucket takes nothing");

    held.release();
    thread::scope(|scope| {
        let flush = scope.spawn(|| gateway.flush());
        assert_has(&gateway, &all, "while it is uploaded");
        flush.join().unwrap();
    });
    assert_has(&gateway, &all, "uploaded");
    gateway.kill();
    fs::remove_dir_all(place.data_dir()).unwrap();

    let gateway = place.serve_with("elsewhere", &["--take-over"]);
    assert_has(&gateway, &all, "from the bucket alone");
    gateway.stop_cleanly();
    let store = format!("--store=file://{}", place.bucket().display());
    let checked = run(&["fsck", "--read-data", &store]);
    assert!(checked.status.success(), "{}", checked.stdout);
}
