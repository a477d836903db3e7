//! Nodes: what is known in memory about an inode.
//!
//! Attributes and data of a file change together, so one lock guards both. What a checkpoint that
//! is being published still needs is kept beside the newest state:
//!
//! ```text
//!              change in checkpoint N                    change in N+1, N closed
//!   clean ----------------------------> dirty in N ------------------------------> dirty in N+1,
//!     ^                                   |                                        N kept aside
//!     |          N published              |                 N published                 |
//!     +-----------------------------------+          dirty in N+1  <-------------------+
//! ```
//!
//! A node that is not clean is held by its checkpoint and therefore stays in the table; every
//! other one may leave it and is loaded again from the metadata.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_cache::{Cache, FileBlocks};
use forebay_meta::log_record::DataHeader;
use forebay_meta::record::{BlockMap, Content, InodeRecord, Kind, TruncatedBlocks, round_up};
use forebay_quota::{Amount, Charge, Reservation, Share};
use forebay_reduction::compression::FileCompression;
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Inode, Lsn};
use forebay_vfs::{Attributes, Error, Result, WccAttributes};
use parking_lot::{Mutex, MutexGuard};

use super::eager::{EarlyMaps, WriteStream};
use super::known_names::KnownNames;
use super::passed_cookies::PassedCookies;
use super::read_streams::Streams;
use crate::convert;

/// The memory of a changed node: its state, its places in the table and in the list of its checkpoint, its record as
/// bytes.
pub(crate) const NODE_BYTES: u64 = size_of::<Node>() as u64 + 300;
/// The additional memory of a record while it is published: handles in the batch and in its copy, SlateDB's
/// entry in memory, and its bytes in a table that is being built and sent.
pub(super) const PUBLISHING_BYTES: u64 = 640;
/// How many more copies of a key and its value exist during a publication: in the block of a table that is being built, in the
/// part of the table, and in the bytes that are being sent.
pub(super) const PUBLISHING_COPIES: u64 = 3;

/// One object of the file system.
pub(crate) struct Node {
    pub(crate) inode: Inode,
    /// Held while the names in this directory are looked at in order to change them; taken before
    /// any state lock, a parent's before its child's.
    pub(crate) names: tokio::sync::Mutex<()>,
    /// Never held across an await. Several are taken in the order of their inodes.
    state: Mutex<NodeState>,
    /// How its bytes are compressed.
    pub(crate) compression: FileCompression,
    /// Bytes of the path that a symbolic link holds; it never changes.
    target_bytes: u32,
    /// Set by every use, cleared by the sweep that looks for nodes to forget.
    pub(super) used: AtomicBool,
}

/// What changes about an object.
pub(crate) struct NodeState {
    /// The newest attributes.
    pub(crate) record: InodeRecord,
    /// Its last name is gone.
    pub(crate) removed: bool,
    /// Whether the bucket's metadata know this inode.
    pub(crate) published: bool,
    /// The bytes of a regular file that are known here.
    pub(crate) blocks: FileBlocks,
    /// End of the last log record that concerns this object: what COMMIT waits for.
    pub(crate) last_lsn: Lsn,
    /// Every name that a directory has had, where that is known: of one that was made here and has stayed in memory.
    pub(crate) names: Option<Box<KnownNames>>,
    /// Cookies of a directory that listings need not look at.
    pub(crate) passed: Option<Box<PassedCookies>>,
    /// How reads follow one another.
    pub(crate) reads: Streams,
    /// How writes do.
    pub(crate) writes: WriteStream,
    /// Blocks that are in the bucket before their checkpoint is published.
    pub(crate) early: EarlyMaps,
    /// What it counts in the accounts of the volume and of its tree.
    pub(crate) charge: Charge,
    /// Bytes of a regular file that were written and are no holes. Exact but for files with holes,
    /// where it may be more until the next publication: by what was written over published bytes that
    /// are not in memory, and by holes of what was cut off.
    space: u64,
    /// What the bucket's counts hold for it.
    share: Option<Share>,
    dirty: Option<CheckpointId>,
    /// Smallest size that a truncate gave the file in checkpoint `dirty`: nothing of the published
    /// block maps counts at or behind it.
    floor: Option<u64>,
    closed: Option<ClosedNode>,
}

/// An object as it was when a checkpoint closed that is not published yet.
#[derive(Clone)]
pub(crate) struct ClosedNode {
    checkpoint: CheckpointId,
    pub(crate) record: InodeRecord,
    pub(crate) removed: bool,
    pub(crate) published: bool,
    pub(crate) floor: Option<u64>,
}

