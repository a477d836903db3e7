//! The model: a flag, a value and the position of a record for every byte.

use crate::places::{SPACE, block_of, cells_of, offset_of};
use forebay_types::{BlockIndex, CheckpointId, Lsn};
use std::ops::Range;

/// The content of bytes that `read` must not change.
pub(crate) const UNTOUCHED: u8 = 0xEE;

/// Where the newest content of a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the bucket, or nowhere.
    Unknown,
    Memory,
    /// In the log alone.
    Log,
}

/// One checkpoint in the model.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) id: CheckpointId,
    pub(crate) dirty: Vec<bool>,
    /// The records of the dirty bytes.
    pub(crate) records: Vec<Option<Lsn>>,
    /// The file's bytes when it closed.
    pub(crate) bytes: Vec<u8>,
    /// Blocks whose current bytes of this checkpoint are in an image that was not put back.
    pub(crate) handed_over: [bool; 2],
}

impl Checkpoint {
    fn new(id: CheckpointId) -> Checkpoint {
        Checkpoint {
            id,
            dirty: vec![false; SPACE],
            records: vec![None; SPACE],
            bytes: Vec::new(),
            handed_over: [false; 2],
        }
    }

    pub(crate) fn has_dirty(&self, block: BlockIndex) -> bool {
        let cells = &self.dirty[cells_of(block)];
        // A comparison of slices compares memory even without optimization.
        *cells != [false; SPACE][..cells.len()]
    }

    pub(crate) fn dirty_cells(&self, block: BlockIndex) -> impl Iterator<Item = usize> + '_ {
        cells_of(block).filter(move |cell| self.dirty[*cell])
    }

    fn clean(&mut self, cell: usize) {
        self.dirty[cell] = false;
        self.records[cell] = None;
    }
}

pub(crate) struct Model {
    pub(crate) place: Vec<Place>,
    pub(crate) bytes: Vec<u8>,
    /// The checkpoint that has to upload the newest content of each byte.
    pub(crate) owner: Vec<Option<CheckpointId>>,
    /// Bytes that were written or left the file since the last plan of a fetch.
    pub(crate) changed: Vec<bool>,
    pub(crate) open: Checkpoint,
    /// Ascending.
    pub(crate) closed: Vec<Checkpoint>,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            place: vec![Place::Unknown; SPACE],
            bytes: vec![UNTOUCHED; SPACE],
            owner: vec![None; SPACE],
            changed: vec![false; SPACE],
            open: Checkpoint::new(CheckpointId(1)),
            closed: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, cells: Range<usize>, data: &[u8], record: Option<Lsn>) {
        self.bytes[cells.clone()].copy_from_slice(data);
        self.place[cells.clone()].fill(Place::Memory);
        self.owner[cells.clone()].fill(Some(self.open.id));
        self.changed[cells.clone()].fill(true);
        self.open.dirty[cells.clone()].fill(true);
        self.open.records[cells.clone()].fill(record);
        self.not_handed_over(cells);
    }

    pub(crate) fn fill(&mut self, cells: Range<usize>, data: &[u8]) {
        for (cell, byte) in cells.zip(data) {
            if self.place[cell] == Place::Unknown {
                self.place[cell] = Place::Memory;
                self.bytes[cell] = *byte;
            }
        }
    }

    /// The cells that lie at or behind an offset of the file leave it.
    pub(crate) fn truncate(&mut self, size: u64) {
        for cell in (0..SPACE).filter(|cell| offset_of(*cell) >= size) {
            self.changed[cell] = true;
            if self.place[cell] != Place::Unknown {
                self.forget(cell);
                self.owner[cell] = None;
                self.open.clean(cell);
                self.not_handed_over(cell..cell + 1);
            }
        }
    }

    /// The open checkpoint has changed these cells: earlier images of them are out of date.
    fn not_handed_over(&mut self, cells: Range<usize>) {
        if !cells.is_empty() {
            for cell in [cells.start, cells.end - 1] {
                self.open.handed_over[block_of(cell).0 as usize] = false;
            }
        }
    }

    /// Makes the clean ones of these cells dirty; returns their number.
    pub(crate) fn upload_again(&mut self, cells: Range<usize>) -> u64 {
        let is_dirty = |cell: usize| self.checkpoints().any(|it| it.dirty[cell]);
        let clean = cells.filter(|cell| self.place[*cell] == Place::Memory && !is_dirty(*cell));
        let clean: Vec<usize> = clean.collect();
        for cell in &clean {
            self.open.dirty[*cell] = true;
            self.owner[*cell] = Some(self.open.id);
            self.changed[*cell] = true;
            self.not_handed_over(*cell..*cell + 1);
        }
        clean.len() as u64
    }

    pub(crate) fn forget(&mut self, cell: usize) {
        self.place[cell] = Place::Unknown;
        self.bytes[cell] = UNTOUCHED;
    }

    pub(crate) fn close(&mut self) {
        let next = Checkpoint::new(self.open.id.next());
        let mut closed = std::mem::replace(&mut self.open, next);
        closed.bytes.clone_from(&self.bytes);
        self.closed.push(closed);
    }

    /// The dirty bytes of this checkpoint in these cells are in the bucket.
    pub(crate) fn cleaned(&mut self, id: CheckpointId, cells: Range<usize>) {
        for cell in cells {
            if self.owner[cell] == Some(id) {
                self.owner[cell] = None;
                if self.place[cell] == Place::Log {
                    self.forget(cell);
                }
            }
            if let Some(checkpoint) = self.checkpoint(id)
                && checkpoint.dirty[cell]
            {
                checkpoint.clean(cell);
            }
        }
    }

    /// The record of the newest content of a byte.
    pub(crate) fn record(&self, cell: usize) -> Option<Lsn> {
        let owner = self.owner[cell]?;
        let checkpoint = self.checkpoints().find(|it| it.id == owner);
        checkpoint.expect("it is not published").records[cell]
    }

    pub(crate) fn checkpoint(&mut self, id: CheckpointId) -> Option<&mut Checkpoint> {
        let mut all = self.closed.iter_mut().chain([&mut self.open]);
        all.find(|checkpoint| checkpoint.id == id)
    }

    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.closed.iter().chain([&self.open])
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.checkpoints().map(|it| count(&it.dirty)).sum()
    }

    pub(crate) fn is_dirty(&self, block: BlockIndex) -> bool {
        self.checkpoints().any(|it| it.has_dirty(block))
    }

    /// Whether the log has every dirty byte of the block, in records before `settled`.
    pub(crate) fn is_settled(&self, block: BlockIndex, settled: Lsn) -> bool {
        self.checkpoints().all(|checkpoint| {
            let mut records = checkpoint
                .dirty_cells(block)
                .map(|cell| checkpoint.records[cell]);
            records.all(|record| record.is_some_and(|lsn| lsn < settled))
        })
    }
}

/// Number of cells that are set.
fn count(cells: &[bool]) -> u64 {
    // Most chunks are all alike: a comparison is fast without optimization, too.
    let chunks = cells.chunks(4096);
    let set = chunks.map(|chunk| match chunk {
        _ if *chunk == [false; 4096][..chunk.len()] => 0,
        _ if *chunk == [true; 4096][..chunk.len()] => chunk.len(),
        _ => chunk.iter().filter(|set| **set).count(),
    });
    set.sum::<usize>() as u64
}
