//! Random operations against a model with a flag and a value for every byte.
//!
//! The file is accessed through two windows, one at its start and one around the boundary of its first two blocks, so
//! that operations overlap, cross the boundaries of granules, pieces and blocks, and use every size class.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use forebay_cache::{Arrived, BlockImage, BlockVersion, Cache, Eviction, FileBlocks};
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, CheckpointId, Inode};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in a window: a piece and a middle-sized part of the next one.
const WINDOW: usize = 80 << 10;
/// Where the windows begin in the file.
const WINDOWS: [u64; 2] = [0, BLOCK_SIZE - WINDOW as u64 / 2];
/// Bytes that the model knows, one window behind the other.
const SPACE: usize = WINDOW * WINDOWS.len();
/// The content of bytes that `read` must not change.
const UNTOUCHED: u8 = 0xEE;

/// A place in the model's space.
#[derive(Clone, Debug)]
struct Place {
    window: usize,
    start: usize,
    len: usize,
}

impl Place {
    fn offset(&self) -> u64 {
        WINDOWS[self.window] + self.start as u64
    }

    fn cells(&self) -> Range<usize> {
        let start = self.window * WINDOW + self.start;
        start..start + self.len
    }
}

/// The offset of a model cell in the file.
fn offset_of(cell: usize) -> u64 {
    WINDOWS[cell / WINDOW] + (cell % WINDOW) as u64
}

fn block_of(cell: usize) -> BlockIndex {
    BlockIndex::of(offset_of(cell))
}

#[derive(Clone, Debug)]
enum Step {
    Write(Place, u8),
    /// With or without a copy.
    Fill(Place, u8, bool),
    Read(Place),
    UploadAgain(Place),
    Truncate(Place),
    Clear,
    Close,
    BlockImage(u64, Ends),
    Publish,
    Evict(u64),
}

/// The end of an image.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Dropped,
    Kept,
    PutBack,
}

