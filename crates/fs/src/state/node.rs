//! Nodes: the state of an inode in memory.
//!
//! Attributes and data of a file change together, so one lock guards both. The state that a closed checkpoint still needs
//! for its publication is kept beside the newest state, one for each closed checkpoint in which the object changed:
//!
//! ```text
//!              change in checkpoint N                    change in N+1, N closed
//!   clean ----------------------------> dirty in N ------------------------------> dirty in N+1,
//!     ^                                   |                                        N kept aside
//!     |          N published              |                 N published                 |
//!     +-----------------------------------+          dirty in N+1  <-------------------+
//! ```
//!
//! The checkpoint holds a node that is not clean, so the node stays in the table; every other one may leave it and is
//! loaded again from the metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_cache::{Cache, FileBlocks};
use forebay_meta::log_record::DataHeader;
use forebay_meta::record::{BlockMap, Content, InodeRecord, Kind, TruncatedBlocks, round_up};
use forebay_quota::{Amount, Charge, PublishedUsage, Reservation};
use forebay_reduction::compression::FileCompression;
use forebay_types::{BlockIndex, ByteRange, CheckpointId, Inode, Lsn, bounded_u32, to_usize};
use forebay_vfs::{Attributes, Error, Result, WccAttributes};
use parking_lot::{Mutex, MutexGuard};

use super::eager::{EarlyMaps, WriteStream};
use super::known_names::KnownNames;
use super::passed_cookies::PassedCookies;
use super::read_streams::Streams;
use forebay_view::convert;
use forebay_waits::{For, blocking, waiting};

/// The memory of a changed node: its state, its entries in the table and in the list of its checkpoint, its encoded
/// record.
pub(crate) const NODE_BYTES: u64 = size_of::<Node>() as u64 + 300;
/// The additional memory of a record while it is published: handles in the batch and in its copy, SlateDB's
/// entry in memory, and its bytes in a table that is being built and sent.
pub(super) const PUBLISHING_BYTES: u64 = 640;
/// How many more copies of a key and its value exist during a publication: in the block of a table that is being
/// built, in the part of the table, and in the bytes that are being sent.
pub(super) const PUBLISHING_COPIES: u64 = 3;

/// One object of the file system.
pub(crate) struct Node {
    pub(crate) inode: Inode,
    /// Held while a task looks at the names in this directory in order to change them; taken before any state lock, a
    /// parent's before its child's.
    names: tokio::sync::Mutex<()>,
    /// Never held across an await. Several are locked in the order of their inodes.
    state: Mutex<NodeState>,
    /// How its bytes are compressed.
    pub(crate) compression: FileCompression,
    /// Length of a symbolic link's path, in bytes; it never changes.
    target_bytes: u32,
    /// Where a name of it was seen last: a directory, and a cookie in it. A hint, which may be wrong.
    seen_in: AtomicU64,
    seen_at: AtomicU64,
    /// Set by every use, cleared by the sweep that looks for nodes to remove from the table.
    pub(super) used: AtomicBool,
}

