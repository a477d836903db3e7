//! READ: takes bytes from memory if they are there, and fetches the rest from the bucket.

use std::sync::Arc;

use bytes::Bytes;
use forebay_cache::Lease;
use forebay_meta::FrameAddress;
use forebay_meta::record::BlockMap;
use forebay_pack_store::{FetchError, Fetched};
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, to_usize};
use forebay_vfs::{Credentials, Error, Pieces, ReadReply, Result, Trouble, permission};
use forebay_view::convert::owned;
use forebay_waits::{For, waiting};
use futures_util::{StreamExt, stream};
use parking_lot::MutexGuard;

use super::Files;
use super::data::writable;
use super::read_bytes::Fetches;
use super::wanted_frames::{WantedFrame, inside, memory_ahead, trim, wanted_frames, whole};
use crate::state::{FetchPlan, Node, NodeState, by_block};

/// How often a read plans its fetches again because the file changed meanwhile, before it makes the client try again.
const FETCH_ROUNDS: usize = 16;

/// In how many of these rounds bytes that come are kept in memory.
const KEEPING_ROUNDS: usize = 4;

/// A read that waits for the bucket: meanwhile its stream has a reader, however many other reads there are.
struct Waiting<'a> {
    node: &'a Node,
    stream: u64,
}

impl<'a> Waiting<'a> {
    fn new(node: &'a Node, state: &mut NodeState, stream: u64) -> Waiting<'a> {
        state.reads.waits(stream, true);
        Waiting { node, stream }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.node.lock().reads.waits(self.stream, false);
    }
}

/// Where a file that is read has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has a name.
    Named,
    /// It is in the trash, and the caller sees it there.
    Trash,
}

impl Place {
    #[inline]
    fn lock<'a>(self, node: &'a Node, caller: &Credentials) -> Result<MutexGuard<'a, NodeState>> {
        match self {
            Place::Named => node.lock_live(),
            Place::Trash => node.lock_removed(caller),
        }
    }
}

impl Files {
    pub(crate) async fn read(
        self: &Arc<Self>,
        caller: &Credentials,
        inode: Inode,
        (offset, count): (u64, u32),
        place: Place,
    ) -> Result<ReadReply> {
        let node = self.state.node(inode).await?;
        for round in 0..FETCH_ROUNDS {
            let waiting;
            let (mut reply, missing, spilled, plan) = {
                let mut state = place.lock(&node, caller)?;
                let state = &mut *state;
                writable(state.record.kind())?;
                permission::may_read(owned(&state.record), caller)?;
                let attributes = node.attributes(state);
                let (wanted, eof) = within(state, offset, count);
                let stream = self.go_ahead(&node, state, wanted);
                if let Some(data) = state.blocks.lend(wanted) {
                    self.read_bytes.in_memory(wanted.len());
                    return Ok(ReadReply {
                        data,
                        eof,
                        attributes,
                    });
                }
                let mut data = vec![0; to_usize(wanted.len())];
                let (mut missing, mut spilled) = (Vec::new(), Vec::new());
                let blocks = &mut state.blocks;
                blocks.read(wanted.start, &mut data, &mut missing, &mut spilled);
                let plan = FetchPlan::new(state, &missing);
                let plan = match round {
                    ..KEEPING_ROUNDS => plan,
                    _ => plan.keeping_nothing(),
                };
                waiting = stream.map(|stream| Waiting::new(&node, state, stream));
                (
                    Reply {
                        data,
                        start: wanted.start,
                        eof,
                        attributes,
                        fetches: Fetches::default(),
                    },
                    missing,
                    spilled,
                    plan,
                )
            };
            if !self.read_spilled(&node, &spilled, &mut reply).await? {
                continue;
            }
            let fetching = self.fetch_missing(&node, &missing, &plan, Some(&mut reply));
            let is_whole = self
                .state
                .troubles
                .during(Trouble::Bucket, fetching)
                .await?;
            drop(waiting);
            if is_whole {
                let missing: u64 = missing.iter().map(|range| range.len()).sum();
                let spilled: u64 = spilled.iter().map(|(range, _)| range.len()).sum();
                let all = reply.data.len() as u64;
                self.read_bytes
                    .fetched(all, missing + spilled, reply.fetches);
                return Ok(ReadReply {
                    data: Pieces::from_iter([Bytes::from(reply.data)]),
                    eof: reply.eof,
                    attributes: reply.attributes,
                });
            }
        }
        Err(Error::Delay)
    }

