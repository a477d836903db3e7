//! Looked-up names and listed directories, kept in memory in front of a store.
//!
//! Clients look up the same names again and again. A lookup in SlateDB takes ten microseconds of processor time when
//! all that it reads is in memory; after a merge of tables it takes requests to the bucket, and while the bucket is
//! unreachable it gets no answer. This store keeps the answers for names that exist and for
//! [listings](super::listings).
//!
//! # Why no old answer is returned
//! ```text
//!   reader                    commit
//!   has ended = begun? ---.   begun + 1
//!   asks the store        |   the store takes the batch
//!   is begun the same? ---'   applies the batch to the kept answers
//!   keeps the answer          ended + 1
//! ```
//! An answer is kept only if no commit was under way when the store was asked and none has begun by the time it is
//! kept: then it is the store's latest state. The changes of a commit are applied here before the commit returns; its
//! names are dropped if the commit failed, was cancelled, or overlapped with another one, since their order is not
//! known. A cancelled commit may still take effect later; its caller makes it again before any other
//! ([`MetaStore::commit`]), and until that returns, [the overlay](crate::catalog) has its changes, and is read first.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::to_usize;
use parking_lot::Mutex;

use super::listings::Listings;
use crate::batch::{Batch, Entry};
use crate::error::StoreError;
use crate::key::{KeyRange, tag};
use crate::store::{CacheStatus, MetaStore, Ready};

/// Limit of memory for names, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Limit of names that one commit may add to the looked-up ones: more come from a copy of many files, and would
/// displace names that clients use every day.
const MADE: usize = 1024;
/// Number of shards, each with its own lock.
const SHARDS: usize = 16;
/// Memory of a name beside its bytes and its record: its slot in the table, which is up to half empty, and two
/// allocations.
const OVERHEAD: usize = 160;

/// A store whose names and listings are kept in memory after a look-up or a scan.
pub struct NamesInMemory {
    store: Arc<dyn MetaStore>,
    shards: [Mutex<Shard>; SHARDS],
    listings: Mutex<Listings>,
    hasher: RandomState,
    /// Number of commits so far; one more after the store is closed.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Names in two generations: names that were not looked up while a whole generation filled are
/// dropped with the older one.
#[derive(Default)]
struct Shard {
    young: HashMap<Box<[u8]>, Bytes>,
    old: HashMap<Box<[u8]>, Bytes>,
    /// Of the young generation.
    bytes: usize,
}

impl Shard {
    fn get(&mut self, key: &[u8]) -> Option<Bytes> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.keep(key, value.clone());
        Some(value)
    }

    fn keep(&mut self, key: Box<[u8]>, value: Bytes) {
        let bytes = key.len() + value.len() + OVERHEAD;
        if self.bytes + bytes > MAX_BYTES / SHARDS / 2 {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.young.insert(key, value);
    }

    /// Removes a name; returns whether it was kept.
    fn forget(&mut self, key: &[u8]) -> bool {
        let young = self.young.remove_entry(key);
        let was_there = young.is_some() | self.old.remove(key).is_some();
        if let Some((key, value)) = young {
            self.bytes -= (key.len() + value.len() + OVERHEAD).min(self.bytes);
        }
        was_there
    }

    /// Applies a commit's change of a name. `made` more names may be added. Returns whether this change added one.
    fn change(&mut self, key: &[u8], entry: &Entry, made: usize) -> bool {
        let was_there = self.forget(key);
        let Entry::Value(value) = entry else {
            return false;
        };
        let is_made = !was_there && made > 0;
        if was_there || is_made {
            self.keep(key.into(), Bytes::copy_from_slice(value));
        }
        is_made
    }
}

/// A commit that is under way.
struct Commit<'a> {
    names: &'a NamesInMemory,
    batch: &'a Batch,
    /// Its number; `None` if another commit was under way.
    alone: Option<u64>,
    is_done: bool,
}

impl Commit<'_> {
    fn ended<T>(mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.is_done = result.is_ok();
        result
    }

    /// Whether the store has the state of the batch, and nothing newer. Call it while holding the lock on the answers
    /// that are about to change: a commit that begins later changes them later.
    fn is_latest(&self) -> bool {
        self.is_done && self.alone == Some(self.names.begun.load(Ordering::SeqCst))
    }
}

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        let mut made = MADE;
        for (key, entry) in self.batch.changes() {
            if is_name(key) {
                let mut shard = self.names.shard(key).lock();
                if self.is_latest() {
                    made -= usize::from(shard.change(key, entry, made));
                } else {
                    shard.forget(key);
                }
            } else if key.first() == Some(&tag::COOKIE) {
                let mut listings = self.names.listings.lock();
                if self.is_latest() {
                    listings.change(key, entry);
                } else {
                    listings.forget(key);
                }
            }
        }
        self.names.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn is_name(key: &[u8]) -> bool {
    key.first() == Some(&tag::NAME)
}