impl Node {
    pub(crate) fn new(
        inode: Inode,
        record: InodeRecord,
        published: bool,
        cache: Arc<Cache>,
        charge: Charge,
    ) -> Arc<Node> {
        let share = published.then(|| Share::of(&record));
        let space = match record.kind() {
            Kind::Regular => record.used.min(record.size),
            _ => 0,
        };
        let target_bytes = match &record.content {
            Content::Symlink { target } => target.len() as u32,
            _ => 0,
        };
        Arc::new(Node {
            inode,
            target_bytes,
            names: tokio::sync::Mutex::new(()),
            state: Mutex::new(NodeState {
                record,
                removed: false,
                published,
                blocks: FileBlocks::new(inode, cache),
                last_lsn: Lsn::ZERO,
                names: None,
                passed: None,
                reads: Streams::default(),
                writes: WriteStream::default(),
                early: EarlyMaps::default(),
                charge,
                space,
                share,
                dirty: None,
                floor: None,
                closed: None,
            }),
            compression: FileCompression::default(),
            used: AtomicBool::new(true),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock()
    }

    /// Memory that it takes while a change of it is unpublished, with its publication: what every node takes, and of
    /// a symbolic link its path, in its own record, in that record's encoding, and as often as the publication has it.
    pub(crate) fn changed_bytes(&self) -> u64 {
        let paths = 2 + PUBLISHING_COPIES;
        NODE_BYTES + PUBLISHING_BYTES + u64::from(self.target_bytes) * paths
    }

    /// As how many nodes it counts in the table: as those whose memory it takes.
    pub(super) fn weight(&self) -> usize {
        1 + self.target_bytes as usize / NODE_BYTES as usize
    }

    /// The state of an object that still has a name.
    pub(crate) fn lock_live(&self) -> Result<MutexGuard<'_, NodeState>> {
        let state = self.state.lock();
        if state.removed {
            Err(Error::Stale)
        } else {
            Ok(state)
        }
    }

    /// The state of a directory that still has a name.
    pub(crate) fn lock_directory(&self) -> Result<MutexGuard<'_, NodeState>> {
        let state = self.lock_live()?;
        if state.record.kind() == Kind::Directory {
            Ok(state)
        } else {
            Err(Error::NotDirectory)
        }
    }

    pub(crate) fn attributes(&self, state: &NodeState) -> Attributes {
        convert::attributes(self.inode, &state.record, round_up(state.space))
    }

    pub(crate) fn wcc(&self, state: &NodeState) -> WccAttributes {
        WccAttributes::from(&self.attributes(state))
    }

    /// Nothing of it is unpublished, so that the metadata can give it again.
    pub(super) fn is_forgettable(&self) -> bool {
        match self.state.try_lock() {
            Some(state) => state.dirty.is_none() && state.closed.is_none(),
            None => false,
        }
    }
}

impl NodeState {
    /// To be called before every change, with the checkpoint that is open. Keeps aside what a
    /// closed one needs. Says whether this is the first change in `open`.
    pub(crate) fn begin_change(&mut self, open: CheckpointId) -> bool {
        match self.dirty {
            Some(dirty) if dirty == open => return false,
            Some(older) => {
                self.closed = Some(ClosedNode {
                    checkpoint: older,
                    record: self.record.clone(),
                    removed: self.removed,
                    published: self.published,
                    floor: self.floor.take(),
                });
            }
            None => {}
        }
        self.dirty = Some(open);
        true
    }

    /// Cuts the file off at `size`, in the checkpoint that was touched last. The caller sets the
    /// size in the record.
    pub(crate) fn cut(&mut self, size: u64, open: CheckpointId) {
        self.blocks.truncate(size, open);
        self.early.cut(size, open);
        if self.has_holes() && self.space > 0 {
            // How much of what is left are holes, the block maps know.
            self.charge.loosen(open);
        }
        self.space = self.space.min(size);
        self.floor = Some(self.floor.map_or(size, |floor| floor.min(size)));
    }

    /// Where the published block maps stop to count; 0 if there are none.
    pub(crate) fn published_end(&self) -> u64 {
        if !self.published {
            return 0;
        }
        let closed = self.closed.as_ref().and_then(|closed| closed.floor);
        self.floor
            .unwrap_or(u64::MAX)
            .min(closed.unwrap_or(u64::MAX))
    }

    /// Whether bytes that are not in memory may be in the bucket.
    pub(crate) fn is_in_bucket(&self) -> bool {
        self.published || !self.early.is_empty()
    }

    /// Where a block lies that has left early, as far as it still counts. It stands before what is published.
    pub(crate) fn early_map(&self, block: BlockIndex) -> Option<BlockMap> {
        let (checkpoint, map) = self.early.newest(block)?;
        let mut map = map.clone();
        // Of its own checkpoint it knows by itself what was cut off.
        if self.dirty > Some(checkpoint)
            && let Some(floor) = self.floor
        {
            map.truncate(floor.saturating_sub(block.start()));
        }
        Some(map)
    }

    /// The object as it was at the end of a closed checkpoint in which it changed.
    pub(crate) fn as_of(&self, checkpoint: CheckpointId) -> ClosedNode {
        match &self.closed {
            Some(closed) if closed.checkpoint == checkpoint => closed.clone(),
            _ => ClosedNode {
                checkpoint,
                record: self.record.clone(),
                removed: self.removed,
                published: self.published,
                floor: self.floor,
            },
        }
    }

