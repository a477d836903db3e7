//! Uploading: the dirty ranges of a closed checkpoint become frames, the frames packs, and the
//! packs objects in the bucket. Nothing refers to them before the checkpoint is published.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_cache::{Lease, Snapshot};
use forebay_meta::record::{BlockMap, FrameAddress, KnownFrame, MAX_EXTENTS, Origin, PackRecord};
use forebay_pack::{Compression, FrameRef, PackWriter};
use forebay_types::{BLOCK_SIZE, BlockKey, ByteRange, CheckpointId, Inode, PackId};
use tokio::task::JoinSet;

use super::buffers::Buffer;
use super::close::Closed;
use super::share::{Choice, known_frame};
use super::{Halted, pack_plan};
use crate::compression::BlockJudge;
use crate::core::{Core, Stopped};
use crate::dedup::{Arrival, Mark};
use crate::fetch::{FetchError, Fetched};
use crate::node::Node;

/// What a checkpoint has put into the bucket.
#[derive(Default)]
pub(crate) struct Uploaded {
    /// Its frames, by file.
    pub(crate) frames: HashMap<Inode, Vec<(BlockKey, FrameAddress)>>,
    pub(crate) packs: Vec<PutPack>,
}

/// A pack in the bucket that is not published.
pub(crate) struct PutPack {
    pub(crate) id: PackId,
    /// As if all of it were referred to.
    pub(crate) record: PackRecord,
    /// What its frames are known by; none without deduplication.
    pub(crate) known: Vec<KnownFrame>,
}

/// What came of the upload of some blocks.
pub(super) struct Landed {
    /// None if the bucket had everything already.
    pub(super) pack: Option<PutPack>,
    /// All frames, in the order of the blocks.
    pub(super) frames: Vec<(BlockKey, FrameAddress)>,
}

/// The bytes of a block that go into a pack.
pub(super) struct Content {
    key: BlockKey,
    node: Arc<Node>,
    snapshot: Snapshot,
    rewritten: Option<Vec<u8>>,
    /// The ranges that become frames.
    pub(super) frames: Vec<ByteRange>,
}

impl Content {
    /// What each of its frames is of.
    fn origins(&self) -> impl Iterator<Item = Origin> {
        let origin = |frame: &ByteRange| Origin {
            block: self.key,
            // Blocks have 4 MiB.
            start: frame.start as u32,
        };
        self.frames.iter().map(origin)
    }

    /// The bytes of one of its frames.
    pub(super) fn pieces(&self, frame: ByteRange) -> Vec<&[u8]> {
        match &self.rewritten {
            Some(whole) => vec![&whole[std::ops::Range::<usize>::from(frame)]],
            None => self.snapshot.slices(frame).collect(),
        }
    }
}

/// A block of a checkpoint on its way.
pub(super) struct DirtyBlock {
    pub(super) key: BlockKey,
    /// The file.
    pub(super) node: Arc<Node>,
    pub(super) snapshot: Snapshot,
    /// Set when the block map has too many extents to take the dirty ranges one by one: bytes of
    /// the whole block up to here are written anew in one frame.
    pub(super) rewrite: Option<Rewrite>,
}

pub(super) struct Rewrite {
    map: BlockMap,
    /// Bytes of the old map that still count.
    live: u64,
}

/// Packs that are put together, or wait for their turn, beside those that are on their way.
pub(super) const AT_ONCE_BESIDE: usize = 2;

/// Extents that a block may come to by small writes before it is written anew.
const FRAGMENTS: usize = MAX_EXTENTS / 4;

impl DirtyBlock {
    fn bytes(&self) -> u64 {
        match self.rewrite {
            Some(_) => BLOCK_SIZE,
            None => self.snapshot.dirty_bytes(),
        }
    }

    /// The frames that it becomes, at most.
    fn frames(&self) -> usize {
        match self.rewrite {
            Some(_) => pack_plan::frames(ByteRange::new(0, BLOCK_SIZE)).count(),
            None => self.snapshot.ranges().flat_map(pack_plan::frames).count(),
        }
    }
}

/// Bytes of memory, at most, that the upload of a pack of these blocks takes: the pack, and blocks that are written anew,
/// which are put together first.
fn memory(group: &[DirtyBlock]) -> u64 {
    let frames = group.iter().map(DirtyBlock::frames).sum();
    let raw_bytes = group.iter().map(DirtyBlock::bytes).sum();
    let rewritten = group.iter().filter(|block| block.rewrite.is_some()).count();
    pack_plan::pack_memory(frames, raw_bytes) + rewritten as u64 * BLOCK_SIZE
}

