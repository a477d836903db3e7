//! READ, WRITE and COMMIT.

use std::collections::HashSet;

use bytes::Bytes;
use forebay_cache::FetchToken;
use forebay_meta::FrameAddress;
use forebay_meta::record::Kind;
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, Inode, Lsn, PackId};
use forebay_vfs::{Change, Credentials, Error, ReadReply, Result, permission};
use forebay_wal::RecordKind;

use crate::change::DataHeader;
use crate::convert::owned;
use crate::core::Core;
use crate::durability::Recorded;
use crate::fetch::FetchError;
use crate::node::{Node, NodeState};
use std::sync::Arc;

/// Largest file. Block indices stay far from overflow, and offsets fit a signed 64-bit `off_t`.
pub(crate) const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// How often a read plans its fetches again because the file changed under them, before it asks
/// the client to come back.
const FETCH_ROUNDS: usize = 16;

impl Core {
    pub(crate) async fn write(
        &self,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<Recorded<Change>> {
        let node = self.node(inode).await?;
        let end_offset = offset
            .checked_add(data.len() as u64)
            .ok_or(Error::FileTooLarge)?;
        if end_offset > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        let admission = self.admit(data.len() as u64).await?;
        let (end, change) = match self.write_once(who, &node, offset, data, None).await {
            Err(Error::NoSpace | Error::Quota) => {
                self.write_at_limit(who, &node, offset, data).await
            }
            result => result,
        }?;
        // The cache counts the bytes by now; whoever waits for the disk keeps nobody out.
        drop(admission);
        if self.cache.dirty_bytes() >= self.config.checkpoint_bytes {
            self.checkpoints.wake();
        }
        Ok(Recorded { end, reply: change })
    }

    /// A write for which there seems to be no room: finds out what it really needs.
    async fn write_at_limit(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
    ) -> Result<(Lsn, Change)> {
        let range = ByteRange::at(offset, data.len() as u64);
        let counted = self.counted(node, range).await?;
        let result = self.write_once(who, node, offset, data, counted).await;
        if !matches!(result, Err(Error::NoSpace | Error::Quota))
            || !node.lock().charge.is_loose(self.checkpoints.last())
        {
            return result;
        }
        // Of other files with holes more may have been counted than there is, until the bucket has
        // them.
        self.flush().await.map_err(|_| Error::Delay)?;
        let counted = self.counted(node, range).await?;
        self.write_once(who, node, offset, data, counted).await
    }

    /// How many bytes of `range` are in the bucket and not in memory: they take no further space when
    /// they are written over.
    async fn counted(&self, node: &Arc<Node>, range: ByteRange) -> Result<Option<Counted>> {
        let (unknown, token, end) = {
            let state = node.lock_live()?;
            let end = match state.published {
                true => state.published_end(),
                false => 0,
            };
            (state.unknown_ranges(range), state.blocks.fetch_token(), end)
        };
        let mut bytes = 0;
        for range in &unknown {
            let range = range.intersect(ByteRange::new(0, end));
            for (block, within) in BlockIndex::split(range) {
                let map = self.catalog.block_map(node.inode, block).await;
                let Some(map) = map.map_err(|error| self.store_failed(error))? else {
                    continue;
                };
                let live = map.lookup(within).filter(|(_, frame)| frame.is_some());
                bytes += live.map(|(part, _)| part.len()).sum::<u64>();
            }
        }
        Ok((bytes > 0).then_some(Counted {
            bytes,
            range,
            unknown,
            token,
        }))
    }

    /// Records a write and makes it in memory; gives the position after it.
    async fn write_once(
        &self,
        who: &Credentials,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
        counted: Option<Counted>,
    ) -> Result<(Lsn, Change)> {
        let range = ByteRange::at(offset, data.len() as u64);
        self.retry(|| {
            let mut state = node.lock_live()?;
            writable(state.record.kind())?;
            permission::may_write(owned(&state.record), who)?;
            let before = node.wcc(&state);
            if data.is_empty() {
                let after = node.attributes(&state);
                return Ok((
                    state.last_lsn,
                    Change {
                        before: Some(before),
                        after: Some(after),
                    },
                ));
            }
            let counted = counted.as_ref().filter(|counted| counted.holds(&state));
            let counted = counted.map_or(0, |counted| counted.bytes);
            let space = state.space_after(range, counted);
            let reserved = state.charge.reserve(NodeState::amount_of(space))?;
            let header = DataHeader {
                inode: node.inode,
                offset,
                time: self.now(),
                mode: permission::mode_after_write(state.record.mode, who),
            };
            let end = self.record(RecordKind::Data, &[&header.encode(), data], |open, end| {
                let first = open.touch(node, &mut state);
                header.apply(&mut state, data, counted, open.id);
                state.last_lsn = end;
                state.settle(Some(reserved));
                first
            })?;
            let after = node.attributes(&state);
            Ok((
                end,
                Change {
                    before: Some(before),
                    after: Some(after),
                },
            ))
        })
        .await
    }

    /// What a COMMIT of a file has to wait for.
    pub(crate) async fn commit(&self, inode: Inode) -> Result<Recorded<Arc<Node>>> {
        let node = self.node(inode).await?;
        let end = {
            let state = node.lock_live()?;
            writable(state.record.kind())?;
            state.last_lsn
        };
        Ok(Recorded { end, reply: node })
    }

    pub(crate) async fn read(
        self: &Arc<Self>,
        who: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let node = self.node(inode).await?;
        for _ in 0..FETCH_ROUNDS {
            let (mut reply, missing, plan) = {
                let mut state = node.lock_live()?;
                writable(state.record.kind())?;
                permission::may_read(owned(&state.record), who)?;
                let attributes = node.attributes(&state);
                let wanted = ByteRange::at(offset, u64::from(count))
                    .intersect(ByteRange::new(0, state.record.size));
                let eof = offset.saturating_add(u64::from(count)) >= state.record.size;
                if !wanted.is_empty()
                    && let Some(ahead) = state.reads.next(wanted, self.config.prefetch_bytes)
                {
                    let ahead = ahead.intersect(ByteRange::new(0, state.record.size));
                    self.prefetch(&node, ahead);
                }
                if let Some(data) = state.blocks.lend(wanted) {
                    return Ok(ReadReply {
                        data,
                        eof,
                        attributes,
                    });
                }
                let mut data = vec![0; wanted.len() as usize];
                let mut missing = Vec::new();
                state.blocks.read(wanted.start, &mut data, &mut missing);
                let plan = FetchPlan {
                    token: state.blocks.fetch_token(),
                    published_end: if state.published {
                        state.published_end()
                    } else {
                        0
                    },
                };
                (
                    Reply {
                        data,
                        start: wanted.start,
                        eof,
                        attributes,
                    },
                    missing,
                    plan,
                )
            };
            if self
                .fetch_missing(&node, &missing, plan, Some(&mut reply))
                .await?
            {
                return Ok(ReadReply {
                    data: vec![Bytes::from(reply.data)],
                    eof: reply.eof,
                    attributes: reply.attributes,
                });
            }
        }
        Err(Error::Delay)
    }

    /// Fetches what is missing of a file, into the cache where there is room, and into a reply.
    /// False when the file has changed so that the plan must be made anew.
    pub(crate) async fn fetch_missing(
        &self,
        node: &Arc<Node>,
        missing: &[ByteRange],
        plan: FetchPlan,
        mut reply: Option<&mut Reply>,
    ) -> Result<bool> {
        for range in missing {
            // What lies behind is a hole: the reply has zeros there already.
            let range = range.intersect(ByteRange::new(0, plan.published_end));
            for (block, within) in BlockIndex::split(range) {
                let reply = reply.as_deref_mut();
                if !self.fetch_block(node, block, within, plan, reply).await? {
                    return Ok(false);
                }
            }
        }
        // Also a read of nothing but holes must not have been overtaken.
        let state = node.lock();
        Ok(missing
            .iter()
            .all(|range| state.blocks.is_current(plan.token, *range)))
    }

    async fn fetch_block(
        &self,
        node: &Arc<Node>,
        block: BlockIndex,
        within: ByteRange,
        plan: FetchPlan,
        mut reply: Option<&mut Reply>,
    ) -> Result<bool> {
        let map = self.catalog.block_map(node.inode, block).await;
        let Some(map) = map.map_err(|error| self.store_failed(error))? else {
            return Ok(true);
        };
        let key = BlockKey {
            inode: node.inode,
            block,
        };
        let whole = ByteRange::at(block.start(), BLOCK_SIZE);
        // Each frame once, though small writes may have cut it into many extents.
        let mut fetched = HashSet::new();
        for (part, address) in map.lookup(within) {
            let Some(address) = address.filter(|address| fetched.insert(address_key(address)))
            else {
                continue;
            };
            // On its way it is memory beside the block buffer that it goes into.
            let _lease = self.cache.lease(u64::from(address.raw_len));
            let frame = match self.packs.fetch(key, address).await {
                Ok(frame) => frame,
                Err(error) => {
                    // A pack that has gone belongs to a map that has gone: the file was truncated, or
                    // these bytes were written anew and published since.
                    let overtaken = !node.lock().blocks.is_current(plan.token, whole);
                    if overtaken || self.is_replaced(key, part, address).await? {
                        return Ok(false);
                    }
                    return Err(self.fetch_failed(key, &error));
                }
            };
            let bytes = |range: ByteRange| {
                let start = range.start.checked_sub(frame.range.start)? as usize;
                frame.data.get(start..start + range.len() as usize)
            };
            let end = plan.published_end.saturating_sub(block.start());
            let live: Vec<ByteRange> = map
                .extents()
                .iter()
                .filter(|extent| extent.frame == *address)
                .map(|extent| extent.range.intersect(ByteRange::new(0, end)))
                .collect();
            if let Some(reply) = reply.as_deref_mut() {
                let wanted = live.iter().map(|range| range.intersect(within));
                for range in wanted.filter(|range| !range.is_empty()) {
                    let from = bytes(range).ok_or(Error::Io)?;
                    let at = (block.start() + range.start - reply.start) as usize;
                    let to = reply.data.get_mut(at..at + from.len()).ok_or(Error::Io)?;
                    to.copy_from_slice(from);
                }
            }
            // The rest of the frame comes for nothing: keep all of it that still counts, if there
            // is room without pushing writers back.
            let room = self.make_room(frame.range.len());
            let mut state = node.lock();
            if !state.blocks.is_current(plan.token, whole) {
                return Ok(false);
            }
            if room {
                for range in live {
                    if let Some(bytes) = bytes(range) {
                        state.blocks.fill(block.start() + range.start, bytes);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Whether the block map no longer refers to the frame at `address` for all of `part`.
    async fn is_replaced(
        &self,
        key: BlockKey,
        part: ByteRange,
        address: &FrameAddress,
    ) -> Result<bool> {
        let map = self.catalog.block_map(key.inode, key.block).await;
        let Some(map) = map.map_err(|error| self.store_failed(error))? else {
            return Ok(true);
        };
        let replaced = map.lookup(part).any(|(_, now)| now != Some(address));
        Ok(replaced)
    }

    fn fetch_failed(&self, block: BlockKey, error: &FetchError) -> Error {
        match error {
            FetchError::Unavailable(why) => {
                self.checkpoints.read_error(why);
                Error::Delay
            }
            FetchError::Damaged(why) => {
                tracing::error!(
                    "inode {}, bytes from {} on, cannot be read: {why}; the rest of the file still can",
                    block.inode,
                    block.block.start()
                );
                Error::Io
            }
        }
    }
}

/// Under which conditions fetched bytes count.
#[derive(Clone, Copy)]
pub(crate) struct FetchPlan {
    pub(crate) token: FetchToken,
    /// Where the published block maps stop to count.
    pub(crate) published_end: u64,
}

/// What of a range is known to be in the bucket and not in memory.
struct Counted {
    bytes: u64,
    range: ByteRange,
    /// What was not in memory.
    unknown: Vec<ByteRange>,
    token: FetchToken,
}

impl Counted {
    /// Whether that is still so.
    fn holds(&self, state: &NodeState) -> bool {
        state.blocks.is_current(self.token, self.range)
            && state.unknown_ranges(self.range) == self.unknown
    }
}

/// A reply to READ that is being put together.
pub(crate) struct Reply {
    data: Vec<u8>,
    /// Where in the file `data` begins.
    start: u64,
    eof: bool,
    attributes: forebay_vfs::Attributes,
}

/// What tells one frame from another.
pub(crate) fn address_key(address: &FrameAddress) -> (PackId, u32) {
    (address.pack, address.offset)
}

fn writable(kind: Kind) -> Result<()> {
    match kind {
        Kind::Regular => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}