/// The part of an object that changes.
pub(crate) struct NodeState {
    /// The newest attributes.
    pub(crate) record: InodeRecord,
    /// Whether it is deleted.
    pub(crate) removed: bool,
    /// Whether the bucket's metadata know this inode.
    pub(crate) published: bool,
    /// The bytes of a regular file that are in memory.
    pub(crate) blocks: FileBlocks,
    /// End of the last log record that concerns this object: COMMIT waits for it.
    pub(crate) last_lsn: Lsn,
    /// Every name that a directory has had, if all are known: the directory was made here and has stayed in memory.
    pub(crate) names: Option<Box<KnownNames>>,
    /// Cookies of a directory that listings may skip.
    pub(crate) passed: Option<Box<PassedCookies>>,
    /// The pattern of the reads.
    pub(crate) reads: Streams,
    /// The pattern of the writes.
    pub(crate) writes: WriteStream,
    /// Blocks that were uploaded before their checkpoint was published.
    pub(crate) early: EarlyMaps,
    /// Its counts in the accounts of the volume and of its tree.
    pub(crate) charge: Charge,
    /// Bytes of a regular file that were written and are no holes. Exact but for files with holes, where it may be
    /// too large until the next publication: by bytes written over published bytes that are not in memory, and by
    /// holes in a part that was cut off.
    space: u64,
    /// Its counts in the published state.
    published_usage: Option<PublishedUsage>,
    dirty: Option<CheckpointId>,
    /// Smallest size that a truncation gave the file in checkpoint `dirty`: the published block maps are valid below
    /// it only.
    floor: Option<u64>,
    /// Oldest first.
    closed: Vec<ClosedNode>,
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
        let published_usage = published.then(|| PublishedUsage::of(&record));
        let space = match record.kind() {
            Kind::Regular => record.used.min(record.size),
            _ => 0,
        };
        let target_bytes = match &record.content {
            Content::Symlink { target } => bounded_u32(target.len()),
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
                published_usage,
                dirty: None,
                floor: None,
                closed: Vec::new(),
            }),
            compression: FileCompression::default(),
            seen_in: AtomicU64::new(0),
            seen_at: AtomicU64::new(0),
            used: AtomicBool::new(true),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeState> {
        blocking(
            For::NodeLock,
            || self.state.try_lock(),
            || self.state.lock(),
        )
    }

    /// Locks the names of a directory, from the look at the old ones to the change.
    pub(crate) async fn lock_names(&self) -> tokio::sync::MutexGuard<'_, ()> {
        waiting(For::DirectoryLock, self.names.lock()).await
    }

    /// Notes that an entry of a directory, the one with this cookie, names the object.
    pub(crate) fn seen(&self, directory: Inode, cookie: u64) {
        self.seen_in.store(directory.0, Ordering::Relaxed);
        self.seen_at.store(cookie, Ordering::Relaxed);
    }

    /// A directory and the cookie of an entry of it, as it was [seen](Self::seen) last. The entry may be gone or name
    /// something else, and the two may be of different entries.
    pub(crate) fn last_seen(&self) -> Option<(Inode, u64)> {
        let directory = self.seen_in.load(Ordering::Relaxed);
        let cookie = self.seen_at.load(Ordering::Relaxed);
        (directory != 0 && cookie != 0).then_some((Inode(directory), cookie))
    }

    /// Memory of the node while a change of it is unpublished, with its publication. To the memory of every node, a
    /// symbolic link adds its path: in its record, in that record's encoding, and once for each copy of the
    /// publication.
    pub(crate) fn changed_bytes(&self) -> u64 {
        let paths = 2 + PUBLISHING_COPIES;
        NODE_BYTES + PUBLISHING_BYTES + u64::from(self.target_bytes) * paths
    }

    /// How many nodes it counts as in the table: as many as its memory would hold.
    pub(super) fn weight(&self) -> usize {
        1 + self.target_bytes as usize / to_usize(NODE_BYTES)
    }

    /// The state of an object that still has a name.
    pub(crate) fn lock_live(&self) -> Result<MutexGuard<'_, NodeState>> {
        let state = self.lock();
        if state.has_no_name() {
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

    /// Whether nothing of it is unpublished, so that the metadata can restore it.
    pub(super) fn is_forgettable(&self) -> bool {
        match self.state.try_lock() {
            Some(state) => state.dirty.is_none() && state.closed.is_empty(),
            None => false,
        }
    }
}