impl Core {
    pub(crate) async fn upload(self: &Arc<Self>, closed: &Closed) -> Result<Uploaded, Halted> {
        let blocks = self.dirty_blocks(closed).await?;
        let groups = pack_plan::group(blocks, DirtyBlock::bytes, self.config.pack_bytes);
        let mut groups = groups.into_iter().peekable();
        let mut uploads = JoinSet::new();
        let mut uploaded = Uploaded {
            packs: self.checkpoints.leaving.take_packs(closed.id),
            ..Uploaded::default()
        };
        loop {
            // Oldest first. Some are put together while as many as configured are on their way.
            while uploads.len() < self.config.upload_parallel + AT_ONCE_BESIDE
                && let Some(group) = groups.peek()
            {
                // The pack, and blocks that are put together for it, are memory beside the block buffers whose
                // bytes they have, until the bucket has them. One at a time there is always, for memory becomes
                // free by uploads; the next one waits for room, at most until that one is done.
                let bytes = memory(group);
                let lease = match uploads.is_empty() {
                    true => Some(self.lease(bytes)),
                    false => self.try_lease_reserve(bytes),
                };
                let Some(lease) = lease else { break };
                let Some(group) = groups.next() else { break };
                let (core, pack) = (self.clone(), self.checkpoints.new_pack());
                let of = closed.id;
                uploads.spawn(async move { core.upload_pack(of, pack, group, lease).await });
            }
            let Some(done) = uploads.join_next().await else {
                break;
            };
            let Landed { pack, frames } = done.unwrap_or_else(|error| {
                self.stop(Stopped::Failed(format!("an upload ended early: {error}")));
                Err(Halted)
            })?;
            uploaded.packs.extend(pack);
            for (key, frame) in frames {
                uploaded
                    .frames
                    .entry(key.inode)
                    .or_default()
                    .push((key, frame));
            }
        }
        Ok(uploaded)
    }

    /// Takes over the dirty ranges of the checkpoint. Files that it removed cost nothing.
    async fn dirty_blocks(&self, closed: &Closed) -> Result<Vec<DirtyBlock>, Halted> {
        let mut blocks = Vec::new();
        for node in &closed.nodes {
            let (snapshots, early, published, floor) = {
                let mut state = node.lock();
                let then = state.as_of(closed.id);
                if then.removed {
                    continue;
                }
                let indices = state.blocks.dirty_blocks(closed.id);
                let take = |index| state.blocks.snapshot(index, closed.id);
                let snapshots: Vec<Snapshot> = indices.into_iter().filter_map(take).collect();
                let early = |block| state.early.of(closed.id, block).cloned();
                let early: Vec<_> = snapshots.iter().map(|taken| early(taken.block())).collect();
                let floor = then.floor.unwrap_or(u64::MAX);
                (snapshots, early, then.published, floor)
            };
            for (snapshot, early) in snapshots.into_iter().zip(early) {
                let key = BlockKey {
                    inode: node.inode,
                    block: snapshot.block(),
                };
                // What has left early has been cut already.
                let (map, floor) = match early {
                    Some(map) => (Some(map), u64::MAX),
                    None if published => {
                        let map = self.insist(|| self.catalog.block_map(key.inode, key.block));
                        (map.await?, floor)
                    }
                    None => (None, floor),
                };
                let rewrite = needs_rewrite(key, &snapshot, map.unwrap_or_default(), floor);
                blocks.push(DirtyBlock {
                    key,
                    node: node.clone(),
                    snapshot,
                    rewrite,
                });
            }
        }
        Ok(blocks)
    }

    /// Makes a pack of what the bucket does not have of the blocks, and puts it there. The blocks are of `checkpoint`.
    pub(super) async fn upload_pack(
        self: Arc<Self>,
        checkpoint: CheckpointId,
        pack: PackId,
        group: Vec<DirtyBlock>,
        lease: Lease,
    ) -> Result<Landed, Halted> {
        let _counted = Counted::new(&self.checkpoints.uploads);
        let mut contents = Vec::with_capacity(group.len());
        for block in group {
            let rewritten = match &block.rewrite {
                Some(rewrite) => self.whole_block(&block, rewrite).await?,
                None => None,
            };
            let frames: Vec<ByteRange> = match &rewritten {
                Some(whole) => pack_plan::frames(all_of(whole)).collect(),
                None => block
                    .snapshot
                    .ranges()
                    .flat_map(pack_plan::frames)
                    .collect(),
            };
            contents.push(Content {
                key: block.key,
                node: block.node,
                snapshot: block.snapshot,
                rewritten,
                frames,
            });
        }
        let (contents, marks) = self.marks(contents).await?;
        let arrival = Arc::new(Arrival::new());
        let choices = self.choose(checkpoint, pack, &arrival, &marks).await;
        // Of each frame, what it would be there for.
        let owns: Vec<Origin> = contents.iter().flat_map(Content::origins).collect();
        let put = match self
            .put_pack(pack, contents, marks, &choices, lease)
            .await?
        {
            Some((put, addresses)) => {
                // Whoever shares frames of it may wait, and be waited for below.
                let _ = arrival.set(put.known.clone());
                Some((put, addresses))
            }
            None => None,
        };
        let (pack, addresses) = put.unzip();
        let mut addresses = addresses.into_iter().flatten();
        let mut frames = Vec::with_capacity(owns.len());
        let mut choices = choices.into_iter();
        for own in owns {
            let choice = choices.next().unwrap_or(Choice::Put);
            let address = match self.shared_address(choice, own).await? {
                Some(shared) => Some(shared),
                None => addresses.next(),
            };
            let Some(address) = address else {
                // Published, it would be a hole.
                let why = "a pack has fewer frames than were to be put into it".to_owned();
                self.stop(Stopped::Failed(why));
                return Err(Halted);
            };
            frames.push((own.block, address));
        }
        Ok(Landed { pack, frames })
    }

