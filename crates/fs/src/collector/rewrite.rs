//! Rewriting packs that are mostly dead: their live bytes are copied into a new pack.
//!
//! Copying changes nothing: nothing refers to the new pack until the publisher has redirected the maps. A crash in
//! between leaves it as an orphan; afterwards the old packs have no live bytes, and are deleted like all others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::Lease;
use forebay_environment::backoff;
use forebay_meta::record::{Extent, FrameAddress, Origin, PackRecord, Referrer};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_pack::{Frame, FrameRef, PackWriter};
use forebay_pack_store::{FetchError, Gaps, MOST_SPAN};
use forebay_reduction::dedup::fingerprints;
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, PackId, bounded_u32, to_usize};
use tokio::sync::oneshot;

use super::moves::{Move, Sources, extents_in, frames_of, sources_of, spans_of};
use super::rate::Work;
use super::{Collector, PAGE, Step};
use crate::publisher::{PutPack, address, known_frame};
use crate::state::Stopped;

/// How often a request for a pack may fail while the bucket answers others.
pub(super) const MOST_FAILURES: u32 = 5;
/// The most blocks whose maps one batch changes.
const MOST_BLOCKS: usize = 4096;
/// Requests of the commit that redirects maps.
const COMMIT_REQUESTS: u64 = 2;
/// Memory beside the copied bytes: one GET, and a frame of it that was compressed.
pub(super) const FRAMES_ON_THEIR_WAY: u64 = MOST_SPAN + BLOCK_SIZE;

/// A new pack in the bucket, and the moves for which the publisher redirects maps to it.
pub(super) struct Rewritten {
    pub(super) pack: PutPack,
    pub(super) moves: Vec<Move>,
    /// Whether all that is live in the packs they were copied from has moved.
    pub(super) rewrites: bool,
    /// Signals the end of the redirection.
    pub(super) done: oneshot::Sender<Redirected>,
}

/// What refers to a copy now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Redirected {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// Why copying did not complete.
pub(super) enum Unfinished {
    /// Other tasks need the memory.
    Busy,
    /// The bucket does not answer well, or not when it is asked for this pack.
    Later(Option<PackId>, String),
    /// A pack cannot be rewritten.
    Alone(PackId, String),
}

impl From<StoreError> for Unfinished {
    fn from(error: StoreError) -> Self {
        // The tasks that need damaged metadata find and report them.
        Unfinished::Later(None, error.to_string())
    }
}

/// The live bytes of a block that move, and their sources.
pub(super) struct Wanted {
    pub(super) block: BlockKey,
    pub(super) extents: Vec<Extent>,
}

/// The same with the bytes of their new frames.
pub(super) struct Copied {
    block: BlockKey,
    extents: Vec<Extent>,
    frames: Vec<(ByteRange, Vec<u8>)>,
}

impl Copied {
    fn of(wanted: Wanted) -> Copied {
        let frames = frames_of(&wanted.extents).into_iter();
        Copied {
            block: wanted.block,
            frames: frames
                .map(|range| (range, vec![0; to_usize(range.len())]))
                .collect(),
            extents: wanted.extents,
        }
    }

    /// Copies the wanted bytes of a frame; `None` if a map refers to more bytes than the frame has.
    fn take(&mut self, address: &FrameAddress, frame: &Frame) -> Option<()> {
        let of_it = self
            .extents
            .iter()
            .filter(|extent| extent.frame == *address);
        for extent in of_it {
            for (place, bytes) in &mut self.frames {
                let part = extent.range.intersect(*place);
                if part.is_empty() {
                    continue;
                }
                let from = to_usize(part.start.checked_sub(u64::from(address.raw_start))?);
                let from = frame.data.get(from..from + to_usize(part.len()))?;
                let at = to_usize(part.start - place.start);
                bytes.get_mut(at..at + from.len())?.copy_from_slice(from);
            }
        }
        Some(())
    }
}