    /// The same if all bytes are in memory; otherwise returns `None` without waiting, and changes nothing.
    pub(crate) fn read_in_memory(
        self: &Arc<Self>,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Option<ReadReply> {
        let node = self.state.nodes.peek(inode)?;
        let mut state = node.lock_live().ok()?;
        let state = &mut *state;
        writable(state.record.kind()).ok()?;
        permission::may_read(owned(&state.record), caller).ok()?;
        let (wanted, eof) = within(state, offset, count);
        let data = state.blocks.lend(wanted)?;
        let attributes = node.attributes(state);
        self.go_ahead(&node, state, wanted);
        self.read_bytes.in_memory(wanted.len());
        Some(ReadReply {
            data,
            eof,
            attributes,
        })
    }

    /// Reads ahead of a reader that is at `wanted` now, if it reads sequentially. Returns its stream.
    fn go_ahead(
        self: &Arc<Self>,
        node: &Arc<Node>,
        state: &mut NodeState,
        wanted: ByteRange,
    ) -> Option<u64> {
        if wanted.is_empty() {
            return None;
        }
        let (size, in_bucket) = (state.record.size, state.is_in_bucket());
        let (own, ahead) = state
            .reads
            .next(wanted, self.state.config.prefetch_window());
        let stream = own.number();
        if let Some(ahead) = ahead {
            let ahead = ahead.intersect(ByteRange::new(0, size));
            self.prefetch(node, &state.blocks, ahead, own);
            if in_bucket && let Some((from, blocks)) = own.look_up(size) {
                self.look_up_ahead(node.inode, from, blocks);
            }
        }
        Some(stream)
    }

    /// Fetches the missing bytes of a file, into the cache if there is room, and into a reply. Without a reply they
    /// are fetched ahead of a reader, into the cache alone: only with spare memory, which is leased before. Returns
    /// false if the file has changed and a new plan is needed, or if there is no spare memory.
    pub(crate) async fn fetch_missing(
        &self,
        node: &Arc<Node>,
        missing: &[ByteRange],
        plan: &FetchPlan,
        mut reply: Option<&mut Reply>,
    ) -> Result<bool> {
        // Each block at once, however many gaps it has: its map is looked up and its frames are decoded only once.
        let blocks = by_block(missing);
        for (block, gaps) in &blocks {
            let reply = reply.as_deref_mut();
            if !self.fetch_block(node, *block, gaps, plan, reply).await? {
                return Ok(false);
            }
        }
        // A read of nothing but holes must not have been overtaken either.
        let state = node.lock();
        Ok(blocks
            .iter()
            .all(|(block, _)| state.blocks.is_current(plan.token, whole(*block))))
    }

    /// Fetches the gaps of one block, in ascending order.
    async fn fetch_block(
        &self,
        node: &Arc<Node>,
        block: BlockIndex,
        gaps: &[ByteRange],
        plan: &FetchPlan,
        mut reply: Option<&mut Reply>,
    ) -> Result<bool> {
        // Bytes without a map are a hole: the reply has zeros there already.
        let Some(map) = self.bucket_map(node, block, plan).await? else {
            return Ok(true);
        };
        let key = BlockKey {
            inode: node.inode,
            block,
        };
        // A map of changes that are not published yet is about to change.
        if !plan.early.iter().any(|(early, _)| *early == block) {
            self.fragments.read(key, &map);
        }
        let mut wanted = wanted_frames(&map, gaps);
        let mut spare = None;
        if reply.is_none() {
            let addresses = wanted.iter().map(|wanted| wanted.address);
            let Some(lease) = self
                .state
                .memory
                .lease_spare(memory_ahead(&self.packs, addresses))
                .await
            else {
                return Ok(false);
            };
            spare = Some(lease);
        }
        // Several GETs at a time; their frames are taken in one after the other. Reading ahead uses one at a time,
        // for which it has memory, and delays no reader.
        let (ahead, at_once) = match spare {
            Some(_) => (true, 1),
            None => (false, FRAMES_AT_ONCE),
        };
        let waiters = loop {
            let addresses: Vec<FrameAddress> = wanted.iter().map(|one| *one.address).collect();
            let waiters = self.packs.join_fetches(key, &addresses);
            // Some may have come since the plan. Checked after the join: a fetch is in the table until its bytes are
            // in the block buffer, so none is missed in between.
            let before = wanted.len();
            {
                let state = node.lock();
                let is_needed = |one: &WantedFrame<'_>| one.is_needed(&state.blocks, block, gaps);
                match ahead {
                    // With the ones that came between two others it is still one GET.
                    true => trim(&mut wanted, is_needed),
                    false if !wanted.iter().all(is_needed) => return Ok(false),
                    false => {}
                }
            }
            if wanted.len() == before {
                break waiters;
            }
        };
        let fetches: Vec<_> = waiters
            .into_iter()
            .map(|waiter| async move {
                let lease = |bytes| (!ahead).then(|| self.state.memory.lease(bytes));
                let outcomes = waiter.fetch(lease).await;
                (waiter, outcomes)
            })
            .collect();
        let mut fetches = stream::iter(fetches).buffered(at_once);
        let mut came = 0;
        // Each waiter is dropped when the block buffer has its frames: until then other readers find them there.
        while let Some((_waiter, outcomes)) = fetches.next().await {
            for (index, frame) in outcomes {
                let Some(wanted) = wanted.get(index) else {
                    continue;
                };
                came += 1;
                let frame = match frame {
                    Ok(frame) => frame,
                    Err(error) => {
                        // A missing pack belongs to an outdated map: the file was truncated, or these bytes were written
                        // again and published since.
                        let overtaken = !node.lock().blocks.is_current(plan.token, whole(block));
                        if overtaken
                            || self
                                .is_replaced(node, block, wanted.part, wanted.address)
                                .await?
                        {
                            return Ok(false);
                        }
                        return Err(self.fetch_failed(key, wanted.address, &error));
                    }
                };
                let taken = Taken {
                    block,
                    gaps,
                    wanted,
                    frame: &frame,
                };
                if !self.take_in(node, taken, plan, reply.as_deref_mut(), spare.as_mut())? {
                    return Ok(false);
                }
            }
        }
        if came < wanted.len() {
            tracing::error!(
                "inode {inode}, bytes from {} on, cannot be read: their block map refers to different frames at the same byte of a pack",
                block.start(),
                inode = node.inode,
            );
            return Err(Error::Io);
        }
        Ok(true)
    }

    /// Puts the valid bytes of a frame into a reply, and into the cache if there is room: `spare`, or free memory.
    fn take_in(
        &self,
        node: &Arc<Node>,
        taken: Taken<'_>,
        plan: &FetchPlan,
        reply: Option<&mut Reply>,
        spare: Option<&mut Lease>,
    ) -> Result<bool> {
        let Taken {
            block,
            gaps,
            wanted,
            frame,
        } = taken;
        let (address, live) = (wanted.address, &wanted.live);
        if let Some(reply) = reply {
            for range in live.iter().flat_map(|range| inside(gaps, *range)) {
                let from = frame.part(address, range).ok_or(Error::Io)?;
                let at = to_usize(block.start() + range.start - reply.start);
                let to = reply.data.get_mut(at..at + from.len()).ok_or(Error::Io)?;
                to.copy_from_slice(from);
                reply.fetches.add(frame.from(), range.len());
            }
        }
        // The rest of the frame costs nothing: keep all of it that is still valid, if there is room without delaying
        // writers.
        let needs = frame.needs();
        let found = match spare {
            Some(_) => None,
            None if !plan.keeps => None,
            None => self.state.memory.try_lease(needs),
        };
        let room = spare.is_some() || (plan.keeps && (found.is_some() || needs == 0));
        let mut state = node.lock();
        if !state.blocks.is_current(plan.token, whole(block)) {
            return Ok(false);
        }
        if room {
            // Otherwise a small piece would keep all bytes that arrived with it from being freed.
            let mut missing = Vec::new();
            for range in live {
                let at = block.start() + range.start;
                let range = ByteRange::at(at, range.len());
                state.blocks.unknown(range, &mut missing);
            }
            let of_it: u64 = missing.iter().map(|range| range.len()).sum();
            let mostly = of_it * 2 >= frame.range.len();
            let mut filled = 0;
            for range in live.iter().copied() {
                let at = block.start() + range.start;
                match frame.part_to_keep(address, range).filter(|_| mostly) {
                    Some(arrived) => state.blocks.take_over(at, &arrived),
                    None => {
                        let bytes = frame.part(address, range).ok_or(Error::Io)?;
                        state.blocks.fill(at, bytes);
                    }
                }
                filled += range.len();
            }
            // From here on the block buffers themselves count these bytes.
            if let Some(spare) = spare {
                spare.give_back(filled);
            }
        }
        Ok(true)
    }

    /// The valid part of the map of a block that may be in the bucket; `None` for a hole.
    pub(crate) async fn bucket_map(
        &self,
        node: &Node,
        block: BlockIndex,
        plan: &FetchPlan,
    ) -> Result<Option<BlockMap>> {
        let early = plan.early.iter().find(|(own, _)| *own == block);
        if let Some((_, map)) = early {
            return Ok(Some(map.clone()));
        }
        let end = plan.published_end.saturating_sub(block.start());
        if end == 0 {
            return Ok(None);
        }
        if plan.truncated.contains(block) {
            return Ok(None);
        }
        let map = self.state.catalog.block_map(node.inode, block);
        let map = waiting(For::Bucket, map).await;
        let mut map = map.map_err(|error| self.state.store_failed(error))?;
        if let Some(map) = &mut map {
            map.truncate(end);
        }
        Ok(map)
    }

    /// Whether the block map no longer refers to the frame at `address` for all of `part`.
    async fn is_replaced(
        &self,
        node: &Node,
        block: BlockIndex,
        part: ByteRange,
        address: &FrameAddress,
    ) -> Result<bool> {
        let now = FetchPlan::new(&node.lock(), &[whole(block)]);
        let Some(map) = self.bucket_map(node, block, &now).await? else {
            return Ok(true);
        };
        let replaced = map.lookup(part).any(|(_, now)| now != Some(address));
        Ok(replaced)
    }

    fn fetch_failed(&self, block: BlockKey, frame: &FrameAddress, error: &FetchError) -> Error {
        match error {
            FetchError::Unavailable(why) => {
                self.state.trouble.read_error(why);
                Error::Delay
            }
            FetchError::Damaged(why) => {
                self.damages.report(block, frame, why);
                Error::Io
            }
        }
    }
}

/// The part of the file that a READ asks for, and whether the file ends with it.
fn within(state: &NodeState, offset: u64, count: u32) -> (ByteRange, bool) {
    let size = state.record.size;
    let asked = ByteRange::at(offset, u64::from(count));
    let eof = offset.saturating_add(u64::from(count)) >= size;
    (asked.intersect(ByteRange::new(0, size)), eof)
}

/// How many GETs for frames of one block are made at the same time for one reader.
const FRAMES_AT_ONCE: usize = 8;

/// A fetched frame and its purpose.
struct Taken<'a> {
    block: BlockIndex,
    /// The missing ranges of the block.
    gaps: &'a [ByteRange],
    wanted: &'a WantedFrame<'a>,
    frame: &'a Fetched,
}

/// A reply to READ that is being assembled.
pub(crate) struct Reply {
    data: Vec<u8>,
    /// The offset of `data` in the file.
    start: u64,
    eof: bool,
    attributes: forebay_vfs::Attributes,
    fetches: Fetches,
}

impl Reply {
    /// Puts bytes of the log into the reply, from this offset of the file on.
    pub(super) fn paste_logged(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = to_usize(offset.checked_sub(self.start).ok_or(Error::Io)?);
        let to = self.data.get_mut(at..at + bytes.len()).ok_or(Error::Io)?;
        to.copy_from_slice(bytes);
        self.fetches.add_logged(bytes.len() as u64);
        Ok(())
    }
}
