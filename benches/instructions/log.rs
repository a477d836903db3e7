//! The log: `forebay-wal`, over storage in memory and without its threads, so that only appending is counted.

use std::hint::black_box;
use std::sync::Arc;

use forebay_types::{Epoch, Lsn, VolumeId};
use forebay_wal::{MemoryStorage, Options, RecordKind, Recovery, Storage, Wal};

use crate::operation::{Operation, Turn};

const VOLUME: VolumeId = VolumeId([1; 16]);

pub(crate) fn operations() -> Vec<Operation> {
    // All of them fit into the first segment, because a change of segments needs other threads.
    vec![
        Operation::new("wal/append 512 B", 4096, || append(512)),
        Operation::new("wal/append 4 KiB", 2048, || append(4 << 10)),
        Operation::new("wal/append 32 KiB", 512, || append(32 << 10)),
        Operation::new("wal/durable at once", 4096, durable_at_once),
    ]
}

fn log() -> (Wal, forebay_wal::Hand) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let recovery = Recovery::scan(storage, VOLUME, Lsn::ZERO).expect("an empty log");
    let options = Options::new(VOLUME, Epoch(1));
    recovery.into_wal_by_hand(options).expect("a log")
}

fn append(bytes: usize) -> Turn {
    let (wal, hand) = log();
    let payload = vec![0x5a; bytes];
    Box::new(move || {
        let payload: &[u8] = black_box(&payload);
        let appended = wal.append(RecordKind::Data, &[payload]);
        black_box(appended.expect("room in the segment"));
        // The hand must live as long as the log.
        black_box(&hand);
    })
}

/// A commit of data that are durable already.
fn durable_at_once() -> Turn {
    let (wal, hand) = log();
    let appended = wal.append(RecordKind::Data, &[&[1; 512]]);
    let end = appended.expect("room in the segment").end;
    // Once requested, the flush is done when the syncer runs.
    let mut asked = Box::pin(wal.durable(end));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    while hand.sync() {}
    drop(asked);
    assert!(wal.durable_lsn() >= end);
    Box::new(move || crate::operation::ready(wal.durable(black_box(end))).expect("durable"))
}
