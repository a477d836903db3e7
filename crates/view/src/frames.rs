//! The frames that were read last: a reader of small pieces, or of a file in order, needs each more than once.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_pack_store::Fetched;
use forebay_types::PackId;
use parking_lot::Mutex;

/// How many are kept. Frames have up to 256 KiB, so that they take up to 4 MiB.
const MAX_KEPT: usize = 16;

/// A frame by its pack, and its offset there.
pub(crate) type FrameKey = (PackId, u32);

/// Some frames, the last one read at the back.
#[derive(Default)]
pub(crate) struct KeptFrames(Mutex<VecDeque<(FrameKey, Arc<Fetched>)>>);

impl KeptFrames {
    /// The frame, if it is kept.
    pub(crate) fn get(&self, key: FrameKey) -> Option<Arc<Fetched>> {
        let mut kept = self.0.lock();
        let place = kept.iter().position(|(own, _)| *own == key)?;
        let found = kept.remove(place)?;
        let frame = found.1.clone();
        kept.push_back(found);
        Some(frame)
    }

    /// Keeps a frame, in the place of the one that was not read for longest.
    pub(crate) fn put(&self, key: FrameKey, frame: &Arc<Fetched>) {
        let mut kept = self.0.lock();
        // Calls at the same time may have fetched the same one.
        kept.retain(|(own, _)| *own != key);
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back((key, frame.clone()));
    }
}
