//! The parts of a file that the model knows, and the steps on them.

use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange};
use proptest::prelude::*;
use std::ops::Range;

/// Bytes in a window: a piece and a middle-sized part of the next one.
pub(crate) const WINDOW: usize = 80 << 10;
/// Where the windows begin in the file.
pub(crate) const WINDOWS: [u64; 2] = [0, BLOCK_SIZE - WINDOW as u64 / 2];
/// Bytes that the model knows, one window behind the other.
pub(crate) const SPACE: usize = WINDOW * WINDOWS.len();

/// A place in the model's space.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) window: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Place {
    /// A whole window.
    pub(crate) fn whole(window: usize) -> Place {
        Place {
            window,
            start: 0,
            len: WINDOW,
        }
    }

    pub(crate) fn offset(&self) -> u64 {
        WINDOWS[self.window] + self.start as u64
    }

    pub(crate) fn range(&self) -> ByteRange {
        ByteRange::at(self.offset(), self.len as u64)
    }

    pub(crate) fn cells(&self) -> Range<usize> {
        let start = self.window * WINDOW + self.start;
        start..start + self.len
    }
}

/// The offset of a model cell in the file.
pub(crate) fn offset_of(cell: usize) -> u64 {
    WINDOWS[cell / WINDOW] + (cell % WINDOW) as u64
}

/// The cells of a range of the file, which lies in one window.
pub(crate) fn cells_at(range: ByteRange) -> Range<usize> {
    let window = usize::from(range.start >= WINDOWS[1]);
    let start = window * WINDOW + (range.start - WINDOWS[window]) as usize;
    start..start + range.len() as usize
}

pub(crate) fn block_of(cell: usize) -> BlockIndex {
    BlockIndex::of(offset_of(cell))
}

/// The cells of one of the two blocks.
pub(crate) fn cells_of(block: BlockIndex) -> Range<usize> {
    let border = WINDOW + WINDOW / 2;
    if block.0 == 0 {
        0..border
    } else {
        border..SPACE
    }
}

/// The runs of cells for which `wanted` holds, as ranges of the file.
pub(crate) fn runs(cells: Range<usize>, wanted: impl Fn(usize) -> bool) -> Vec<ByteRange> {
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

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// With or without a record in the log.
    Write(Place, u8, bool),
    /// With or without a copy.
    Fill(Place, u8, bool),
    Read(Place),
    UploadAgain(Place),
    Truncate(Place),
    Clear,
    Close,
    BlockImage(u64, Ends),
    /// An early upload of a block, in the open checkpoint or in the newest closed one.
    Uploaded(u64, bool),
    Publish,
    Evict(u64),
    /// The block, or the coldest one, and the number of records that are not settled yet.
    Spill(Option<u64>, u64),
    /// Fills in the records of a place, or of its first spilled bytes alone.
    FillLogged(Place, bool),
    /// Plans a fetch.
    Plan,
}

/// The end of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    Dropped,
    Kept,
    PutBack,
    /// Before its bytes were loaded from the log.
    PutBackAtOnce,
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

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let ends = prop_oneof![
        2 => Just(Ends::Dropped),
        2 => Just(Ends::Kept),
        1 => Just(Ends::PutBack),
        1 => Just(Ends::PutBackAtOnce),
    ];
    let unsettled = prop_oneof![4 => Just(0), 1 => 0..4u64];
    let block = prop::option::weighted(0.7, 0..2u64);
    prop_oneof![
        8 => (place(), 1..100u8, prop::bool::weighted(0.9))
            .prop_map(|(place, seed, logged)| Step::Write(place, seed, logged)),
        4 => (place(), 1..100u8, any::<bool>())
            .prop_map(|(place, seed, copied)| Step::Fill(place, seed, copied)),
        3 => place().prop_map(Step::Read),
        2 => place().prop_map(Step::UploadAgain),
        2 => place().prop_map(Step::Truncate),
        1 => Just(Step::Clear),
        3 => Just(Step::Close),
        5 => (0..2u64, ends).prop_map(|(block, ends)| Step::BlockImage(block, ends)),
        2 => (0..2u64, any::<bool>()).prop_map(|(block, open)| Step::Uploaded(block, open)),
        2 => Just(Step::Publish),
        3 => (0..2u64).prop_map(Step::Evict),
        6 => (block, unsettled).prop_map(|(block, unsettled)| Step::Spill(block, unsettled)),
        3 => (place(), any::<bool>()).prop_map(|(place, all)| Step::FillLogged(place, all)),
        1 => Just(Step::Plan),
    ]
}

/// The bytes that a write or fill with this seed puts in a place.
pub(crate) fn content(place: &Place, seed: u8) -> Vec<u8> {
    (0..place.len)
        .map(|at| seed.wrapping_add((at / 7) as u8))
        .collect()
}
