//! WRITE and COMMIT.

use std::sync::Arc;

use forebay_cache::FetchToken;
use forebay_meta::log_record::DataHeader;
use forebay_meta::record::Kind;
use forebay_types::{ByteRange, Inode, Lsn, MAX_FILE_SIZE};
use forebay_vfs::{Change, Credentials, Error, Result, permission};
use forebay_view::convert::{self, owned};
use forebay_waits::{For, waiting};
use forebay_wal::RecordKind;

use super::Files;
use crate::Compression;
use crate::files::durability::Recorded;
use crate::state::{FetchPlan, MayUpload, Node, NodeState, Position, by_block};

impl Files {
    pub(crate) async fn write(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        data: &[u8],
        compression: Compression,
    ) -> Result<Recorded<Change>> {
        let node = self.state.node(inode).await?;
        let end_offset = offset
            .checked_add(data.len() as u64)
            .ok_or(Error::FileTooLarge)?;
        if end_offset > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        self.state.pace(caller.client, data.len() as u64).await?;
        let memory = &self.state.memory;
        let admission = memory.admit(caller.client, data.len() as u64).await?;
        let (end, change) = match self.write_once(caller, &node, offset, data, None).await {
            Err(Error::NoSpace | Error::Quota) => {
                self.write_at_limit(caller, &node, offset, data).await
            }
            result => result,
        }?;
        node.compression.written_through(compression);
        self.state.close_grown(end);
        // The cache counts the bytes by now; a write that waits for the disk keeps no room from others.
        drop(admission);
        if memory.cache.dirty_bytes() >= self.state.config.checkpoint_bytes {
            self.state.signals.wake_publisher();
        }
        Ok(Recorded { end, reply: change })
    }

    /// A write for which there seems to be no room: finds out how much it really needs.
    async fn write_at_limit(
        &self,
        caller: &Credentials,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
    ) -> Result<(Lsn, Change)> {
        let range = ByteRange::at(offset, data.len() as u64);
        let counted = self.counted(node, range).await?;
        let result = self.write_once(caller, node, offset, data, counted).await;
        if !matches!(result, Err(Error::NoSpace | Error::Quota))
            || !node.lock().charge.is_loose(self.publisher.last())
        {
            return result;
        }
        // Files with holes may be counted with too many bytes until they are published.
        let published = async { self.publisher.flush().await.map_err(|_| Error::Delay) };
        waiting(For::Bucket, self.state.memory.bounded(published)).await?;
        let counted = self.counted(node, range).await?;
        self.write_once(caller, node, offset, data, counted).await
    }

    /// How many bytes of `range` are in the bucket and not in memory: overwriting them takes no additional space.
    async fn counted(&self, node: &Arc<Node>, range: ByteRange) -> Result<Option<Counted>> {
        let (unknown, plan) = {
            let state = node.lock_live()?;
            let unknown = state.unknown_ranges(range);
            let plan = FetchPlan::new(&state, &unknown);
            (unknown, plan)
        };
        let mut bytes = 0;
        for (block, gaps) in by_block(&unknown) {
            let Some(map) = self.bucket_map(node, block, &plan).await? else {
                continue;
            };
            let parts = gaps.iter().flat_map(|gap| map.lookup(*gap));
            let live = parts.filter(|(_, frame)| frame.is_some());
            bytes += live.map(|(part, _)| part.len()).sum::<u64>();
        }
        Ok((bytes > 0).then_some(Counted {
            bytes,
            range,
            unknown,
            token: plan.token,
        }))
    }

    /// Records a write and makes it in memory; returns the position after it.
    async fn write_once(
        &self,
        caller: &Credentials,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
        counted: Option<Counted>,
    ) -> Result<(Lsn, Change)> {
        let range = ByteRange::at(offset, data.len() as u64);
        self.state
            .retry(|| {
                let mut state = node.lock_live()?;
                writable(state.record.kind())?;
                permission::may_write(owned(&state.record), caller)?;
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
                    time: convert::record_time(self.state.now()),
                    mode: permission::mode_after_write(state.record.mode, caller),
                };
                let end = self.state.record(
                    RecordKind::Data,
                    &[&header.encode(), data],
                    |open, Position { record, end }| {
                        let first = open.begin_change(node, &mut state);
                        let filled = state.apply_write(&header, data, counted, open.id, record);
                        state.last_lsn = end;
                        state.settle(Some(reserved));
                        let eager = &self.state.eager;
                        match state.writes.goes_on(range, self.state.config.early_bytes) {
                            MayUpload::Nothing => {}
                            MayUpload::Filled => eager.offer(node, filled),
                            MayUpload::All(run) => {
                                eager.offer(node, state.blocks.whole_in(run, open.id))
                            }
                        }
                        first
                    },
                )?;
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

    /// Returns the file and the position for which its COMMIT must wait.
    pub(crate) async fn commit(&self, inode: Inode) -> Result<Recorded<Arc<Node>>> {
        let node = self.state.node(inode).await?;
        let end = {
            let state = node.lock_live()?;
            writable(state.record.kind())?;
            state.last_lsn
        };
        Ok(Recorded { end, reply: node })
    }
}

/// Bytes of a range that are known to be in the bucket and not in memory.
struct Counted {
    bytes: u64,
    range: ByteRange,
    /// The ranges that were not in memory.
    unknown: Vec<ByteRange>,
    token: FetchToken,
}

impl Counted {
    /// Whether the count is still valid.
    fn holds(&self, state: &NodeState) -> bool {
        state.blocks.is_current(self.token, self.range)
            && state.unknown_ranges(self.range) == self.unknown
    }
}

pub(crate) fn writable(kind: Kind) -> Result<()> {
    match kind {
        Kind::Regular => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}