fn place() -> impl Strategy<Value = Place> {
    let edge = prop_oneof![
        (0..=WINDOW / 4096).prop_map(|granule| granule * 4096),
        0..=WINDOW,
    ];
    (0..WINDOWS.len(), edge.clone(), edge).prop_map(|(window, a, b)| Place {
        window,
        start: a.min(b),
        len: a.abs_diff(b),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let ends = prop_oneof![
        2 => Just(Ends::Dropped),
        2 => Just(Ends::Kept),
        1 => Just(Ends::PutBack),
    ];
    prop_oneof![
        8 => (place(), 1..100u8).prop_map(|(place, seed)| Step::Write(place, seed)),
        4 => (place(), 1..100u8, any::<bool>())
            .prop_map(|(place, seed, copied)| Step::Fill(place, seed, copied)),
        3 => place().prop_map(Step::Read),
        2 => place().prop_map(Step::UploadAgain),
        2 => place().prop_map(Step::Truncate),
        1 => Just(Step::Clear),
        3 => Just(Step::Close),
        5 => (0..2u64, ends).prop_map(|(block, ends)| Step::BlockImage(block, ends)),
        2 => Just(Step::Publish),
        3 => (0..2u64).prop_map(Step::Evict),
    ]
}

/// The bytes that a write or fill with this seed puts in a place.
fn content(place: &Place, seed: u8) -> Vec<u8> {
    (0..place.len)
        .map(|at| seed.wrapping_add((at / 7) as u8))
        .collect()
}

/// One checkpoint in the model.
#[derive(Clone)]
struct Checkpoint {
    id: CheckpointId,
    dirty: Vec<bool>,
    /// The file's bytes when it closed.
    bytes: Vec<u8>,
    /// Blocks whose current bytes of this checkpoint are in an image that was not put back.
    handed_over: [bool; 2],
}

struct Model {
    covered: Vec<bool>,
    bytes: Vec<u8>,
    open: Checkpoint,
    closed: Option<Checkpoint>,
}

impl Model {
    fn new() -> Model {
        Model {
            covered: vec![false; SPACE],
            bytes: vec![UNTOUCHED; SPACE],
            open: Model::checkpoint(CheckpointId(1)),
            closed: None,
        }
    }

    fn checkpoint(id: CheckpointId) -> Checkpoint {
        Checkpoint {
            id,
            dirty: vec![false; SPACE],
            bytes: Vec::new(),
            handed_over: [false; 2],
        }
    }

    /// Uncovers the cells that lie at or behind an offset of the file.
    fn truncate(&mut self, size: u64) {
        let beyond = |cell: &usize| self.covered[*cell] && offset_of(*cell) >= size;
        for cell in (0..SPACE).filter(beyond).collect::<Vec<_>>() {
            self.forget(cell);
            self.open.dirty[cell] = false;
            self.changed(cell..cell + 1);
        }
    }

    /// The open checkpoint has changed these cells: earlier images of them are out of date.
    fn changed(&mut self, cells: Range<usize>) {
        if !cells.is_empty() {
            for cell in [cells.start, cells.end - 1] {
                self.open.handed_over[block_of(cell).0 as usize] = false;
            }
        }
    }

    /// Makes the clean ones of these cells dirty; returns their number.
    fn upload_again(&mut self, cells: Range<usize>) -> u64 {
        let closed = self.closed.as_ref().map(|closed| &closed.dirty);
        let is_dirty = |cell: usize| self.open.dirty[cell] || closed.is_some_and(|it| it[cell]);
        let clean = cells.filter(|cell| self.covered[*cell] && !is_dirty(*cell));
        let clean: Vec<usize> = clean.collect();
        for cell in &clean {
            self.open.dirty[*cell] = true;
            self.changed(*cell..*cell + 1);
        }
        clean.len() as u64
    }

    fn forget(&mut self, cell: usize) {
        self.covered[cell] = false;
        self.bytes[cell] = UNTOUCHED;
    }

    fn close(&mut self) {
        let mut closed = std::mem::replace(&mut self.open, Model::checkpoint(CheckpointId(0)));
        self.open.id = closed.id.next();
        closed.bytes.clone_from(&self.bytes);
        self.closed = Some(closed);
    }

    fn dirty_bytes(&self) -> u64 {
        let checkpoints = self.closed.iter().chain([&self.open]);
        let dirty = |it: &Checkpoint| it.dirty.iter().filter(|dirty| **dirty).count() as u64;
        checkpoints.map(dirty).sum()
    }

    fn is_dirty(&self, block: BlockIndex) -> bool {
        let mut checkpoints = self.closed.iter().chain([&self.open]);
        checkpoints.any(|checkpoint| has_dirty(checkpoint, block))
    }
}

fn has_dirty(checkpoint: &Checkpoint, block: BlockIndex) -> bool {
    let cells = &checkpoint.dirty[cells_of(block)];
    // A comparison of slices compares memory even without optimization.
    *cells != [false; SPACE][..cells.len()]
}

fn dirty_cells(checkpoint: &Checkpoint, block: BlockIndex) -> impl Iterator<Item = usize> + '_ {
    cells_of(block).filter(move |cell| checkpoint.dirty[*cell])
}

/// The cells of one of the two blocks.
fn cells_of(block: BlockIndex) -> Range<usize> {
    let border = WINDOW + WINDOW / 2;
    if block.0 == 0 {
        0..border
    } else {
        border..SPACE
    }
}

/// The runs of cells for which `wanted` holds, as ranges of the file.
fn runs(cells: Range<usize>, wanted: impl Fn(usize) -> bool) -> Vec<ByteRange> {
    let mut runs: Vec<ByteRange> = Vec::new();
    for cell in cells.filter(|cell| wanted(*cell)) {
        let at = offset_of(cell);
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => runs.push(ByteRange::at(at, 1)),
        }
    }
    runs
}

/// The content that a kept image must continue to have.
struct Kept {
    image: BlockImage,
    expected: Vec<u8>,
}

fn bytes(image: &BlockImage) -> Vec<u8> {
    let ranges = image.ranges();
    ranges
        .flat_map(|range| image.slices(range))
        .collect::<Vec<_>>()
        .concat()
}

