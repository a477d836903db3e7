//! Which records are settled: flushed, in pages that no later append stores into.
//!
//! A page that is stored into again is written again. If that fails, nothing is known about any byte of it, also those that were
//! flushed before. So a record that exists in the log alone is safe once it is settled, and not as soon as it is durable.

use forebay_types::Lsn;

use super::State;
use crate::layout::SEGMENT_HEADER;
use crate::storage::PIECE;

/// How far records are settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// A record begins here, and all before it are settled.
    pub(crate) upto: Lsn,
    /// A record that begins behind that, and will be settled first.
    next: Lsn,
}

impl Settled {
    /// Everything before `lsn`, at which a record begins, is settled.
    pub(crate) fn at(lsn: Lsn) -> Settled {
        Settled {
            upto: lsn,
            next: lsn,
        }
    }
}

impl State {
    /// A flush has reached `upto`, where a record begins.
    pub(super) fn settle(&mut self, upto: Lsn) {
        let mut segments = self.retained.iter().rev();
        let Some(current) = segments.find(|segment| segment.base() <= upto) else {
            return;
        };
        // Nothing is stored into the segments before it.
        if self.settled.upto < current.base() {
            self.settled = Settled::at(current.base());
        }
        let position = current.position(upto);
        let whole_pieces = position - position % PIECE;
        let before = whole_pieces.saturating_sub(SEGMENT_HEADER) as u64;
        if self.settled.next <= current.base().advance(before) {
            self.settled = Settled {
                upto: self.settled.next,
                next: upto,
            };
        }
    }
}
