//! Runs: frames that are wanted together and lie near one another in a pack, and the table of the frames that are
//! being fetched.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_meta::FrameAddress;
use forebay_pack::FrameRef;
use forebay_types::{BlockKey, PackId};
use tokio::sync::OnceCell;

use crate::fetched::{FetchError, Fetched};
use crate::spans::{Gaps, spans};

/// Runs that are being fetched, by pack and offset of each of their frames.
pub(crate) type Fetching = HashMap<(PackId, u32), Arc<Run>>;

/// The result of fetching a frame.
pub type Outcome = Result<Arc<Fetched>, FetchError>;

/// A frame as its pack identifies it, whichever blocks share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its address in the pack, and its checksum.
    pub reference: FrameRef,
    /// The block that it was written for.
    pub block: BlockKey,
}

impl Stored {
    /// The frame at `address` in the map of `block`.
    pub fn new(block: BlockKey, address: &FrameAddress) -> Stored {
        let origin = address.origin_in(block);
        Stored {
            reference: FrameRef {
                pack: address.pack,
                offset: address.offset,
                stored_len: address.stored_len,
                start: origin.start,
                raw_len: address.raw_len,
                crc32: address.crc32,
            },
            block: origin.block,
        }
    }

    pub(crate) fn key(&self) -> (PackId, u32) {
        (self.reference.pack, self.reference.offset)
    }

    fn place(&self) -> (PackId, Range<u64>) {
        let range = self.reference.stored_range();
        (self.reference.pack, range.start..range.end)
    }
}

/// Frames of a pack that are wanted together, and come with one GET.
#[derive(Debug)]
pub(crate) struct Run {
    /// At least one, by their offsets, each offset once.
    pub(crate) frames: Vec<Stored>,
    /// The result for each frame, once all are fetched.
    pub(crate) outcomes: OnceCell<Vec<Outcome>>,
    /// A reader fetches it, or has fetched it.
    pub(crate) has_begun: AtomicBool,
}

impl Run {
    /// The index of a frame; `None` if the run does not have it.
    pub(crate) fn index_of(&self, frame: &Stored) -> Option<usize> {
        let offset = |own: &Stored| own.reference.offset;
        let found = self
            .frames
            .binary_search_by_key(&frame.reference.offset, offset);
        found
            .ok()
            .filter(|index| self.frames.get(*index) == Some(frame))
    }
}

/// Adds those of the frames that are not being fetched yet to the table, as runs.
pub(crate) fn ask(frames: &[Stored], fetching: &mut Fetching) {
    // A block may have one frame at several places.
    let mut asked = HashSet::new();
    let new = frames
        .iter()
        .filter(|frame| !fetching.contains_key(&frame.key()) && asked.insert(frame.key()));
    for span in spans(new.copied().collect(), Stored::place, Gaps::Limited) {
        let run = Arc::new(Run {
            frames: span.frames,
            outcomes: OnceCell::new(),
            has_begun: AtomicBool::new(false),
        });
        let keys = run.frames.iter().map(Stored::key);
        fetching.extend(keys.map(|key| (key, Arc::clone(&run))));
    }
}

#[cfg(test)]
mod tests;