    /// Makes a pack of the frames that are to be put and puts it into the bucket; gives where each lies. None if there
    /// are none.
    async fn put_pack(
        self: &Arc<Self>,
        pack: PackId,
        contents: Vec<Content>,
        marks: Vec<Mark>,
        choices: &[Choice],
        lease: Lease,
    ) -> Result<Option<(PutPack, Vec<FrameAddress>)>, Halted> {
        // Without deduplication there are no choices.
        let is_put: Vec<bool> = match self.sharing.is_off() {
            true => contents
                .iter()
                .flat_map(|content| &content.frames)
                .map(|_| true)
                .collect(),
            false => choices.iter().map(Choice::is_put).collect(),
        };
        let (keys, otherwise) = (self.packs.keys().clone(), self.config.compression);
        let compressing = self.checkpoints.compressing.clone();
        let link_limit = self.checkpoints.upload_rate();
        let all = contents.iter().flat_map(|content| &content.frames);
        let puts = all.zip(&is_put).filter(|(_, is_put)| **is_put);
        let lens: Vec<u64> = puts.map(|(frame, _)| frame.len()).collect();
        if lens.is_empty() {
            return Ok(None);
        }
        let raw_bytes: u64 = lens.iter().sum();
        let most = PackWriter::most_bytes(lens.len(), raw_bytes as usize);
        let (memory, kept) = match self.checkpoints.buffers.take(most) {
            Some(buffer) => (buffer.bytes, Some(buffer.lease)),
            None => (Vec::with_capacity(most), None),
        };
        let encoded = self.environment.compute.run_in_background(move || {
            let files = contents.iter();
            let files = files.map(|content| content.node.compression.now(otherwise));
            let encoding = compressing.encode(raw_bytes, files, link_limit);
            let mut writer = PackWriter::new_in(memory, pack, &keys, Compression::Off);
            let mut known = Vec::new();
            let (mut is_put, mut marks) = (is_put.into_iter(), marks.into_iter());
            for content in contents {
                let file = &content.node.compression;
                let mut judge = BlockJudge::new(file, content.key, encoding.level(), otherwise);
                for frame in &content.frames {
                    let mark = marks.next();
                    if !is_put.next().unwrap_or(true) {
                        continue;
                    }
                    let pieces = content.pieces(*frame);
                    let hash = mark.and_then(|mark| mark.hash);
                    let pieces = pieces.iter().copied();
                    let (frame, hash) = judge.push(&mut writer, *frame, pieces, hash);
                    known.extend(mark.map(|mark| known_frame(content.key, &frame, &mark, hash)));
                }
                // From here on writers change its pieces in place again.
                drop(content);
            }
            let (bytes, frames) = writer.finish_in_memory();
            let sending = encoding.done(bytes.len() as u64);
            (bytes, frames, known, sending)
        });
        let (bytes, frames, known, sending) = encoded.await.map_err(|error| {
            self.stop(Stopped::Failed(format!(
                "a pack could not be encoded: {error}"
            )));
            Halted
        })?;
        // What blocks took that were put together first is free again.
        let mut lease = kept.unwrap_or(lease);
        let spare = lease.bytes().saturating_sub(bytes.capacity() as u64);
        lease.give_back(spare);
        let bytes = self.checkpoints.buffers.lend(Buffer { bytes, lease });
        let (mut attempt, mut is_doubtful) = (1, false);
        loop {
            match self.packs.put(pack, bytes.clone()).await {
                Ok(doubtful) => {
                    is_doubtful |= doubtful;
                    break;
                }
                Err(error) => {
                    is_doubtful = true;
                    let why = format!("pack {pack}: {error}");
                    self.wait_for_store(&why, attempt).await?;
                    attempt += 1;
                }
            }
        }
        if is_doubtful {
            self.checkpoints.collector.may_come_again(pack);
        }
        sending.arrived(bytes.len() as u64);
        self.checkpoints.store_works();
        let record = PackRecord {
            bytes: bytes.len() as u64,
            raw_bytes,
            live_bytes: raw_bytes,
            frames: frames.len() as u32,
        };
        let put = PutPack {
            id: pack,
            record,
            known,
        };
        let addresses = frames.iter().map(|entry| address(&entry.frame));
        Ok(Some((put, addresses.collect())))
    }

