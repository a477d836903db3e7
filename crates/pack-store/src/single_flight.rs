//! Single flight: one GET for adjoining frames, and only one however many readers ask.
//!
//! Small writes make small frames, and those of one checkpoint and one block adjoin in a pack, as do the frames of a
//! large write. Each requested frame is in the table of frames being fetched, by itself or as a part of its run; a
//! reader that asks for it meanwhile waits for that run.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_cache::{Arrived, Lease};
use forebay_environment::backoff;
use forebay_meta::FrameAddress;
use forebay_pack::{FrameRef, open_frame};
use forebay_types::BlockKey;
use forebay_waits::{For, waiting};
use object_store::path::Path;

use crate::disk_tier::FrameKey;
use crate::fetched::{FetchError, Fetched, FetchedFrom};
use crate::runs::{Outcome, Run, Stored, ask};
use crate::store::{ATTEMPTS, PackStore};

/// The largest buffer into which HTTP clients read; longer bodies are assembled in memory of their own.
const MAX_CLIENT_BUFFER: usize = 512 << 10;

/// A reader that waits for frames of a run. Dropping it ends the wait.
pub struct FetchWaiter<'a> {
    packs: &'a PackStore,
    /// Taken only by its drop.
    run: Option<Arc<Run>>,
    /// Pairs of an index among the requested frames and an index in the run.
    wanted: Vec<(usize, usize)>,
}

/// The name of a frame in every tier.
pub(crate) fn tier_key(frame: &FrameRef) -> FrameKey {
    FrameKey {
        pack: frame.pack,
        offset: frame.offset,
    }
}

