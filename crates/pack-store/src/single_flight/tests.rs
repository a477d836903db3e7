//! One GET for many frames and many readers.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use forebay_cache::Cache;
use forebay_meta::record::Origin;
use forebay_object::CountingStore;
use forebay_pack::{Compression, PackKeys, PackWriter};
use forebay_types::{BlockIndex, ByteRange, Inode, PackId, VolumeId};
use object_store::PutPayload;
use object_store::memory::InMemory;

use super::*;
use crate::tier::Tier;
use forebay_environment::SystemRandomness;
use object_store::ObjectStoreExt;
use parking_lot::Mutex;

const BLOCK: BlockKey = BlockKey {
    inode: Inode(9),
    block: BlockIndex(0),
};
/// Too long for a window.
const LEN: u64 = 136 << 10;
const SMALL: u64 = 4096;
/// Two of them in a row are a gap that is too large; three frames are too long for a window.
const MIDDLE: u64 = 48 << 10;
/// Bytes of a frame of this length in its pack.
const MIDDLE_STORED: u64 = MIDDLE + 128;

struct Scene {
    frame_len: u64,
    packs: PackStore,
    requests: Arc<CountingStore>,
    bucket: Arc<InMemory>,
    addresses: Vec<FrameAddress>,
}

async fn scene() -> Scene {
    scene_of(LEN).await
}

/// Two packs of four frames of this many bytes each, all of one block.
async fn scene_of(frame_len: u64) -> Scene {
    let keys = PackKeys::new(VolumeId([1; 16]), &[2; 32]);
    let bucket = Arc::new(InMemory::new());
    let requests = Arc::new(CountingStore::new(bucket.clone()));
    let random = Arc::new(SystemRandomness);
    let store = requests.clone();
    let packs = PackStore::new(store, Path::default(), keys.clone(), 4, 4, random);
    let mut addresses = Vec::new();
    for number in [1, 2_u64] {
        let pack = PackId(number);
        let mut writer = PackWriter::new(pack, &keys, Compression::Off);
        for frame in 0..4 {
            let at = (number - 1) * 4 + frame;
            let bytes = vec![at as u8; frame_len as usize];
            writer.push(
                BLOCK,
                ByteRange::at(at * frame_len, frame_len),
                std::iter::once(&bytes[..]),
            );
        }
        let finished = writer.finish();
        addresses.extend(finished.frames.iter().map(|entry| FrameAddress {
            pack,
            offset: entry.frame.offset,
            stored_len: entry.frame.stored_len,
            raw_start: entry.frame.start,
            raw_len: entry.frame.raw_len,
            crc32: entry.frame.crc32,
            origin: None,
        }));
        packs.put(pack, finished.bytes).await.unwrap();
    }
    Scene {
        frame_len,
        packs,
        requests,
        bucket,
        addresses,
    }
}

impl Scene {
    /// Fetches some of the frames; returns the indexes of those that came, each checked.
    async fn fetch(&self, wanted: &[usize]) -> Vec<usize> {
        let addresses: Vec<_> = wanted.iter().map(|at| self.addresses[*at]).collect();
        let mut came = Vec::new();
        for waiter in self.packs.join_fetches(BLOCK, &addresses) {
            for (index, outcome) in waiter.fetch(|_| None).await {
                if let Ok(fetched) = outcome {
                    let at = wanted[index];
                    assert_eq!(fetched.data, vec![at as u8; self.frame_len as usize]);
                    came.push(at);
                }
            }
        }
        came
    }

    fn gets(&self) -> u64 {
        self.requests.counts().gets
    }

    async fn damage(&self, at: usize) {
        let location = self.packs.location(self.addresses[at].pack);
        let pack = self.bucket.get(&location).await.unwrap();
        let mut bytes = pack.bytes().await.unwrap().to_vec();
        bytes[self.addresses[at].offset as usize + 200] ^= 1;
        let put = self.bucket.put(&location, PutPayload::from(bytes));
        put.await.unwrap();
    }
}

#[tokio::test]
async fn frames_beside_one_another_come_with_one_get() {
    let scene = scene().await;
    assert_eq!(scene.fetch(&[0, 1, 2, 3]).await, [0, 1, 2, 3]);
    assert_eq!(scene.gets(), 1);
    assert_eq!(scene.requests.counts().bytes_got, {
        let all = &scene.addresses[..4];
        all.iter()
            .map(|frame| u64::from(frame.stored_len))
            .sum::<u64>()
    });
    // Two runs, because they lie in two packs.
    assert_eq!(scene.fetch(&[2, 3, 4, 5]).await, [2, 3, 4, 5]);
    assert_eq!(scene.gets(), 3);
    // The order in which they are asked for does not matter; a large gap does.
    assert_eq!(scene.fetch(&[0, 2, 1]).await, [0, 2, 1]);
    assert_eq!(scene.gets(), 4);
    assert_eq!(scene.fetch(&[0, 2]).await, [0, 2]);
    assert_eq!(scene.gets(), 6);
    assert!(scene.packs.fetching.lock().is_empty());
}

