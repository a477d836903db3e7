//! Gives a file the content of frames that are in the bucket already.

use std::sync::Arc;

use forebay_meta::log_record::encode_truncate;
use forebay_meta::record::{BlockMap, InodeRecord};
use forebay_types::{BlockIndex, CheckpointId, MAX_FILE_SIZE};
use forebay_vfs::{Error, Result};
use forebay_view::convert;
use forebay_wal::RecordKind;

use super::Files;
use super::data::writable;
use crate::state::{Node, NodeState, Position};

/// The part of a file's content that one change gives it.
pub(crate) struct Graft {
    /// Size of the whole file.
    pub(crate) size: u64,
    /// Where the part begins; the file has nothing behind that.
    pub(crate) from: BlockIndex,
    /// The maps of its blocks, ascending. Their frames name the places that they were written for.
    pub(crate) maps: Vec<(BlockIndex, BlockMap)>,
    /// The checkpoint for which the packs of these frames are pinned.
    pub(crate) pinned: CheckpointId,
}

impl Files {
    /// Replaces everything in a file behind the start of a part by that part: it counts in the quotas like a write, and
    /// is published with the open checkpoint. `false` if that is not the pinned one any more: then the file has a hole
    /// there, and the part is to be pinned and grafted again.
    ///
    /// The log does not have the content: a crash before the publication leaves a hole.
    pub(crate) async fn graft(&self, node: &Arc<Node>, part: &Graft) -> Result<bool> {
        if part.size > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        let bytes: u64 = part.maps.iter().map(|(_, map)| map.mapped_bytes()).sum();
        self.state
            .retry(|| {
                let mut state = node.lock_live()?;
                let state = &mut *state;
                writable(state.record.kind())?;
                let start = part.from.start();
                let before = state.space().min(start);
                let reserved = state.charge.reserve(NodeState::amount_of(before + bytes))?;
                let now = convert::record_time(self.state.now());
                let record = InodeRecord {
                    size: part.size,
                    mtime: now,
                    ctime: now,
                    ..state.record.clone()
                };
                let payload = encode_truncate(node.inode, &record);
                let mut is_pinned = false;
                let made = self.state.record(
                    RecordKind::Truncate,
                    &[&payload],
                    |open, Position { end, .. }| {
                        let first = open.begin_change(node, state);
                        state.cut(start, open.id);
                        state.record = record;
                        state.last_lsn = end;
                        is_pinned = open.id == part.pinned;
                        if is_pinned {
                            for (block, map) in &part.maps {
                                state.early.insert(open.id, *block, map.clone());
                            }
                            state.set_space(before + bytes);
                        }
                        state.settle(Some(reserved));
                        first
                    },
                );
                made.map(|_| is_pinned)
            })
            .await
    }
}