impl PackStore {
    /// Joins all runs that have some of these frames, which the map of `block` names, each frame once. Frames
    /// that other readers fetch already are not fetched again.
    pub fn join_fetches(
        &self,
        block: BlockKey,
        addresses: &[FrameAddress],
    ) -> Vec<FetchWaiter<'_>> {
        let named = addresses.iter().map(|address| Stored::new(block, address));
        let named: Vec<Stored> = named.collect();
        let mut fetching = self.fetching.lock();
        ask(&named, &mut fetching);
        let mut waiters: Vec<FetchWaiter<'_>> = Vec::new();
        for (index, named) in named.iter().enumerate() {
            let Entry::Occupied(entry) = fetching.entry(named.key()) else {
                continue;
            };
            let run = entry.get();
            let Some(place) = run.frames.iter().position(|frame| frame == named) else {
                continue;
            };
            let is_last = |waiter: &&mut FetchWaiter<'_>| {
                waiter.run.as_ref().is_some_and(|own| Arc::ptr_eq(own, run))
            };
            match waiters.last_mut().filter(is_last) {
                Some(waiter) => waiter.wanted.push((index, place)),
                None => waiters.push(FetchWaiter {
                    packs: self,
                    run: Some(Arc::clone(run)),
                    wanted: vec![(index, place)],
                }),
            }
        }
        waiters
    }

    /// Every frame of a run: from a tier, or else with one GET from the first to the last missing one.
    async fn get(
        &self,
        run: &Run,
        lease: impl Fn(u64) -> Option<Lease>,
    ) -> Result<Vec<Outcome>, FetchError> {
        let mut cached = vec![None; run.frames.len()];
        if !self.tiers.is_empty() {
            for (frame, cached) in run.frames.iter().zip(&mut cached) {
                let lease = lease(self.memory_of_frame(&frame.reference));
                *cached = self.look_in_tiers(frame, lease).await;
            }
        }
        let is_missing = |cached: &Option<Arc<Fetched>>| cached.is_none();
        let (first, last) = match (
            cached.iter().position(is_missing),
            cached.iter().rposition(is_missing),
        ) {
            (Some(first), Some(last)) => (first, last),
            _ => return Ok(cached.into_iter().flatten().map(Ok).collect()),
        };
        let got = self.ask_bucket(&run.frames[first..=last], lease);
        let got = waiting(For::Bucket, got);
        let mut got = got.await?.into_iter();
        let outcomes = cached.into_iter().enumerate().map(|(index, cached)| {
            let got = (first..=last).contains(&index).then(|| got.next());
            let got = got.flatten();
            match (cached, got) {
                (Some(cached), _) => Ok(cached),
                (None, Some(got)) => got,
                (None, None) => Err(FetchError::Unavailable("it was not asked for".into())),
            }
        });
        Ok(outcomes.collect())
    }

    /// A frame from the first tier that has it, verified. The tiers before that one get a copy.
    pub(crate) async fn look_in_tiers(
        &self,
        frame: &Stored,
        lease: Option<Lease>,
    ) -> Option<Arc<Fetched>> {
        let key = tier_key(&frame.reference);
        for (place, tier) in self.tiers.iter().enumerate() {
            let Some(stored) = waiting(For::DiskCache, tier.get(key)).await else {
                continue;
            };
            let arrived = Arrived::new(stored.clone());
            match open_frame(stored.clone(), &frame.reference, frame.block, &self.keys) {
                Ok(frame) => {
                    tier.was_right();
                    self.keep(key, &stored, place);
                    let from = FetchedFrom::DiskCache;
                    return Some(Fetched::new(frame, Some(&arrived), lease, from));
                }
                Err(error) => tier.was_damaged(key, &error),
            }
        }
        None
    }

    /// Puts a frame into the first `count` tiers.
    fn keep(&self, key: FrameKey, stored: &Bytes, count: usize) {
        for tier in self.tiers.iter().take(count) {
            tier.put(key, stored.clone());
        }
    }

    fn leases(
        &self,
        frames: &[Stored],
        lease: impl Fn(u64) -> Option<Lease>,
    ) -> Vec<Option<Lease>> {
        let frames = frames.iter();
        frames
            .map(|frame| lease(self.memory_of_frame(&frame.reference)))
            .collect()
    }

    /// Bytes of a pack, in memory that is not much larger than they are.
    async fn get_range(&self, location: &Path, range: Range<u64>) -> Result<Bytes, FetchError> {
        let got = self.part_of_object(location, range).await?;
        // A short body may be a part of a client's read buffer, and would keep the whole buffer.
        let is_part = got.len() < MAX_CLIENT_BUFFER && !got.is_unique();
        Ok(if is_part {
            Bytes::copy_from_slice(&got)
        } else {
            got
        })
    }

    /// Fetches adjoining frames, at least one, with one GET; fetches again if they arrive damaged.
    async fn ask_bucket(
        &self,
        frames: &[Stored],
        lease: impl Fn(u64) -> Option<Lease>,
    ) -> Result<Vec<Outcome>, FetchError> {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
            return Ok(Vec::new());
        };
        let (first, last) = (first.reference, last.reference);
        let location = self.location(first.pack);
        let range = first.stored_range().start..last.stored_range().end;
        let mut attempt = 1;
        loop {
            // Frames that arrived damaged are fetched without a window.
            let window = match attempt {
                1 => self.windows.of(first.pack, &range),
                _ => None,
            };
            let (got, leases) = match &window {
                None => {
                    let _place = self.fetches.take().await;
                    // Only in its place: a fetch that waits for its turn takes no memory.
                    let leases = self.leases(frames, &lease);
                    (self.get_range(&location, range.clone()).await?, leases)
                }
                Some(window) => {
                    let got = window.part(&range, |range| async {
                        let _place = self.fetches.take().await;
                        let _lease = lease(range.end - range.start);
                        self.get_range(&location, range).await
                    });
                    (got.await?, self.leases(frames, &lease))
                }
            };
            // The memory of a window must not be kept for one of its files.
            let arrived = window.is_none().then(|| Arrived::new(got.clone()));
            let mut again = false;
            let mut outcomes = Vec::with_capacity(frames.len());
            for (frame, lease) in frames.iter().zip(leases) {
                let Stored { reference, block } = frame;
                let stored = part(&got, reference.offset - first.offset, reference.stored_len);
                let opened = open_frame(stored.clone(), reference, *block, &self.keys);
                outcomes.push(match opened {
                    Ok(frame) => {
                        self.keep(tier_key(reference), &stored, self.tiers.len());
                        let from = FetchedFrom::Bucket;
                        Ok(Fetched::new(frame, arrived.as_ref(), lease, from))
                    }
                    Err(error) => {
                        if error.is_worth_another_fetch() && attempt < ATTEMPTS {
                            tracing::warn!("{location}: {error}; fetched again");
                            again = true;
                        }
                        Err(FetchError::Damaged(format!("{location}: {error}")))
                    }
                });
            }
            if let Some(window) = &window
                && outcomes.iter().any(Result::is_err)
            {
                self.windows.forget(window);
            }
            if !again {
                return Ok(outcomes);
            }
            drop(outcomes);
            tokio::time::sleep(backoff(attempt, &*self.random)).await;
            attempt += 1;
        }
    }
}