struct Run {
    cache: Arc<Cache>,
    file: FileBlocks,
    model: Model,
    kept: Vec<Kept>,
    took_over: bool,
}

impl Run {
    fn new() -> Run {
        let cache = Cache::new(64 << 20);
        Run {
            file: FileBlocks::new(Inode(1), Arc::clone(&cache)),
            cache,
            model: Model::new(),
            kept: Vec::new(),
            took_over: false,
        }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let open = self.model.open.id;
        match step {
            Step::Write(place, seed) => {
                let data = content(&place, seed);
                self.file.write(place.offset(), &data, open);
                self.model.bytes[place.cells()].copy_from_slice(&data);
                self.model.covered[place.cells()].fill(true);
                self.model.open.dirty[place.cells()].fill(true);
                self.model.changed(place.cells());
            }
            Step::Fill(place, seed, copied) => {
                let data = content(&place, seed);
                if copied {
                    self.file.fill(place.offset(), &data);
                } else {
                    let arrived = Arrived::new([b"header", &data[..]].concat().into());
                    let arrived = arrived.slice(6..6 + data.len());
                    self.file.take_over(place.offset(), &arrived);
                    self.took_over = true;
                }
                for (cell, byte) in place.cells().zip(data) {
                    if !self.model.covered[cell] {
                        self.model.covered[cell] = true;
                        self.model.bytes[cell] = byte;
                    }
                }
            }
            Step::Read(place) => self.read(&place)?,
            Step::UploadAgain(place) => {
                let range = ByteRange::at(place.offset(), place.len as u64);
                let bytes = self.file.upload_again(range, open);
                prop_assert_eq!(bytes, self.model.upload_again(place.cells()));
            }
            Step::Truncate(place) => {
                self.file.truncate(place.offset(), open);
                self.model.truncate(place.offset());
            }
            Step::Clear => {
                self.file.clear(open);
                self.model.truncate(0);
            }
            Step::Close => {
                self.publish();
                self.model.close();
            }
            Step::BlockImage(block, ends) => {
                let checkpoints = [self.model.closed.as_ref(), Some(&self.model.open)];
                for id in checkpoints
                    .into_iter()
                    .flatten()
                    .map(|it| it.id)
                    .collect::<Vec<_>>()
                {
                    self.image(BlockIndex(block), id, ends)?;
                }
            }
            Step::Publish => self.publish(),
            Step::Evict(block) => self.evict(BlockIndex(block))?,
        }
        self.check()
    }

    fn read(&mut self, place: &Place) -> Result<(), TestCaseError> {
        let mut out = vec![UNTOUCHED; place.len];
        let mut missing = Vec::new();
        self.file.read(place.offset(), &mut out, &mut missing);
        prop_assert!(
            out == self.model.bytes[place.cells()],
            "bytes of {:?}",
            place
        );
        let expected = runs(place.cells(), |cell| !self.model.covered[cell]);
        prop_assert_eq!(&missing, &expected);
        let range = ByteRange::at(place.offset(), place.len as u64);
        prop_assert_eq!(self.file.is_covered(range), expected.is_empty());
        Ok(())
    }

    fn publish(&mut self) {
        if let Some(closed) = self.model.closed.take() {
            self.file.published(closed.id);
        }
    }