#[tokio::test]
async fn a_fetch_of_a_part_of_a_run_in_flight_waits_for_it() {
    let scene = scene().await;
    let all = scene.packs.join_fetches(BLOCK, &scene.addresses[..4]);
    let part = scene.packs.join_fetches(BLOCK, &scene.addresses[2..6]);
    assert_eq!((all.len(), part.len()), (1, 2));
    // The first caller makes the GET of the whole run.
    let mut came = Vec::new();
    for waiter in part.iter().chain(&all) {
        let outcomes = waiter.fetch(|_| None).await;
        came.extend(outcomes.iter().map(|(at, outcome)| (*at, outcome.is_ok())));
    }
    let places = [0, 1, 2, 3, 0, 1, 2, 3];
    assert_eq!(came, places.map(|at| (at, true)));
    assert_eq!(scene.gets(), 2, "the run, and what is not in it");
    drop(part);
    assert_eq!(scene.packs.fetching.lock().len(), 4);
    drop(all);
    assert!(scene.packs.fetching.lock().is_empty());
}

#[tokio::test]
async fn a_fetch_that_gives_up_leaves_the_run_to_those_that_wait() {
    let scene = scene().await;
    let first = scene.packs.join_fetches(BLOCK, &scene.addresses[..4]);
    let second = scene.packs.join_fetches(BLOCK, &scene.addresses[1..2]);
    drop(first);
    assert_eq!(scene.packs.fetching.lock().len(), 4);
    let outcomes = second[0].fetch(|_| None).await;
    assert!(matches!(&outcomes[..], [(0, Ok(_))]));
    drop(second);
    assert!(scene.packs.fetching.lock().is_empty());
    assert_eq!(scene.gets(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_frame_costs_only_itself() {
    let scene = scene().await;
    scene.damage(1).await;
    assert_eq!(scene.fetch(&[0, 1, 2]).await, [0, 2]);
    assert_eq!(scene.gets(), u64::from(ATTEMPTS));
}

#[tokio::test]
async fn a_pack_that_ends_early_gives_what_it_has() {
    let scene = scene().await;
    let location = scene.packs.location(PackId(1));
    let whole = scene.bucket.get(&location).await.unwrap().bytes().await;
    let cut = scene.addresses[2].offset as usize + 7;
    let put = scene
        .bucket
        .put(&location, whole.unwrap().slice(..cut).into());
    put.await.unwrap();
    let came = tokio::time::timeout(std::time::Duration::from_secs(60), scene.fetch(&[0, 1, 2]));
    assert_eq!(came.await, Ok(vec![0, 1]));
}

#[tokio::test]
async fn small_frames_near_one_another_come_in_a_window() {
    let scene = scene_of(SMALL).await;
    assert_eq!(scene.fetch(&[0]).await, [0]);
    assert_eq!(scene.requests.counts().bytes_got, SMALL + 128);
    assert_eq!(scene.fetch(&[2]).await, [2]);
    assert_eq!(scene.gets(), 2);
    assert_eq!(scene.fetch(&[1]).await, [1]);
    assert_eq!(scene.fetch(&[3]).await, [3]);
    assert_eq!(scene.gets(), 2, "they came with the one before");
    assert_eq!(scene.fetch(&[4]).await, [4], "of another pack");
    assert_eq!(scene.gets(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_damaged_in_a_window_is_asked_for_by_itself() {
    let scene = scene_of(SMALL).await;
    assert_eq!(scene.fetch(&[0]).await, [0]);
    scene.damage(1).await;
    assert!(scene.fetch(&[1]).await.is_empty());
    assert_eq!(scene.gets(), 1 + u64::from(ATTEMPTS));
    assert_eq!(scene.fetch(&[2]).await, [2]);
    assert_eq!(scene.fetch(&[3]).await, [3]);
    assert_eq!(scene.gets(), 2 + u64::from(ATTEMPTS), "in a new window");
}

#[tokio::test]
async fn frames_that_alternate_between_packs_come_with_one_get_of_each() {
    let scene = scene().await;
    let order = [5, 0, 4, 2, 6, 1];
    let addresses = order.map(|at| scene.addresses[at]);
    let waiters = scene.packs.join_fetches(BLOCK, &addresses);
    // Each run once, in the order in which they were asked for first.
    let wanted = waiters.iter().map(|waiter| waiter.wanted.clone());
    let second = vec![(0, 1), (2, 0), (4, 2)];
    let first = vec![(1, 0), (3, 2), (5, 1)];
    assert_eq!(wanted.collect::<Vec<_>>(), [second, first]);
    drop(waiters);
    assert_eq!(scene.fetch(&order).await, [5, 4, 6, 0, 2, 1]);
    assert_eq!(scene.gets(), 2);
    assert!(scene.packs.fetching.lock().is_empty());
}

#[tokio::test]
async fn a_small_gap_comes_with_the_frames_and_its_memory_is_leased_while_they_hold_it() {
    let scene = scene_of(MIDDLE).await;
    let cache = Cache::new(1 << 20);
    let asked = Mutex::new(Vec::new());
    let wanted = [0, 2, 3].map(|at| scene.addresses[at]);
    let waiters = scene.packs.join_fetches(BLOCK, &wanted);
    assert_eq!(waiters.len(), 1);
    let lease = |bytes| {
        assert_eq!(scene.gets(), 0, "before the request");
        asked.lock().push(bytes);
        cache.try_lease(bytes)
    };
    let mut outcomes = waiters[0].fetch(lease).await;
    let got = scene.requests.counts();
    assert_eq!((got.gets, got.bytes_got), (1, 4 * MIDDLE_STORED));
    assert_eq!(asked.lock().iter().sum::<u64>(), 4 * MIDDLE_STORED);
    drop(waiters);
    // What was leased for headers was given back.
    assert_eq!(cache.leased_bytes(), 3 * MIDDLE + MIDDLE_STORED);
    outcomes.truncate(1);
    let (_, last) = outcomes.pop().unwrap();
    let last = last.unwrap();
    assert_eq!(last.data, vec![0; MIDDLE as usize]);
    assert_eq!(
        cache.leased_bytes(),
        MIDDLE + MIDDLE_STORED,
        "it keeps the gap in memory"
    );
    drop(last);
    assert_eq!(cache.leased_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_frame_beside_a_gap_fails_alone_and_keeps_no_memory() {
    let scene = scene_of(MIDDLE).await;
    scene.damage(2).await;
    let cache = Cache::new(1 << 20);
    let wanted = [0, 2, 3].map(|at| scene.addresses[at]);
    let waiters = scene.packs.join_fetches(BLOCK, &wanted);
    let outcomes = waiters[0].fetch(|bytes| cache.try_lease(bytes)).await;
    let came = outcomes.iter().map(|(at, outcome)| (*at, outcome.is_ok()));
    assert_eq!(came.collect::<Vec<_>>(), [(0, true), (1, false), (2, true)]);
    assert_eq!(scene.gets(), u64::from(ATTEMPTS));
    drop(waiters);
    assert_eq!(cache.leased_bytes(), 2 * MIDDLE + MIDDLE_STORED);
    drop(outcomes);
    assert_eq!(cache.leased_bytes(), 0);
    // Damage in a gap concerns nobody.
    let gets = scene.gets();
    scene.damage(1).await;
    assert_eq!(scene.fetch(&[0, 3, 4]).await.len(), 3);
    assert_eq!(scene.gets() - gets, 3);
    scene.damage(2).await;
    assert_eq!(scene.fetch(&[0, 2, 3]).await, [0, 2, 3]);
    assert_eq!(scene.gets() - gets, 4);
}

#[tokio::test]
async fn a_frame_that_is_under_way_is_not_fetched_again_with_those_around_it() {
    let scene = scene_of(MIDDLE).await;
    let first = scene.packs.join_fetches(BLOCK, &scene.addresses[1..2]);
    let all = scene.packs.join_fetches(BLOCK, &scene.addresses[..4]);
    let wanted = all.iter().map(|waiter| waiter.wanted.clone());
    let around = vec![(0, 0), (2, 1), (3, 2)];
    assert_eq!(wanted.collect::<Vec<_>>(), [around, vec![(1, 0)]]);
    let mut came = Vec::new();
    for waiter in all.iter().chain(&first) {
        let outcomes = waiter.fetch(|_| None).await;
        came.extend(outcomes.iter().map(|(at, outcome)| (*at, outcome.is_ok())));
    }
    assert_eq!(came, [0, 2, 3, 1, 0].map(|at| (at, true)));
    assert_eq!(scene.gets(), 2);
    drop((first, all));
    assert!(scene.packs.fetching.lock().is_empty());
}

#[tokio::test]
async fn a_frame_at_two_places_of_a_block_comes_once_for_both() {
    let scene = scene_of(MIDDLE).await;
    let shared = scene.addresses[1];
    let again = FrameAddress {
        raw_start: 9 * MIDDLE as u32,
        origin: Some(Origin {
            block: BLOCK,
            start: shared.raw_start,
        }),
        ..shared
    };
    let wanted = [scene.addresses[3], again, scene.addresses[2], shared];
    let waiters = scene.packs.join_fetches(BLOCK, &wanted);
    assert_eq!(waiters.len(), 1);
    let outcomes = waiters[0].fetch(|_| None).await;
    let bytes = outcomes.iter().map(|(at, outcome)| {
        let address = &wanted[*at];
        let range = ByteRange::at(u64::from(address.raw_start), MIDDLE);
        let fetched = outcome.as_ref().unwrap();
        let part = fetched.part(address, range).unwrap();
        (*at, part[0], part.len() as u64)
    });
    let expected = [3, 1, 2, 1].into_iter().enumerate();
    let expected: Vec<_> = expected.map(|(at, byte)| (at, byte, MIDDLE)).collect();
    assert_eq!(bytes.collect::<Vec<_>>(), expected);
    assert_eq!(scene.requests.counts().bytes_got, 3 * MIDDLE_STORED);
    assert_eq!(scene.gets(), 1);
    drop(waiters);
    assert!(scene.packs.fetching.lock().is_empty());
}

/// A tier in memory.
#[derive(Default)]
struct Shelf {
    frames: Mutex<HashMap<FrameKey, Bytes>>,
    puts: AtomicUsize,
}

#[async_trait]
impl Tier for Shelf {
    async fn get(&self, frame: FrameKey) -> Option<Bytes> {
        self.frames.lock().get(&frame).cloned()
    }

    fn was_right(&self) {}

    fn was_damaged(&self, frame: FrameKey, _: &(dyn Display + Sync)) {
        self.frames.lock().remove(&frame);
    }

    fn put(&self, frame: FrameKey, stored: Bytes) {
        self.frames.lock().insert(frame, stored);
        self.puts.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn what_a_tier_has_of_a_run_is_not_opened_again_from_the_bucket() {
    let mut scene = scene_of(MIDDLE).await;
    let shelf = Arc::new(Shelf::default());
    scene.packs.tiers.push(shelf.clone());
    assert_eq!(scene.fetch(&[0, 2]).await, [0, 2]);
    assert_eq!(shelf.puts.load(Ordering::Relaxed), 2);
    let before = scene.requests.counts();
    let waiters = scene.packs.join_fetches(BLOCK, &scene.addresses[..4]);
    let outcomes = waiters[0].fetch(|_| None).await;
    let from = outcomes
        .iter()
        .map(|(at, outcome)| (*at, outcome.as_ref().unwrap().from()));
    let (shelved, fetched) = (FetchedFrom::DiskCache, FetchedFrom::Bucket);
    assert_eq!(
        from.collect::<Vec<_>>(),
        [(0, shelved), (1, fetched), (2, shelved), (3, fetched)]
    );
    // One GET from the first to the last one that is missing.
    let after = scene.requests.counts();
    assert_eq!(after.gets - before.gets, 1);
    assert_eq!(after.bytes_got - before.bytes_got, 3 * MIDDLE_STORED);
    assert_eq!(shelf.puts.load(Ordering::Relaxed), 4);
    drop(waiters);
    // All are there now; one is damaged, and comes from the bucket again.
    let key = tier_key(&Stored::new(BLOCK, &scene.addresses[1]).reference);
    shelf.frames.lock().insert(key, Bytes::from_static(b"bad"));
    assert_eq!(scene.fetch(&[0, 1, 2, 3]).await, [0, 1, 2, 3]);
    assert_eq!(scene.gets() - after.gets, 1);
    assert_eq!(shelf.puts.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn block_buffers_keep_the_memory_of_large_frames_and_copy_small_ones() {
    let range = |at: u64, len| ByteRange::at(at * len, len);
    let scene = scene_of(MIDDLE).await;
    let wanted = [0, 2].map(|at| scene.addresses[at]);
    let waiters = scene.packs.join_fetches(BLOCK, &wanted);
    let outcomes = waiters[0].fetch(|_| None).await;
    let last = outcomes[1].1.as_ref().unwrap();
    let kept = last.part_to_keep(&wanted[1], range(2, MIDDLE)).unwrap();
    assert_eq!(kept.memory_len(), 3 * MIDDLE_STORED, "with the gap");
    drop(waiters);

    let scene = scene_of(SMALL).await;
    let waiters = scene.packs.join_fetches(BLOCK, &scene.addresses[..4]);
    let outcomes = waiters[0].fetch(|_| None).await;
    for (at, outcome) in &outcomes {
        let (address, frame) = (&scene.addresses[*at], outcome.as_ref().unwrap());
        assert!(
            frame
                .part_to_keep(address, range(*at as u64, SMALL))
                .is_none()
        );
        assert_eq!(frame.needs(), SMALL, "not the memory of all of them");
    }
}