/// A part of the bytes that came, from `from` on; shorter if fewer came.
fn part(got: &Bytes, from: u32, len: u32) -> Bytes {
    let from = got.len().min(from as usize);
    let end = got.len().min(from + len as usize);
    got.slice(from..end)
}

impl FetchWaiter<'_> {
    /// The results for the requested frames, by their index. The first caller makes the GET; just before, `lease` is
    /// called with the bytes of each frame, and may return `None` if the caller has memory already, for the frames
    /// and for as long as it holds them.
    pub async fn fetch(&self, lease: impl Fn(u64) -> Option<Lease>) -> Vec<(usize, Outcome)> {
        let Some(run) = &self.run else {
            return Vec::new();
        };
        let outcomes = run.outcomes.get_or_try_init(|| self.packs.get(run, lease));
        let outcomes = match run.has_begun.swap(true, Ordering::Relaxed) {
            // It notes itself what it waits for.
            false => outcomes.await,
            true => waiting(For::Bucket, outcomes).await,
        };
        let wanted = self.wanted.iter().map(|(index, place)| {
            let outcome = match &outcomes {
                Ok(outcomes) => outcomes
                    .get(*place)
                    .cloned()
                    .unwrap_or_else(|| Err(FetchError::Unavailable("it was not asked for".into()))),
                Err(error) => Err(error.clone()),
            };
            (*index, outcome)
        });
        wanted.collect()
    }
}

impl Drop for FetchWaiter<'_> {
    fn drop(&mut self) {
        let mut fetching = self.packs.fetching.lock();
        // Dropped under the lock: of several that are dropped at once, the last one sees only the table's references.
        let Some(run) = self.run.take() else { return };
        // The table has one reference for each frame.
        if Arc::strong_count(&run) == run.frames.len() + 1 {
            for frame in &run.frames {
                fetching.remove(&frame.key());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_object::CountingStore;
    use forebay_pack::{Compression, PackKeys, PackWriter};
    use forebay_types::{BlockIndex, ByteRange, Inode, PackId, VolumeId};
    use object_store::PutPayload;
    use object_store::memory::InMemory;

    use super::*;
    use forebay_environment::SystemRandomness;
    use object_store::ObjectStoreExt;

    const BLOCK: BlockKey = BlockKey {
        inode: Inode(9),
        block: BlockIndex(0),
    };
    /// Too long for a window.
    const LEN: u64 = 136 << 10;
    const SMALL: u64 = 4096;

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
        // Two runs, because they lie in two packs; a gap ends a run, and so does an earlier offset.
        assert_eq!(scene.fetch(&[2, 3, 4, 5]).await, [2, 3, 4, 5]);
        assert_eq!(scene.gets(), 3);
        assert_eq!(scene.fetch(&[0, 2, 1]).await, [0, 2, 1]);
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
        let came =
            tokio::time::timeout(std::time::Duration::from_secs(60), scene.fetch(&[0, 1, 2]));
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
}
