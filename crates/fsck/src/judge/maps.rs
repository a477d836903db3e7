//! Judges block maps against their files, and the frames that they refer to.

use std::collections::BTreeSet;

use forebay_meta::BlockMap;
use forebay_meta::record::{FrameAddress, Kind};
use forebay_pack::FrameRef;
use forebay_pack::index::PACK_HEADER_LEN;
use forebay_types::{BLOCK_SIZE, BlockKey, Inode};

use super::objects::{Row, What};
use super::packs::Packs;
use super::totals::Totals;
use crate::finding::{Finding, Sink};

/// The frame of a block map's extent, as its pack describes it.
pub(crate) fn frame_ref(frame: &FrameAddress) -> FrameRef {
    FrameRef {
        pack: frame.pack,
        offset: frame.offset,
        stored_len: frame.stored_len,
        start: frame.origin.map_or(frame.raw_start, |origin| origin.start),
        raw_len: frame.raw_len,
        crc32: frame.crc32,
    }
}

/// The file whose block maps are being read.
struct Current {
    inode: Inode,
    /// Its row, if it has one.
    row: Option<usize>,
    bytes: u64,
    blocks: u64,
    unreadable: bool,
}

/// Judges the block maps of the objects of a range. Takes them in the order of their keys.
pub(crate) struct Maps<'a> {
    rows: &'a [Row],
    /// The first row that is not compared yet.
    at: usize,
    current: Option<Current>,
}

impl<'a> Maps<'a> {
    pub(crate) fn new(rows: &'a [Row]) -> Maps<'a> {
        Maps {
            rows,
            at: 0,
            current: None,
        }
    }

    /// Takes a block map; `None` if it cannot be read.
    pub(crate) fn block(
        &mut self,
        key: BlockKey,
        map: Option<&BlockMap>,
        (totals, packs): (&mut Totals, &mut Packs),
        sink: &mut dyn Sink,
    ) {
        let rows = self.rows;
        let current = self.file(key.inode, sink);
        current.blocks += 1;
        let Some(map) = map else {
            current.unreadable = true;
            totals.unreadable_map();
            return;
        };
        let mapped = map.mapped_bytes();
        totals.block_map(mapped);
        let row = current.row.and_then(|at| rows.get(at));
        // Truncated blocks wait for collection: packs and volume count them, their file does not.
        if row.is_none_or(|row| !row.truncated.contains(key.block)) {
            current.bytes = current.bytes.saturating_add(mapped);
            if let Some(row) = row {
                judge_place(row, key, map, sink);
            }
        }
        refer(key, map, packs, true, sink);
    }

    /// Called after the last block map of the range.
    pub(crate) fn finish(mut self, sink: &mut dyn Sink) {
        self.leave(sink);
        self.pass(None, sink);
    }

    /// The file of the next block map.
    fn file(&mut self, inode: Inode, sink: &mut dyn Sink) -> &mut Current {
        if self
            .current
            .as_ref()
            .is_none_or(|current| current.inode != inode)
        {
            self.leave(sink);
            self.pass(Some(inode), sink);
        }
        let row = self.rows.get(self.at).filter(|row| row.inode == inode);
        self.current.get_or_insert(Current {
            inode,
            row: row.map(|_| self.at),
            bytes: 0,
            blocks: 0,
            unreadable: false,
        })
    }

    /// Compares objects without block maps that come before `inode`.
    fn pass(&mut self, inode: Option<Inode>, sink: &mut dyn Sink) {
        while let Some(row) = self.rows.get(self.at)
            && inode.is_none_or(|inode| row.inode < inode)
        {
            compare(row, 0, sink);
            self.at += 1;
        }
    }

    /// Compares the current file, after its last block map.
    fn leave(&mut self, sink: &mut dyn Sink) {
        let Some(current) = self.current.take() else {
            return;
        };
        let row = current.row.and_then(|at| self.rows.get(at));
        let why = match row.map(|row| row.what) {
            None => Some("the inode does not exist"),
            Some(What::Object(Kind::Regular) | What::Unreadable | What::Garbage) => None,
            Some(What::Object(_)) => Some("it is not a file"),
        };
        if let Some(why) = why {
            let Current { inode, blocks, .. } = current;
            sink.found(Finding::BlocksWithoutFile { inode, blocks, why });
        }
        if let Some(row) = row {
            if !current.unreadable {
                compare(row, current.bytes, sink);
            }
            self.at += 1;
        }
    }
}

fn compare(row: &Row, is: u64, sink: &mut dyn Sink) {
    if row.what == What::Object(Kind::Regular) && row.used != is {
        sink.found(Finding::WrongUsed {
            inode: row.inode,
            says: row.used,
            is,
        });
    }
}

/// Reports a block that lies where its file has no bytes.
fn judge_place(row: &Row, key: BlockKey, map: &BlockMap, sink: &mut dyn Sink) {
    let (inode, block) = (key.inode, key.block.0);
    if row.what == What::Garbage && block < row.used {
        let first_block = row.used;
        sink.found(Finding::CollectedBlock {
            inode,
            block,
            first_block,
        });
    }
    // A file that was truncated and then removed before either was published leaves its maps as they were: the
    // collector takes them whole.
    if row.what != What::Object(Kind::Regular) {
        return;
    }
    let begins = key.block.0.checked_mul(BLOCK_SIZE);
    let last = map.extents().last().map_or(0, |extent| extent.range.end);
    if begins.is_none_or(|begins| begins.saturating_add(last) > row.size) {
        let size = row.size;
        sink.found(Finding::BlockBehindEnd { inode, block, size });
    }
}

/// Passes the references of a block map to `packs`, and reports the impossible ones to `sink`. Each range of packs
/// receives all block maps; errors of a frame that do not depend on its pack are reported with the first range.
pub(crate) fn refer(
    key: BlockKey,
    map: &BlockMap,
    packs: &mut Packs,
    is_first: bool,
    sink: &mut dyn Sink,
) {
    let mut before = None;
    let mut shares = BTreeSet::new();
    for extent in map.extents() {
        let frame = &extent.frame;
        packs.refer(frame, extent.range.len());
        if frame.origin.is_some() && shares.insert(frame.pack) {
            packs.shared(frame.pack);
        }
        if before == Some(frame) {
            continue;
        }
        before = Some(frame);
        let why = match impossible(frame) {
            Some(why) => Some(why).filter(|_| is_first),
            None if is_behind(frame, packs) => Some("it is behind the frames of its pack"),
            None => None,
        };
        if let Some(why) = why {
            sink.found(Finding::ImpossibleFrame {
                inode: key.inode,
                block: key.block.0,
                pack: frame.pack,
                offset: frame.offset,
                why,
            });
        }
    }
}

pub(crate) fn impossible(frame: &FrameAddress) -> Option<&'static str> {
    if !frame_ref(frame).is_possible() {
        return Some("no frame has such lengths");
    }
    if (frame.offset as usize) < PACK_HEADER_LEN {
        return Some("it is in the header of its pack");
    }
    None
}

fn is_behind(frame: &FrameAddress, packs: &Packs) -> bool {
    let end = u64::from(frame.offset) + u64::from(frame.stored_len);
    packs
        .frames_end(frame.pack)
        .is_some_and(|limit| end > limit)
}