impl NodeState {
    /// To be called before every change, with the open checkpoint. Keeps aside the state that a closed one still needs.
    /// Returns whether this is the first change in `open`.
    pub(crate) fn begin_change(&mut self, open: CheckpointId) -> bool {
        match self.dirty {
            Some(dirty) if dirty == open => return false,
            Some(older) => {
                // Mostly there is one.
                self.closed.reserve_exact(1);
                self.closed.push(ClosedNode {
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

    /// Whether its last name was removed: it is deleted, or in the trash.
    pub(crate) fn has_no_name(&self) -> bool {
        self.removed || self.is_in_trash()
    }

    /// Whether it is in the trash.
    pub(crate) fn is_in_trash(&self) -> bool {
        !self.removed && self.record.is_in_trash()
    }

    /// Cuts the file off at `size`, in the checkpoint of the last [`begin_change`](NodeState::begin_change). The
    /// caller sets the size in the record.
    pub(crate) fn cut(&mut self, size: u64, open: CheckpointId) {
        self.blocks.truncate(size, open);
        self.early.cut(size, open);
        if self.has_holes() && self.space > 0 {
            // Only the block maps know how much of the rest is holes.
            self.charge.loosen(open);
        }
        self.space = self.space.min(size);
        self.floor = Some(self.floor.map_or(size, |floor| floor.min(size)));
    }

    /// The checkpoint of its last change, if that is unpublished.
    pub(crate) fn unpublished_in(&self) -> Option<CheckpointId> {
        self.dirty
    }

    /// The published block maps are valid below this; 0 if there are none.
    pub(crate) fn published_end(&self) -> u64 {
        if !self.published {
            return 0;
        }
        self.floor_since(None)
    }

    /// The smallest size that a truncation gave the file after this checkpoint, or in any unpublished one if `None`.
    fn floor_since(&self, checkpoint: Option<CheckpointId>) -> u64 {
        let closed = self.closed.iter().filter_map(|closed| {
            let is_later = Some(closed.checkpoint) > checkpoint;
            closed.floor.filter(|_| is_later)
        });
        let newest = self.floor.filter(|_| self.dirty > checkpoint);
        closed.chain(newest).min().unwrap_or(u64::MAX)
    }

    /// Whether bytes that are not in memory may be in the bucket.
    pub(crate) fn is_in_bucket(&self) -> bool {
        self.published || !self.early.is_empty()
    }

    /// The map of a block that was uploaded eagerly, as far as it is still valid. It takes precedence over the
    /// published one.
    pub(crate) fn early_map(&self, block: BlockIndex) -> Option<BlockMap> {
        let (checkpoint, map) = self.early.newest(block)?;
        let mut map = map.clone();
        // In its own checkpoint the map was truncated already.
        let floor = self.floor_since(Some(checkpoint));
        map.truncate(floor.saturating_sub(block.start()));
        Some(map)
    }

    /// The object as it was at the end of a closed checkpoint in which it changed.
    pub(crate) fn as_of(&self, checkpoint: CheckpointId) -> ClosedNode {
        let mut closed = self.closed.iter();
        match closed.find(|closed| closed.checkpoint == checkpoint) {
            Some(closed) => closed.clone(),
            None => ClosedNode {
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

    /// Parts of `range` before the end of the file that may not be counted yet.
    pub(crate) fn unknown_ranges(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut unknown = Vec::new();
        if self.has_holes() {
            let inside = range.intersect(ByteRange::new(0, self.record.size));
            if !inside.is_empty() {
                self.blocks.unknown(inside, &mut unknown);
            }
        }
        unknown
    }

    /// The space of the file after a write of `range`, of which `counted` bytes that are not in memory are known to
    /// be counted already.
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

    /// The counts of a file that takes `space` bytes.
    pub(crate) fn amount_of(space: u64) -> Amount {
        Amount {
            bytes: round_up(space),
            files: 1,
        }
    }

    /// The space of the file, in bytes.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }

    /// Sets the space of the file. The next [`settle`](NodeState::settle) counts it.
    pub(crate) fn set_space(&mut self, space: u64) {
        self.space = space;
    }

    /// Brings the accounts up to date with the state of the object.
    pub(crate) fn settle(&mut self, reserved: Option<Reservation>) {
        let amount = if self.removed {
            Amount::default()
        } else {
            NodeState::amount_of(self.space)
        };
        self.charge.settle(amount, reserved);
    }

    /// Its counts in the published state.
    pub(crate) fn published_usage(&self) -> Option<PublishedUsage> {
        self.published_usage
    }

    /// Notes that the checkpoint is published; the file's published block maps hold `used` bytes, those of
    /// `truncated` are not valid, and `usage` holds its published counts.
    pub(crate) fn publish(
        &mut self,
        checkpoint: CheckpointId,
        used: u64,
        truncated: TruncatedBlocks,
        usage: Option<PublishedUsage>,
    ) {
        self.closed.retain(|closed| closed.checkpoint > checkpoint);
        self.closed.shrink_to_fit();
        for later in &mut self.closed {
            later.published = true;
            later.record.used = used;
            later.record.truncated = truncated.clone();
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
        self.published_usage = usage;
        if !self.removed && self.record.kind() == Kind::Regular {
            // Bytes that were cut off since do not count, and all bytes that were written since may count.
            let used = used.min(self.published_end());
            let since = self.blocks.dirty_bytes() + self.early.bytes();
            let most = used.saturating_add(since);
            self.space = self.space.max(used).min(most).min(self.record.size);
            self.settle(None);
        }
    }

    /// Notes that the published maps of blocks that are not valid were collected; those of `left` remain.
    pub(crate) fn truncated_collected(&mut self, left: &TruncatedBlocks) {
        let closed = self.closed.iter_mut().map(|closed| &mut closed.record);
        for record in closed.chain([&mut self.record]) {
            record.truncated = left.clone();
        }
    }

    /// Makes the write in memory; `counted` of its bytes are known to take space already, and `record` is its record in
    /// the log, if memory may be freed of its bytes while the log has them. Returns the block that it has filled, if any.
    pub(crate) fn apply_write(
        &mut self,
        header: &DataHeader,
        data: &[u8],
        counted: u64,
        open: CheckpointId,
        record: Option<Lsn>,
    ) -> Option<BlockIndex> {
        let range = ByteRange::at(header.offset, data.len() as u64);
        if counted == 0 && self.is_in_bucket() && !self.unknown_ranges(range).is_empty() {
            // Some of these bytes may be in the bucket.
            self.charge.loosen(open);
        }
        self.set_space(self.space_after(range, counted));
        let filled = self.blocks.write(header.offset, data, open, record);
        let record = &mut self.record;
        record.size = record.size.max(header.offset + data.len() as u64);
        record.mode = header.mode;
        record.mtime = header.time;
        record.ctime = record.mtime;
        filled
    }
}

/// Locks several nodes in the order that all tasks keep. The same node may be given twice.
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
        // Callers ask only for nodes of the same operation.
        &mut found.expect("the node was locked").1
    }
}