    fn image(
        &mut self,
        block: BlockIndex,
        id: CheckpointId,
        ends: Ends,
    ) -> Result<(), TestCaseError> {
        let model = &mut self.model;
        let is_open = model.open.id == id;
        let checkpoint = match &mut model.closed {
            Some(closed) if closed.id == id => closed,
            _ => &mut model.open,
        };
        let cells: Vec<usize> = dirty_cells(checkpoint, block).collect();
        let source = if is_open {
            &model.bytes
        } else {
            &checkpoint.bytes
        };
        let expected: Vec<u8> = cells.iter().map(|cell| source[*cell]).collect();
        let version = self.file.version(block, id);
        let Some(image) = self.file.image(block, id) else {
            let handed_over = checkpoint.handed_over[block.0 as usize];
            let excused = handed_over && !is_open;
            prop_assert!(cells.is_empty() || excused, "{id:?} has bytes to bring");
            return Ok(());
        };
        prop_assert_eq!(Some(image.version()), version);
        prop_assert_eq!(image.dirty_bytes(), cells.len() as u64);
        let start = block.start();
        let ranges = image
            .ranges()
            .map(|it| ByteRange::at(start + it.start, it.len()));
        let mut wanted = vec![false; SPACE];
        cells.iter().for_each(|cell| wanted[*cell] = true);
        let listed: Vec<_> = ranges.collect();
        let windows = (0..WINDOWS.len()).map(|window| window * WINDOW..(window + 1) * WINDOW);
        let windows = windows.flat_map(|cells| runs(cells, |cell| wanted[cell]));
        prop_assert_eq!(listed, windows.collect::<Vec<_>>());
        prop_assert!(bytes(&image) == expected, "bytes of {id:?}");
        checkpoint.handed_over[block.0 as usize] = !matches!(ends, Ends::PutBack);
        match ends {
            Ends::Dropped => drop(image),
            Ends::Kept => self.kept.push(Kept { image, expected }),
            Ends::PutBack => self.file.put_back(image),
        }
        Ok(())
    }

    fn evict(&mut self, block: BlockIndex) -> Result<(), TestCaseError> {
        let covered = |cell: &usize| self.model.covered[*cell];
        let cells: Vec<usize> = cells_of(block).filter(covered).collect();
        let before = self.cache.allocated_bytes();
        match self.file.evict(block) {
            Eviction::Evicted(bytes) => {
                prop_assert!(!self.model.is_dirty(block) && !cells.is_empty());
                let now = self.cache.allocated_bytes();
                // Arrived memory is freed with its last piece.
                prop_assert!(now + bytes == before || self.took_over && now < before);
                cells.into_iter().for_each(|cell| self.model.forget(cell));
            }
            Eviction::Touched => prop_assert!(!self.model.is_dirty(block)),
            Eviction::Busy => prop_assert!(self.model.is_dirty(block) || !self.kept.is_empty()),
            Eviction::Absent => prop_assert!(!self.model.is_dirty(block) && cells.is_empty()),
        }
        Ok(())
    }

    /// Invariants after every step.
    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.file.dirty_bytes(), self.model.dirty_bytes());
        prop_assert_eq!(self.cache.dirty_bytes(), self.model.dirty_bytes());
        for checkpoint in self.model.closed.iter().chain([&self.model.open]) {
            let blocks = [0, 1].map(BlockIndex);
            let dirty = |block: &BlockIndex| has_dirty(checkpoint, *block);
            let expected: Vec<_> = blocks.into_iter().filter(dirty).collect();
            prop_assert_eq!(self.file.dirty_blocks(checkpoint.id), expected);
        }
        for kept in &self.kept {
            prop_assert!(bytes(&kept.image) == kept.expected, "a kept image changed");
        }
        Ok(())
    }

    /// Nothing is left once all owners are dropped.
    fn end(mut self) -> Result<(), TestCaseError> {
        for window in 0..WINDOWS.len() {
            self.read(&Place {
                window,
                start: 0,
                len: WINDOW,
            })?;
        }
        let Run {
            cache, file, kept, ..
        } = self;
        drop(file);
        drop(kept);
        prop_assert_eq!((cache.allocated_bytes(), cache.dirty_bytes()), (0, 0));
        prop_assert_eq!(cache.candidates(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_flag_and_a_value_for_every_byte(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut run = Run::new();
        for step in steps {
            run.apply(step)?;
        }
        run.end()?;
    }
}

#[test]
fn versions_are_never_used_twice() {
    let mut run = Run::new();
    let mut seen: Vec<BlockVersion> = Vec::new();
    for _ in 0..3 {
        run.file.write(0, b"x", CheckpointId(1));
        seen.extend(run.file.version(BlockIndex(0), CheckpointId(1)));
        run.file.clear(CheckpointId(1));
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}
