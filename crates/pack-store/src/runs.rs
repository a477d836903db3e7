//! Runs: frames that are wanted together and adjoin in a pack, and the table of the frames that are being fetched.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use forebay_meta::FrameAddress;
use forebay_pack::FrameRef;
use forebay_types::{BLOCK_SIZE, BlockKey, PackId};
use tokio::sync::OnceCell;

use crate::fetched::{FetchError, Fetched};

/// The longest run, in stored bytes: a whole block, uncompressed.
const MAX_RUN_BYTES: u64 = BLOCK_SIZE + (64 << 10);

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
}

/// Frames that are wanted together and adjoin in a pack.
#[derive(Debug)]
pub(crate) struct Run {
    /// At least one.
    pub(crate) frames: Vec<Stored>,
    /// The result for each frame, once all are fetched.
    pub(crate) outcomes: OnceCell<Vec<Outcome>>,
    /// A reader fetches it, or has fetched it.
    pub(crate) has_begun: AtomicBool,
}

/// Whether `next` begins at the end of `last`.
fn follows(last: &FrameRef, next: &FrameRef) -> bool {
    last.pack == next.pack && last.stored_range().end == u64::from(next.offset)
}

/// Adds those of the frames that are not being fetched yet to the table, as runs: a run ends where the next frame
/// does not adjoin, or is being fetched already.
pub(crate) fn ask(frames: &[Stored], fetching: &mut Fetching) {
    let mut runs: Vec<Vec<Stored>> = Vec::new();
    let mut stored = 0;
    // A block may have one frame at several places.
    let mut asked = HashSet::new();
    for frame in frames {
        if fetching.contains_key(&frame.key()) || !asked.insert(frame.key()) {
            continue;
        }
        let bytes = u64::from(frame.reference.stored_len);
        let goes_on = |run: &Vec<Stored>| {
            let last = run.last();
            last.is_some_and(|last| follows(&last.reference, &frame.reference))
        };
        match runs.last_mut() {
            Some(run) if goes_on(run) && stored + bytes <= MAX_RUN_BYTES => {
                run.push(*frame);
                stored += bytes;
            }
            _ => {
                runs.push(vec![*frame]);
                stored = bytes;
            }
        }
    }
    for frames in runs {
        let keys: Vec<_> = frames.iter().map(Stored::key).collect();
        let run = Arc::new(Run {
            frames,
            outcomes: OnceCell::new(),
            has_begun: AtomicBool::new(false),
        });
        fetching.extend(keys.into_iter().map(|key| (key, Arc::clone(&run))));
    }
}