impl NamesInMemory {
    /// Wraps `store`. No other writer may change names in it.
    pub fn new(store: Arc<dyn MetaStore>) -> NamesInMemory {
        NamesInMemory {
            store,
            shards: Default::default(),
            listings: Mutex::default(),
            hasher: RandomState::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[to_usize(self.hasher.hash_one(key)) % SHARDS]
    }

    fn begin<'a>(&'a self, batch: &'a Batch) -> Commit<'a> {
        let ended = self.ended.load(Ordering::SeqCst);
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        Commit {
            names: self,
            batch,
            alone: (before == ended).then_some(before + 1),
            is_done: false,
        }
    }
}

#[async_trait]
impl MetaStore for NamesInMemory {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if !is_name(key) {
            return self.store.get(key).await;
        }
        let shard = self.shard(key);
        let known = shard.lock().get(key);
        if known.is_some() {
            return Ok(known);
        }
        let begun = self.begun.load(Ordering::SeqCst);
        let is_quiet = self.ended.load(Ordering::SeqCst) == begun;
        let value = self.store.get(key).await?;
        if let Some(value) = value.as_ref().filter(|_| is_quiet) {
            let mut shard = shard.lock();
            if self.begun.load(Ordering::SeqCst) == begun {
                // Copied: it may be part of a block of a table.
                shard.keep(key.into(), Bytes::copy_from_slice(value));
            }
        }
        Ok(value)
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if limit == 0 || range.is_empty() || !Listings::is_listing(range) {
            return self.store.scan(range, limit).await;
        }
        let known = self.listings.lock().scan(range, limit);
        if let Some(known) = known {
            return Ok(known);
        }
        let begun = self.begun.load(Ordering::SeqCst);
        let is_quiet = self.ended.load(Ordering::SeqCst) == begun;
        let found = self.store.scan(range, limit).await?;
        if is_quiet {
            let mut listings = self.listings.lock();
            if self.begun.load(Ordering::SeqCst) == begun {
                listings.keep(range, limit, &found);
            }
        }
        Ok(found)
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let commit = self.begin(batch);
        commit.ended(self.store.commit(batch).await)
    }

    async fn commit_when(&self, batch: &Batch, ready: &Ready) -> Result<(), StoreError> {
        let commit = self.begin(batch);
        commit.ended(self.store.commit_when(batch, ready).await)
    }

    fn is_merging(&self) -> bool {
        self.store.is_merging()
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.store.prove().await
    }

    async fn keep(&self, name: &str) -> Result<(), StoreError> {
        self.store.keep(name).await
    }

    async fn release(&self, name: &str) -> Result<(), StoreError> {
        self.store.release(name).await
    }

    async fn kept(&self) -> Result<BTreeSet<String>, StoreError> {
        self.store.kept().await
    }

    async fn open_kept(&self, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        self.store.open_kept(name).await
    }

    fn cache(&self) -> Option<CacheStatus> {
        self.store.cache()
    }

    async fn close(&self) -> Result<(), StoreError> {
        // Nothing is kept from here on.
        self.begun.fetch_add(1, Ordering::SeqCst);
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
        *self.listings.lock() = Listings::default();
        self.store.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use forebay_types::Inode;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::key::Key;
    use crate::store::conformance::{Bucket, conformance_tests};
    use crate::store::{MemoryBucket, MemoryStore};

    struct InFront(MemoryBucket);

    #[async_trait]
    impl Bucket for InFront {
        async fn open(&self) -> Arc<dyn MetaStore> {
            let store = Arc::new(MemoryStore::open(&self.0));
            Arc::new(NamesInMemory::new(store))
        }
    }

    conformance_tests!(InFront(MemoryBucket::default()));

    /// Counts requests, delays answers, and fails when set to.
    struct Slow {
        store: MemoryStore,
        gets: AtomicU64,
        answers: Semaphore,
        commits: Semaphore,
        fails: AtomicBool,
    }

    #[async_trait]
    impl MetaStore for Slow {
        async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
            self.gets.fetch_add(1, Ordering::SeqCst);
            let value = self.store.get(key).await;
            // The value from when it was asked, however long the answer takes.
            drop(self.answers.acquire().await.unwrap());
            value
        }

        async fn scan(
            &self,
            range: &KeyRange,
            limit: usize,
        ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
            self.store.scan(range, limit).await
        }

        async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
            self.store.commit(batch).await?;
            drop(self.commits.acquire().await.unwrap());
            match self.fails.load(Ordering::SeqCst) {
                true => Err(StoreError::Transient("its answer was lost".into())),
                false => Ok(()),
            }
        }

        async fn prove(&self) -> Result<(), StoreError> {
            self.store.prove().await
        }