    /// Whether some bytes before its end may never have been written.
    pub(crate) fn has_holes(&self) -> bool {
        self.space < self.record.size
    }

    /// Bytes of `range` before the end of the file that are not known to count already.
    pub(crate) fn unknown_ranges(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut unknown = Vec::new();
        if self.has_holes() {
            let inside = range.intersect(ByteRange::new(0, self.record.size));
            if !inside.is_empty() {
                self.blocks.uncovered(inside, &mut unknown);
            }
        }
        unknown
    }

    /// What the file takes when `range` is written, `counted` of whose bytes are known to count
    /// already though they are not in memory.
    pub(crate) fn space_after(&self, range: ByteRange, counted: u64) -> u64 {
        let holes = self.record.size.saturating_sub(self.space);
        let unknown: u64 = self
            .unknown_ranges(range)
            .iter()
            .map(|range| range.len())
            .sum();
        let inside = range.intersect(ByteRange::new(0, self.record.size));
        let behind = range.len() - inside.len();
        self.space + unknown.saturating_sub(counted).min(holes) + behind
    }

    /// What the file counts when it takes `space` bytes.
    pub(crate) fn amount_of(space: u64) -> Amount {
        Amount {
            bytes: round_up(space),
            files: 1,
        }
    }

    /// The file takes this much. Counted by the next [`settle`](NodeState::settle).
    pub(crate) fn set_space(&mut self, space: u64) {
        self.space = space;
    }

    /// Brings the accounts up to date with what the object is now.
    pub(crate) fn settle(&mut self, reserved: Option<Reservation>) {
        let amount = if self.removed {
            Amount::default()
        } else {
            NodeState::amount_of(self.space)
        };
        self.charge.settle(amount, reserved);
    }

    /// What the bucket's counts hold for it.
    pub(crate) fn share(&self) -> Option<Share> {
        self.share
    }

    /// The checkpoint is in the bucket; the file's block maps hold `used` bytes there, those of `truncated` do not
    /// count, and the counts hold `share` for it.
    pub(crate) fn publish(
        &mut self,
        checkpoint: CheckpointId,
        used: u64,
        truncated: TruncatedBlocks,
        share: Option<Share>,
    ) {
        if self
            .closed
            .as_ref()
            .is_some_and(|closed| closed.checkpoint == checkpoint)
        {
            self.closed = None;
        }
        if self.dirty == Some(checkpoint) {
            self.dirty = None;
            self.floor = None;
        }
        self.published = true;
        self.record.used = used;
        self.record.truncated = truncated;
        self.blocks.published(checkpoint);
        self.early.published(checkpoint);
        self.share = share;
        if !self.removed && self.record.kind() == Kind::Regular {
            // Of what was cut off since nothing counts, and of what was written since all may.
            let used = used.min(self.published_end());
            let since = self.blocks.dirty_bytes() + self.early.bytes();
            let most = used.saturating_add(since);
            self.space = self.space.max(used).min(most).min(self.record.size);
            self.settle(None);
        }
    }

    /// Makes the write in memory, of which `counted` bytes are known to take space already. Gives the block that it
    /// has filled, if there is one.
    pub(crate) fn apply_write(
        &mut self,
        header: &DataHeader,
        data: &[u8],
        counted: u64,
        open: CheckpointId,
    ) -> Option<BlockIndex> {
        let range = ByteRange::at(header.offset, data.len() as u64);
        if counted == 0 && self.is_in_bucket() && !self.unknown_ranges(range).is_empty() {
            // Some of it may be in the bucket.
            self.charge.loosen(open);
        }
        self.set_space(self.space_after(range, counted));
        let filled = self.blocks.write(header.offset, data, open);
        let record = &mut self.record;
        record.size = record.size.max(header.offset + data.len() as u64);
        record.mode = header.mode;
        record.mtime = header.time;
        record.ctime = record.mtime;
        filled
    }
}

/// Locks several nodes in the order that everybody keeps. The same node may be given twice.
pub(crate) struct Locked<'a> {
    guards: Vec<(Inode, MutexGuard<'a, NodeState>)>,
}

impl<'a> Locked<'a> {
    pub(crate) fn all(nodes: &[&'a Arc<Node>]) -> Locked<'a> {
        let mut nodes: Vec<&Arc<Node>> = nodes.to_vec();
        nodes.sort_by_key(|node| node.inode);
        nodes.dedup_by_key(|node| node.inode);
        Locked {
            guards: nodes
                .into_iter()
                .map(|node| (node.inode, node.lock()))
                .collect(),
        }
    }

    /// The state of a node that was given to [`Locked::all`].
    pub(crate) fn of(&mut self, node: &Node) -> &mut NodeState {
        let found = self
            .guards
            .iter_mut()
            .find(|(inode, _)| *inode == node.inode);
        // Only nodes of the same operation are asked for.
        &mut found.expect("the node was locked").1
    }
}
