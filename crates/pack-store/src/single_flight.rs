//! Single flight: one GET for frames that lie near one another in a pack, and only one however many readers ask.
//!
//! Small writes make small frames, and those of one checkpoint and one block adjoin in a pack, as do the frames of a
//! large write. A block that was written in several checkpoints alternates between their packs, so its frames are
//! joined by their places in the packs, not by their order in the block; what was written again leaves gaps. Each
//! requested frame is in the table of frames being fetched, by itself or as a part of its run; a reader that asks for
//! it meanwhile waits for that run.

use std::collections::HashMap;
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
use futures_util::future::join_all;
use object_store::path::Path;

use crate::disk_tier::FrameKey;
use crate::fetched::{FetchError, Fetched, FetchedFrom};
use crate::runs::{Outcome, Run, Stored, ask};
use crate::store::{ATTEMPTS, PackStore};

/// The largest buffer into which HTTP clients read; longer bodies are assembled in memory of their own.
const MAX_CLIENT_BUFFER: usize = 512 << 10;

/// Block buffers copy frames that have fewer bytes: half of a piece.
const LEAST_KEPT: u32 = 32 << 10;

/// For how many frames of a run the tiers are asked at a time.
const LOOKS_AT_ONCE: usize = 4;

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
        // One waiter for each run, though frames that follow one another in the block may alternate between runs.
        let mut places: HashMap<*const Run, usize> = HashMap::new();
        for (index, named) in named.iter().enumerate() {
            let Some(run) = fetching.get(&named.key()) else {
                continue;
            };
            let Some(in_run) = run.index_of(named) else {
                continue;
            };
            let place = *places.entry(Arc::as_ptr(run)).or_insert(waiters.len());
            match waiters.get_mut(place) {
                Some(waiter) => waiter.wanted.push((index, in_run)),
                None => waiters.push(FetchWaiter {
                    packs: self,
                    run: Some(Arc::clone(run)),
                    wanted: vec![(index, in_run)],
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
        let cached = self.cached(&run.frames, &lease).await;
        let frames = run.frames.iter().zip(&cached);
        let missing = frames.filter(|(_, cached)| cached.is_none());
        let missing: Vec<Stored> = missing.map(|(frame, _)| *frame).collect();
        let mut got = match missing.is_empty() {
            true => Vec::new(),
            false => waiting(For::Bucket, self.ask_bucket(&missing, lease)).await?,
        }
        .into_iter();
        let outcomes = cached.into_iter().map(|cached| match cached {
            Some(cached) => Ok(cached),
            None => got
                .next()
                .unwrap_or_else(|| Err(FetchError::Unavailable("it was not asked for".into()))),
        });
        Ok(outcomes.collect())
    }

    /// Those of the frames that a tier has.
    async fn cached(
        &self,
        frames: &[Stored],
        lease: &impl Fn(u64) -> Option<Lease>,
    ) -> Vec<Option<Arc<Fetched>>> {
        if self.tiers.is_empty() {
            return vec![None; frames.len()];
        }
        let mut found = Vec::with_capacity(frames.len());
        // Not all looks as futures at once: a block that was written in small pieces has thousands of frames.
        for some in frames.chunks(LOOKS_AT_ONCE) {
            let looks = some.iter().map(|frame| {
                let lease = lease(self.memory_of_frame(&frame.reference));
                self.look_in_tiers(frame, lease)
            });
            found.extend(join_all(looks).await);
        }
        found
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
                    return Some(Fetched::new(frame, Some(&arrived), lease, None, from));
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

    /// Whether block buffers may keep at least half of a range of a pack with these frames without a copy.
    fn is_mostly_kept(&self, frames: &[Stored], range: &Range<u64>) -> bool {
        let frames = frames.iter().map(|frame| &frame.reference);
        let large = frames.filter(|frame| frame.raw_len >= LEAST_KEPT);
        // The others are opened in memory of their own.
        let as_stored =
            large.filter(|frame| self.memory_of_frame(frame) == u64::from(frame.stored_len));
        let kept: u64 = as_stored.map(|frame| u64::from(frame.stored_len)).sum();
        kept * 2 >= range.end - range.start
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

    /// Fetches frames of a pack, by their offsets, with one GET; fetches again if they arrive damaged.
    async fn ask_bucket(
        &self,
        frames: &[Stored],
        lease: impl Fn(u64) -> Option<Lease>,
    ) -> Result<Vec<Outcome>, FetchError> {
        let Some(Stored {
            reference: first, ..
        }) = frames.first()
        else {
            return Ok(Vec::new());
        };
        let location = self.location(first.pack);
        let ends = frames
            .iter()
            .map(|frame| frame.reference.stored_range().end);
        let range = u64::from(first.offset)..ends.fold(0, u64::max);
        let mut attempt = 1;
        loop {
            // Frames that arrived damaged are fetched without a window.
            let window = match attempt {
                1 => self.windows.of(first.pack, &range),
                _ => None,
            };
            let mut gaps = None;
            let (got, leases) = match &window {
                None => {
                    let _place = self.fetches.take().await;
                    // Only in its place: a fetch that waits for its turn takes no memory.
                    gaps = lease_gaps(frames, &range, &lease);
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
            // Block buffers must not keep the memory of a window for one of its files, nor that of many small frames
            // and gaps for a large frame beside them.
            let may_keep = window.is_none() && self.is_mostly_kept(frames, &range);
            let arrived = may_keep.then(|| Arrived::new(got.clone()));
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
                        let (arrived, gaps) = (arrived.as_ref(), gaps.as_ref());
                        Ok(Fetched::new(frame, arrived, lease, gaps, from))
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

/// Memory for the bytes of a range that belong to none of its frames.
fn lease_gaps(
    frames: &[Stored],
    range: &Range<u64>,
    lease: impl Fn(u64) -> Option<Lease>,
) -> Option<Arc<Lease>> {
    let frames = frames.iter().map(|frame| frame.reference.stored_len);
    let frame_bytes: u64 = frames.map(u64::from).sum();
    let gap_bytes = (range.end - range.start).saturating_sub(frame_bytes);
    let lease = (gap_bytes > 0).then(|| lease(gap_bytes));
    lease.flatten().map(Arc::new)
}

/// A part of the bytes that came, from `from` on; shorter if fewer came.
fn part(got: &Bytes, from: u32, len: u32) -> Bytes {
    let from = got.len().min(from as usize);
    let end = got.len().min(from + len as usize);
    got.slice(from..end)
}

impl FetchWaiter<'_> {
    /// The results for the requested frames, by their index. The first caller makes the GET; just before, `lease` is
    /// called with the bytes of each frame and with those of all gaps between them, and may return `None` if the caller
    /// has memory already, for the frames and for as long as it holds them.
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
mod tests;