impl Collector {
    /// Copies the live bytes of these packs into a new one, and has the maps redirected to it.
    pub(super) async fn rewrite(self: &Arc<Self>, group: Vec<PackId>) -> Step {
        let mut work = Work::default();
        let rewritten = match self.copy(&group, &mut work).await {
            Ok(Some(copy)) => copy,
            Ok(None) => return Step::Worked(work),
            Err(Unfinished::Busy) => return Step::Busy,
            Err(Unfinished::Later(pack, why)) => {
                // A failure says nothing about the pack while other requests fail as well.
                if self.context.trouble.current().is_some()
                    || self.failures.fetch_add(1, Ordering::Relaxed) < MOST_FAILURES
                {
                    return Step::Later(why);
                }
                // The bucket answers other requests, so something is wrong with this pack.
                let pack = pack.unwrap_or(group[0]);
                return self.give_up(pack, &why, work).await;
            }
            Err(Unfinished::Alone(pack, why)) => return self.give_up(pack, &why, work).await,
        };
        let copied_bytes = rewritten.0.record.raw_bytes;
        if self.redirected(rewritten, true, &mut work).await.is_none() {
            return Step::Waits;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.copied_bytes.fetch_add(copied_bytes, Ordering::Relaxed);
        Step::Worked(work)
    }

    /// Has the publisher redirect maps to a copy. It `rewrites` packs, or only brings parts of blocks together. `None` if the
    /// volume has stopped.
    pub(super) async fn redirected(
        &self,
        (pack, moves): (PutPack, Vec<Move>),
        rewrites: bool,
        work: &mut Work,
    ) -> Option<Redirected> {
        let (done, is_done) = oneshot::channel();
        *self.copied.lock() = Some(Rewritten {
            pack,
            moves,
            rewrites,
            done,
        });
        self.context.signals.wake_publisher();
        work.requests += COMMIT_REQUESTS;
        is_done.await.ok()
    }

    /// Leaves a pack alone that cannot be copied, unless it is gone because nothing of it is live any more.
    async fn give_up(&self, pack: PackId, why: &str, work: Work) -> Step {
        match self.context.catalog.pack(pack).await {
            Ok(None) => tracing::debug!("pack {pack} was deleted before it was copied: {why}"),
            _ => {
                tracing::warn!(
                    "pack {pack} is mostly dead but cannot be rewritten: {why}; it stays as it is"
                );
                self.survey.lock().leave_alone(pack);
            }
        }
        self.failures.store(0, Ordering::Relaxed);
        Step::Worked(work)
    }

    /// The new pack, once it is in the bucket; `None` if nothing of the packs is live any more, or not yet.
    async fn copy(
        self: &Arc<Self>,
        group: &[PackId],
        work: &mut Work,
    ) -> Result<Option<(PutPack, Vec<Move>)>, Unfinished> {
        // Leased before any request: a step that finds no memory is repeated, and must not pay for requests each
        // time. The memory is for the bytes, as many as there are or one pack has room for; for the pack that is
        // built from them; and for the bytes in flight.
        let live = self.survey.lock().live_in(group);
        let most = live.min(self.copy_bytes().max(BLOCK_SIZE));
        let lease = self
            .context
            .memory
            .lease_spare(2 * most + FRAMES_ON_THEIR_WAY)
            .await;
        let lease = lease.ok_or(Unfinished::Busy)?;
        let wanted = self.live_in(group, work).await?;
        if wanted.is_empty() {
            return Ok(None);
        }
        // Most bytes of these packs are dead, so most bytes between their frames are gaps.
        let copied = self.copy_blocks(wanted, Gaps::Unlimited, work).await?;
        self.put_copy(copied, lease, work).await.map(Some)
    }

    /// The live bytes of these packs, in the order of blocks, as far as one pack has room for them. Empty also if
    /// they change meanwhile.
    async fn live_in(&self, group: &[PackId], work: &mut Work) -> Result<Vec<Wanted>, Unfinished> {
        let mut blocks = BTreeSet::new();
        let mut said = vec![0; group.len()];
        for (pack, said) in group.iter().zip(&mut said) {
            let Some(record) = self.context.catalog.pack(*pack).await? else {
                continue;
            };
            *said = record.live_bytes;
            blocks.extend(
                self.blocks_that_may_refer(*pack, record.bytes, work)
                    .await?,
            );
            blocks.extend(self.referrers(*pack).await?);
        }
        let mut wanted = Vec::new();
        let mut found = vec![0_u64; group.len()];
        let mut room = self.copy_bytes();
        for block in blocks {
            let Some(map) = self
                .context
                .catalog
                .block_map(block.inode, block.block)
                .await?
            else {
                continue;
            };
            let extents = extents_in(&map, group);
            for extent in &extents {
                let packs = group.iter().zip(&mut found);
                for (_, found) in packs.filter(|(pack, _)| **pack == extent.frame.pack) {
                    *found += extent.range.len();
                }
            }
            let bytes: u64 = extents.iter().map(|extent| extent.range.len()).sum();
            let fits = bytes <= room || wanted.is_empty();
            if bytes > 0 && fits && wanted.len() < MOST_BLOCKS {
                room = room.saturating_sub(bytes);
                wanted.push(Wanted { block, extents });
            }
        }
        for ((pack, found), said) in group.iter().zip(found).zip(said) {
            // Read after the maps: bytes that were live at first may have been overwritten since.
            let record = self.context.catalog.pack(*pack).await?;
            let says = record.map_or(0, |record| record.live_bytes);
            if found < says {
                if says != said {
                    // Other blocks may have begun to share its frames meanwhile: the pack is examined again later.
                    return Ok(Vec::new());
                }
                return Err(Unfinished::Alone(
                    *pack,
                    format!(
                        "its account has {says} live bytes, but block maps refer to only {found}"
                    ),
                ));
            }
        }
        Ok(wanted)
    }

    /// The blocks that share frames of a pack which were written for other blocks. Some may refer to other frames by
    /// now.
    async fn referrers(&self, pack: PackId) -> Result<Vec<BlockKey>, Unfinished> {
        let mut range = KeyRange::referrers(pack);
        let mut blocks = Vec::new();
        loop {
            let page = self
                .context
                .catalog
                .records::<Referrer>(&range, PAGE)
                .await?;
            let full = page.len() == PAGE;
            let last = page.last().map(|(key, _)| key.encode());
            blocks.extend(page.into_iter().filter_map(|(key, _)| match key {
                Key::Referrer(_, block) => Some(block),
                _ => None,
            }));
            match last.filter(|_| full) {
                Some(last) => range = range.after(&last),
                None => return Ok(blocks),
            }
        }
    }

    /// The blocks whose maps may refer to a pack: those that its index names, beside its
    /// [referrers](Collector::referrers). A caller that relies on these being all must compare the bytes that it
    /// finds with the pack's account.
    pub(super) async fn blocks_that_may_refer(
        &self,
        pack: PackId,
        bytes: u64,
        work: &mut Work,
    ) -> Result<BTreeSet<BlockKey>, Unfinished> {
        let index = self.context.packs.index(pack, bytes).await;
        let (index, fetched) = index.map_err(|error| unfinished(pack, error))?;
        work.add(fetched);
        let entries = index.entries.iter();
        Ok(entries.map(|entry| entry.block).collect())
    }

    /// Fetches the bytes that move, with few large GETs.
    pub(super) async fn copy_blocks(
        &self,
        wanted: Vec<Wanted>,
        gaps: Gaps,
        work: &mut Work,
    ) -> Result<Vec<Copied>, Unfinished> {
        let mut copied: Vec<Copied> = wanted.into_iter().map(Copied::of).collect();
        let frames = copied.iter().enumerate().flat_map(|(at, block)| {
            let frames: HashSet<FrameAddress> = block.extents.iter().map(|e| e.frame).collect();
            frames.into_iter().map(move |frame| (frame, at))
        });
        for span in spans_of(frames.collect(), gaps) {
            let stored = self
                .context
                .packs
                .bytes(span.pack, span.range.clone())
                .await;
            let stored = stored.map_err(|error| unfinished(span.pack, error))?;
            work.add(stored.len() as u64);
            for (address, at) in span.frames {
                let block = &mut copied[at];
                let opened =
                    self.context
                        .packs
                        .open(block.block, &address, span.range.start, &stored);
                let frame = opened.map_err(|error| unfinished(span.pack, error))?;
                block.take(&address, &frame).ok_or_else(|| {
                    let why = "a block map refers to bytes that its frame does not have".to_owned();
                    Unfinished::Alone(span.pack, why)
                })?;
            }
        }
        Ok(copied)
    }

    /// Builds a pack of the bytes and puts it into the bucket: until it has arrived, or the volume stops.
    pub(super) async fn put_copy(
        self: &Arc<Self>,
        copied: Vec<Copied>,
        _lease: Lease,
        work: &mut Work,
    ) -> Result<(PutPack, Vec<Move>), Unfinished> {
        let pack = self.context.progress.new_pack();
        let (sharing, keys) = (
            self.context.sharing.clone(),
            self.context.packs.keys().clone(),
        );
        let compression = self.context.config.compression.lowest();
        let frames = copied.iter().flat_map(|block| &block.frames);
        let raw: usize = frames.clone().map(|(_, bytes)| bytes.len()).sum();
        let memory = Vec::with_capacity(PackWriter::most_bytes(frames.count(), raw));
        let encoded = self.context.environment.compute.run_in_background(move || {
            let mut writer = PackWriter::new_in(memory, pack, &keys, compression);
            let mut moves = Vec::with_capacity(copied.len());
            let mut known = Vec::new();
            // Blocks that shared a frame go on sharing its copy.
            let mut written: HashMap<Sources, (FrameRef, BlockKey)> = HashMap::new();
            for Copied {
                block,
                extents,
                frames,
            } in copied
            {
                let mut to = Vec::with_capacity(frames.len());
                for (range, bytes) in frames {
                    let sources = sources_of(&extents, range);
                    if let Some((frame, first)) = written.get(&sources) {
                        to.push(shared(frame, *first, block, range));
                        continue;
                    }
                    let fingerprint = fingerprints(&[vec![&bytes[..]]], &sharing, &keys).pop();
                    let hash = fingerprint.and_then(|fingerprint| fingerprint.hash);
                    let raw = std::iter::once(&bytes[..]);
                    let (frame, hash) = writer.push_hashed(block, range, raw, hash);
                    if !sharing.is_off() {
                        known.extend(
                            fingerprint
                                .map(|fingerprint| known_frame(block, &frame, &fingerprint, hash)),
                        );
                    }
                    to.push(address(&frame));
                    written.insert(sources, (frame, block));
                }
                moves.push(Move {
                    block,
                    from: extents,
                    to,
                });
            }
            (writer.finish(), moves, known)
        });
        let (finished, moves, known) = encoded.await.map_err(|error| {
            self.context.signals.stop(Stopped::Failed(format!(
                "a pack could not be encoded: {error}"
            )));
            Unfinished::Later(None, "the volume has stopped".into())
        })?;
        let bytes = finished.bytes;
        let (mut attempt, mut is_doubtful) = (1, false);
        loop {
            match self.context.packs.put(pack, bytes.clone()).await {
                Ok(doubtful) => {
                    is_doubtful |= doubtful;
                    break;
                }
                Err(error) => {
                    // If given up, the pack might be in the bucket all the same, and nothing would know it before the
                    // next opening.
                    is_doubtful = true;
                    tracing::debug!("pack {pack}: {error}; tried again");
                    tokio::time::sleep(backoff(attempt, &*self.context.environment.random)).await;
                    attempt += 1;
                }
            }
        }
        if is_doubtful {
            self.late.may_come_again(pack);
        }
        work.add(bytes.len() as u64);
        let raw = finished.frames.iter();
        let raw_bytes = raw.map(|entry| u64::from(entry.frame.raw_len)).sum();
        let record = PackRecord {
            bytes: bytes.len() as u64,
            raw_bytes,
            live_bytes: raw_bytes,
            frames: bounded_u32(finished.frames.len()),
            born: Default::default(),
        };
        let pack = PutPack {
            id: pack,
            record,
            known,
            lost: Vec::new(),
        };
        Ok((pack, moves))
    }
}

/// The address in the map of `block` for a frame that was written for another block.
fn shared(frame: &FrameRef, first: BlockKey, block: BlockKey, range: ByteRange) -> FrameAddress {
    let written_for = Origin {
        block: first,
        start: frame.start,
    };
    // Blocks have 4 MiB.
    let start = bounded_u32(to_usize(range.start));
    FrameAddress {
        raw_start: start,
        origin: (written_for != Origin { block, start }).then_some(written_for),
        ..address(frame)
    }
}

fn unfinished(pack: PackId, error: FetchError) -> Unfinished {
    match error {
        FetchError::Unavailable(why) => Unfinished::Later(Some(pack), why),
        FetchError::Damaged(why) => Unfinished::Alone(pack, why),
    }
}
