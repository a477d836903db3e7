//! What the log costs, beside the bare copy and checksum of the same bytes.
//!
//! The log lies in the temporary folder (`TMPDIR`) and is recycled as it goes. `append/log` recycles
//! before the background flush sets in, as with a publisher that keeps up, and so shows what an
//! append costs; `append/log_to_disk` recycles late, so that every segment is flushed first, and is
//! bound by the disk. Both go round in more memory than the processor's caches hold, and so does the
//! bare copy.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{
    AppendError, Appended, FileStorage, Options, RecordKind, Recovery, Storage, Wal,
};

const VOLUME: VolumeId = VolumeId([1; 16]);
const SIZES: [(&str, usize); 3] = [("512B", 512), ("32KiB", 32 << 10), ("1MiB", 1 << 20)];
/// Bytes that are retained before they are recycled.
const RECYCLED_EARLY: u64 = 48 << 20;
const RECYCLED_LATE: u64 = 512 << 20;
/// Bytes that the bare copy goes round in: what the log retains, the prepared segment and a spare.
const BARE_ROUND: usize = 128 << 20;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

struct Log {
    wal: Wal,
    storage: Arc<dyn Storage>,
    _folder: tempfile::TempDir,
}

fn open() -> Log {
    let folder = tempfile::tempdir().expect("folder");
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(folder.path()).expect("opened"));
    let options = Options::new(VOLUME, Epoch(1));
    let recovery = Recovery::scan(Arc::clone(&storage), VOLUME, Lsn::ZERO).expect("scanned");
    let wal = recovery.into_wal(options).expect("opened");
    Log {
        wal,
        storage,
        _folder: folder,
    }
}

fn append(wal: &Wal, payload: &[u8]) -> Appended {
    loop {
        match wal.append(RecordKind::Data, &[payload]) {
            Ok(appended) => return appended,
            Err(AppendError::Full) => wait(wal.room(payload.len() as u64)).expect("room"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Appends, and recycles everything whenever more than `retained` bytes are in use.
fn append_and_recycle(wal: &Wal, payload: &[u8], count: u64, retained: u64) {
    for _ in 0..count {
        append(wal, payload);
        if wal.used_bytes() > retained {
            wal.recycle(wal.next_lsn());
        }
    }
}

fn appending(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    let mut round = vec![1_u8; BARE_ROUND];
    for (name, size) in SIZES {
        let payload = vec![0x5a_u8; size];
        group.throughput(Throughput::Bytes(size as u64));
        for (kind, retained) in [("log", RECYCLED_EARLY), ("log_to_disk", RECYCLED_LATE)] {
            let log = open();
            // Far enough round that every segment has had a former life.
            append_and_recycle(
                &log.wal,
                &payload,
                2 * RECYCLED_LATE / size as u64,
                retained,
            );
            group.bench_function(format!("{kind}/{name}"), |b| {
                b.iter_custom(|count| {
                    let start = Instant::now();
                    append_and_recycle(&log.wal, &payload, count, retained);
                    start.elapsed()
                });
            });
        }
        let mut at = 0;
        group.bench_function(format!("bare/{name}"), |b| {
            b.iter(|| {
                at = if at + 2 * size > round.len() {
                    0
                } else {
                    at + size
                };
                black_box(crc32fast::hash(&payload));
                round[at..at + size].copy_from_slice(black_box(&payload));
            });
        });
    }
    group.finish();
}

fn recovering(c: &mut Criterion) {
    let mut group = c.benchmark_group("recover");
    for count in [100_u64, 1000] {
        let log = open();
        for number in 0..count {
            append(&log.wal, &number.to_le_bytes().repeat(64));
        }
        log.wal.close().expect("flushed");
        group.bench_function(format!("{count}x512B"), |b| {
            b.iter(|| {
                let storage = Arc::clone(&log.storage);
                let mut recovery = Recovery::scan(storage, VOLUME, Lsn::ZERO).expect("scanned");
                let mut found = 0;
                while let Some(record) = recovery.next().expect("readable") {
                    black_box(record.payload);
                    found += 1;
                }
                assert_eq!(found, count);
            });
        });
    }
    group.finish();
}

fn committing(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit");
    let log = open();
    let end = append(&log.wal, &[1; 512]).end;
    wait(log.wal.durable(end)).expect("durable");
    group.bench_function("already_durable", |b| {
        b.iter(|| wait(log.wal.durable(black_box(end))));
    });
    for writers in [1_u64, 16] {
        group.throughput(Throughput::Elements(writers));
        group.bench_function(format!("group_of_{writers}"), |b| {
            b.iter(|| {
                let ends: Vec<_> = (0..writers)
                    .map(|_| append(&log.wal, &[1; 512]).end)
                    .collect();
                let waiters: Vec<_> = ends.iter().map(|end| log.wal.durable(*end)).collect();
                for waiter in waiters {
                    wait(waiter).expect("durable");
                }
                if log.wal.used_bytes() > RECYCLED_EARLY {
                    log.wal.recycle(log.wal.next_lsn());
                }
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = appending, recovering, committing
}
criterion_main!(benches);