    /// All bytes of a block from its start to the last one that is not a hole: what the bucket has,
    /// and over it what is dirty. None when the bucket's bytes are damaged: then the dirty ranges go
    /// there one by one, and what is damaged stays to be reported to its readers.
    async fn whole_block(
        &self,
        block: &DirtyBlock,
        rewrite: &Rewrite,
    ) -> Result<Option<Vec<u8>>, Halted> {
        let live = ByteRange::new(0, rewrite.live);
        let old = rewrite
            .map
            .extents()
            .iter()
            .map(|extent| extent.range.intersect(live).end);
        let new = block.snapshot.ranges().map(|range| range.end);
        let len = old.chain(new).max().unwrap_or(0);
        let mut whole = vec![0; len as usize];
        // Each frame once, though small writes may have cut it into hundreds of extents.
        let mut seen = HashSet::new();
        let extents = rewrite.map.extents().iter();
        let wanted = extents
            .filter(|extent| !extent.range.intersect(live).is_empty())
            .filter(|extent| seen.insert(extent.frame))
            .map(|extent| extent.frame)
            .collect();
        let paste = |address: &FrameAddress, frame: &Fetched| {
            let extents = rewrite.map.extents().iter();
            for extent in extents.filter(|extent| extent.frame == *address) {
                let range = extent.range.intersect(live);
                // A frame has all that its address says, or it would not have been opened.
                if let Some(bytes) = frame.part(address, range).filter(|_| !range.is_empty()) {
                    whole[std::ops::Range::<usize>::from(range)].copy_from_slice(bytes);
                }
            }
        };
        if !self.fetch_for_rewrite(block.key, wanted, paste).await? {
            return Ok(None);
        }
        for range in block.snapshot.ranges() {
            let mut at = range.start as usize;
            for slice in block.snapshot.slices(range) {
                whole[at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
        }
        Ok(Some(whole))
    }

    /// Fetches frames of a block until each of them is there; false when one of them is damaged.
    async fn fetch_for_rewrite(
        &self,
        block: BlockKey,
        mut wanted: Vec<FrameAddress>,
        mut take: impl FnMut(&FrameAddress, &Fetched),
    ) -> Result<bool, Halted> {
        let mut attempt = 1;
        loop {
            let mut missing = Vec::new();
            let mut trouble = None;
            for share in self.packs.share(block, &wanted) {
                for (index, outcome) in share.fetch(|bytes| Some(self.lease(bytes))).await {
                    match outcome {
                        Ok(frame) => take(&wanted[index], &frame),
                        Err(FetchError::Unavailable(why)) => {
                            missing.push(wanted[index]);
                            trouble = Some(why);
                        }
                        Err(FetchError::Damaged(why)) => {
                            let frame = &wanted[index];
                            self.frame_is_damaged(block, frame, &why);
                            tracing::error!(
                                "inode {}, bytes from {} on, cannot be written anew in one piece: {why}",
                                block.inode,
                                block.block.start()
                            );
                            return Ok(false);
                        }
                    }
                }
            }
            let Some(why) = trouble else { return Ok(true) };
            self.wait_for_store(&why, attempt).await?;
            wanted = missing;
            attempt += 1;
        }
    }
}

/// Whether the block is to be written anew, given the map that it has and where that stops to count.
fn needs_rewrite(key: BlockKey, snapshot: &Snapshot, map: BlockMap, floor: u64) -> Option<Rewrite> {
    let ranges = snapshot.ranges().take(FRAGMENTS + 1).count();
    // Each range may cut an extent in two and adds one, and more where it is longer than a frame.
    if map.extents().len() + 2 * ranges <= FRAGMENTS {
        return None;
    }
    let live = floor.saturating_sub(key.block.start()).min(BLOCK_SIZE);
    Some(Rewrite { map, live })
}

/// How the metadata name a frame.
pub(crate) fn address(frame: &FrameRef) -> FrameAddress {
    FrameAddress {
        pack: frame.pack,
        offset: frame.offset,
        stored_len: frame.stored_len,
        raw_len: frame.raw_len,
        raw_start: frame.start,
        crc32: frame.crc32,
        origin: None,
    }
}

/// Counts a pack on its way.
struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    fn new(uploads: &AtomicUsize) -> Counted<'_> {
        uploads.fetch_add(1, Ordering::Relaxed);
        Counted(uploads)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn all_of(whole: &[u8]) -> ByteRange {
    ByteRange::new(0, whole.len() as u64)
}
