//! Metadata that grow beyond the memory limit.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::sync::Arc;
use std::time::Duration;

use forebay_meta::{Batch, KeyRange, MetaStore, Sealing, SlateSettings, SlateStore};
use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;

/// The cache, unflushed batches, merging (see the documentation of `slate`), and memory that the allocator keeps.
const BOUND_BYTES: u64 = CACHE_BYTES + (64 << 20) + (32 << 20) + (64 << 20);
const CACHE_BYTES: u64 = 8 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Commits and reads for a while, and asserts the limit of memory.
pub(crate) async fn memory_stays_bounded(sealing: Option<Sealing>) {
    let bucket = Arc::new(InMemory::new());
    let settings = SlateSettings {
        cache_bytes: CACHE_BYTES,
        timeout: Duration::from_secs(5),
        retention: Duration::from_secs(5),
    };
    let store: Arc<dyn ObjectStore> = bucket.clone();
    let store = SlateStore::open_with(store, "meta".into(), settings, sealing, |store| store)
        .await
        .unwrap();
    let before = resident_bytes();
    let mut most = 0;
    let mut bucket_bytes = 0;
    for round in 0..150u64 {
        let mut batch = Batch::new();
        for n in 0..2000u64 {
            let key = (n * 150 + round).to_be_bytes().to_vec();
            batch.put_encoded(key.into(), vec![round as u8; 300].into());
        }
        store.commit(&batch).await.unwrap();
        let from = KeyRange {
            start: (round * 1999).to_be_bytes().to_vec().into(),
            end: Default::default(),
        };
        store.scan(&from, 500).await.unwrap();
        if round % 10 == 9 {
            let sizes = bucket.list(None).map_ok(|meta| meta.size);
            bucket_bytes = sizes
                .try_fold(0, |sum, size| async move { Ok(sum + size) })
                .await
                .unwrap();
            // The bucket of this test lies in the same memory and does not count as the store's.
            most = most.max(resident_bytes().saturating_sub(before + bucket_bytes));
        }
    }
    assert!(
        bucket_bytes > CACHE_BYTES * 8,
        "only {bucket_bytes} bytes were written"
    );
    assert!(
        most < BOUND_BYTES,
        "{most} bytes of memory, {bucket_bytes} in the bucket"
    );
    eprintln!(
        "{} MiB of memory at most, {} MiB in the bucket",
        most >> 20,
        bucket_bytes >> 20
    );
}
