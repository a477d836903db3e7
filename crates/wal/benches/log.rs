//! The cost of the log, beside a bare copy and checksum of the same bytes, and beside a published log of the same
//! purpose. The benchmarks of that log are repeated here as `published`: its records, and state that need not be
//! created again.
//!
//! The log lies in the temporary folder (`TMPDIR`) and is recycled during the run. `append/log` recycles before the
//! background flush begins, as with a publisher that keeps up, and so measures the append alone; `append/log_to_disk`
//! recycles late, so that every segment is flushed first, and is limited by the disk. Both use more memory than the
//! processor's caches hold, and so does the bare copy.
//!
//! The benchmark `bare` compares appends with the bare work in turns, and stores into a mapped file with `pwrite`, in
//! processor time of the appending thread, which does not depend on other load of the machine.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::collections::HashMap;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{
    AppendError, Appended, FileStorage, Options, RecordKind, Recovery, Storage, Wal, WriterEnd,
};

const VOLUME: VolumeId = VolumeId([1; 16]);
const SIZES: [(&str, usize); 3] = [("512B", 512), ("32KiB", 32 << 10), ("1MiB", 1 << 20)];
/// Bytes that are retained before they are recycled.
const RECYCLED_EARLY: u64 = 48 << 20;
const RECYCLED_LATE: u64 = 512 << 20;
/// Bytes of memory that the bare copy cycles through: what the log retains, the prepared segment and a spare.
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

fn append_kind(wal: &Wal, kind: RecordKind, payload: &[u8]) -> Appended {
    loop {
        match wal.append(kind, &[payload]) {
            Ok(appended) => return appended,
            Err(AppendError::Full) => wait(wal.room(payload.len() as u64)).expect("room"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn append(wal: &Wal, payload: &[u8]) -> Appended {
    append_kind(wal, RecordKind::Data, payload)
}

/// Appends, and recycles everything after each `retained` bytes.
fn append_and_recycle(wal: &Wal, payload: &[u8], count: u64, retained: u64) {
    for _ in 0..count {
        let end = append(wal, payload).end;
        if end.0 / retained != (end.0 - payload.len() as u64) / retained {
            wal.recycle(end);
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
            // Long enough that every segment has had an earlier life.
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

/// Records that are written before the recovery: 1 KiB each, of files, some of which are removed again.
struct Content {
    name: &'static str,
    records: u64,
    files: u64,
    removed: u64,
}

const CONTENTS: [Content; 3] = [
    Content {
        name: "100",
        records: 100,
        files: 10,
        removed: 0,
    },
    Content {
        name: "1000",
        records: 1000,
        files: 10,
        removed: 0,
    },
    Content {
        name: "500 with removes",
        records: 500,
        files: 50,
        removed: 25,
    },
];

/// Counts the remaining records of the files that were not removed.
fn recover(storage: &Arc<dyn Storage>, ending: WriterEnd) -> usize {
    let mut recovery =
        Recovery::scan_after(Arc::clone(storage), VOLUME, Lsn::ZERO, ending).expect("scanned");
    let mut files: HashMap<u64, Vec<Lsn>> = HashMap::new();
    while let Some(record) = recovery.next().expect("readable") {
        let file = record.payload.first_chunk().expect("the file's number");
        let file = u64::from_le_bytes(*file);
        match record.kind {
            RecordKind::Data => files.entry(file).or_default().push(record.lsn),
            _ => drop(files.remove(&file)),
        }
    }
    files.values().map(Vec::len).sum()
}

/// `published`: after an orderly stop, like the published benchmark. The others: after a kill, when recovery has to
/// search the log's last segment behind its end. `256MiB`: more than the processor's caches hold.
fn recovering(c: &mut Criterion) {
    let mut group = c.benchmark_group("recover");
    for content in CONTENTS {
        let log = open();
        for number in 0..content.records {
            append(
                &log.wal,
                &(number % content.files).to_le_bytes().repeat(128),
            );
        }
        for file in 0..content.removed {
            append_kind(&log.wal, RecordKind::Metadata, &file.to_le_bytes());
        }
        log.wal.close().expect("flushed");
        let stop = WriterEnd::StopAt(log.wal.next_lsn());
        let left = content.records * (content.files - content.removed) / content.files;
        for (id, ending) in [
            (BenchmarkId::new("published", content.name), stop),
            (BenchmarkId::from_parameter(content.name), WriterEnd::Kill),
        ] {
            group.bench_function(id, |b| {
                b.iter(|| assert_eq!(recover(&log.storage, ending), left as usize));
            });
        }
    }
    let log = open();
    let records = (256 << 20) / (32 << 10);
    for number in 0..records {
        append(&log.wal, &(number % 100_u64).to_le_bytes().repeat(4096));
    }
    log.wal.close().expect("flushed");
    group.throughput(Throughput::Bytes(256 << 20));
    group.sample_size(10);
    group.bench_function("256MiB", |b| {
        b.iter(|| assert_eq!(recover(&log.storage, WriterEnd::Kill), records as usize));
    });
    group.finish();
}

/// `published`: a mark of a few bytes for a removed file, and a recycling that finds nothing to do. `segment`: one
/// that reuses a segment of 32 MiB.
fn recycling(c: &mut Criterion) {
    let mut group = c.benchmark_group("recycle");
    let log = open();
    group.bench_function("published mark", |b| {
        b.iter_custom(|count| {
            let start = Instant::now();
            for number in 0..count {
                let end = append_kind(&log.wal, RecordKind::Metadata, &number.to_le_bytes()).end;
                if end.0 / RECYCLED_EARLY != (end.0 - 40) / RECYCLED_EARLY {
                    log.wal.recycle(end);
                }
            }
            start.elapsed()
        });
    });
    let end = log.wal.next_lsn();
    log.wal.recycle(end);
    group.bench_function("published", |b| {
        b.iter(|| log.wal.recycle(black_box(end)));
    });
    let payload = vec![1; 1 << 20];
    group.sample_size(10);
    group.bench_function("segment", |b| {
        b.iter_custom(|count| {
            let mut taken = Duration::ZERO;
            for _ in 0..count {
                let end = (0..32).map(|_| append(&log.wal, &payload).end).last();
                let start = Instant::now();
                log.wal.recycle(end.unwrap_or(Lsn::ZERO));
                taken += start.elapsed();
            }
            taken
        });
    });
    group.finish();
}

/// `published`: a commit of records that are already durable, which flushes nothing. The others flush for real.
fn committing(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit");
    let log = open();
    let end = append(&log.wal, &[1; 512]).end;
    wait(log.wal.durable(end)).expect("durable");
    group.bench_function("published", |b| {
        let mut cx = Context::from_waker(Waker::noop());
        b.iter(|| {
            assert!(
                pin!(log.wal.durable(black_box(end)))
                    .poll(&mut cx)
                    .is_ready()
            )
        });
    });
    for writers in [1_u64, 16, 64] {
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
    targets = appending, recovering, recycling, committing
}
criterion_main!(benches);