        async fn close(&self) -> Result<(), StoreError> {
            self.store.close().await
        }
    }

    fn scene() -> (Arc<Slow>, Arc<NamesInMemory>) {
        let slow = Arc::new(Slow {
            store: MemoryStore::new(),
            gets: AtomicU64::new(0),
            answers: Semaphore::new(1),
            commits: Semaphore::new(1),
            fails: AtomicBool::new(false),
        });
        (slow.clone(), Arc::new(NamesInMemory::new(slow)))
    }

    fn name(number: u64) -> Bytes {
        Key::Name(Inode(7), format!("name {number}").into()).encode()
    }

    fn put(number: u64, value: &'static str) -> Batch {
        let mut batch = Batch::new();
        batch.put_encoded(name(number), Bytes::from_static(value.as_bytes()));
        batch
    }

    async fn get(names: &NamesInMemory, number: u64) -> Option<String> {
        let value = names.get(&name(number)).await.unwrap();
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_name_is_asked_for_once_and_follows_what_is_committed() {
        let (slow, names) = scene();
        slow.store.commit(&put(1, "one")).await.unwrap();
        for _ in 0..3 {
            assert_eq!(get(&names, 1).await.as_deref(), Some("one"));
        }
        assert_eq!(slow.gets.load(Ordering::SeqCst), 1);
        names.commit(&put(2, "other")).await.unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("one"));
        assert_eq!(slow.gets.load(Ordering::SeqCst), 1, "it has not changed");
        names.commit(&put(1, "two")).await.unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("two"));
        assert_eq!(get(&names, 2).await.as_deref(), Some("other"), "made here");
        assert_eq!(slow.gets.load(Ordering::SeqCst), 1, "as was committed");
        let mut batch = Batch::new();
        batch.delete_encoded(name(1));
        names.commit(&batch).await.unwrap();
        assert_eq!(get(&names, 1).await, None);
        names
            .commit_when(&put(1, "three"), &Ready::now())
            .await
            .unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("three"));
    }

    #[tokio::test]
    async fn names_that_are_not_there_are_asked_for_again() {
        let (slow, names) = scene();
        for _ in 0..3 {
            assert_eq!(get(&names, 1).await, None);
        }
        assert_eq!(slow.gets.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn an_answer_that_a_commit_has_overtaken_is_not_kept() {
        let (slow, names) = scene();
        slow.store.commit(&put(1, "old")).await.unwrap();
        let held = slow.answers.acquire().await.unwrap();
        let reader = tokio::spawn({
            let names = names.clone();
            async move { get(&names, 1).await }
        });
        while slow.gets.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        names.commit(&put(1, "new")).await.unwrap();
        drop(held);
        assert_eq!(
            reader.await.unwrap().as_deref(),
            Some("old"),
            "it came before"
        );
        assert_eq!(get(&names, 1).await.as_deref(), Some("new"));
    }

    #[tokio::test]
    async fn nothing_is_kept_while_a_commit_is_under_way() {
        let (slow, names) = scene();
        names.commit(&put(1, "old")).await.unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("old"));
        let held = slow.commits.acquire().await.unwrap();
        let commit = tokio::spawn({
            let names = names.clone();
            async move { names.commit(&put(1, "new")).await }
        });
        while names.begun.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        for number in [1, 2] {
            get(&names, number).await;
        }
        drop(held);
        commit.await.unwrap().unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("new"));
    }

    #[tokio::test]
    async fn what_a_commit_that_failed_or_was_cancelled_may_have_changed_is_forgotten() {
        let (slow, names) = scene();
        names.commit(&put(1, "old")).await.unwrap();
        assert_eq!(get(&names, 1).await.as_deref(), Some("old"));
        slow.fails.store(true, Ordering::SeqCst);
        assert!(names.commit(&put(1, "new")).await.is_err());
        assert_eq!(get(&names, 1).await.as_deref(), Some("new"));

        slow.fails.store(false, Ordering::SeqCst);
        let held = slow.commits.acquire().await.unwrap();
        let batch = put(1, "newer");
        let cancelled = tokio::time::timeout(Duration::from_millis(20), names.commit(&batch));
        assert!(cancelled.await.is_err());
        drop(held);
        assert_eq!(get(&names, 1).await.as_deref(), Some("newer"));
        // And names are kept again, also those of the next commit.
        names.commit(&put(2, "more")).await.unwrap();
        let gets = slow.gets.load(Ordering::SeqCst);
        get(&names, 1).await;
        assert_eq!(slow.gets.load(Ordering::SeqCst), gets);
    }

    #[tokio::test]
    async fn a_closed_store_knows_no_names() {
        let (_, names) = scene();
        names.commit(&put(1, "one")).await.unwrap();
        get(&names, 1).await;
        names.close().await.unwrap();
        assert!(names.get(&name(1)).await.is_err());
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_asked_for_stays() {
        let mut shard = Shard::default();
        let value = Bytes::from_static(&[0; 18]);
        let key = |number: usize| format!("n directory and name {number}").into_bytes();
        let most = MAX_BYTES / SHARDS / 2 / (OVERHEAD + 18 + 20) + 1;
        for number in 0..100_000 {
            shard.keep(key(number).into(), value.clone());
            assert!(shard.young.len() <= most && shard.old.len() <= most);
            assert_eq!(shard.get(&key(0)), Some(value.clone()), "{number}");
        }
        assert_eq!(shard.get(&key(1)), None);
        for number in 0..100_000 {
            shard.forget(&key(number));
        }
        assert_eq!((shard.young.len(), shard.old.len(), shard.bytes), (0, 0, 0));
    }
}
