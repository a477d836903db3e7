//! Runs the work of the log's threads by hand.

use std::sync::Arc;

use super::shared::Shared;
use super::{preparer, syncer, writer};

/// Does the work of a log's threads on request: for simulations, which decide the order of events. Without calls of
/// it nothing becomes durable and no segment is prepared.
///
/// [`Wal::restart`](super::Wal::restart) must not be called while a call of this is running, as nothing else could
/// end that call.
pub struct Hand {
    shared: Arc<Shared>,
}

impl Hand {
    pub(super) fn new(shared: Arc<Shared>) -> Hand {
        Hand { shared }
    }

    /// The work of the syncer: one flush if a task waits for one or enough bytes have accumulated. Returns whether
    /// there was work.
    pub fn sync(&self) -> bool {
        syncer::turn(&self.shared)
    }

    /// The work of the writer: one step of the write-back if enough records are complete. Returns whether there was
    /// work.
    pub fn write_back(&self) -> bool {
        writer::turn(&self.shared)
    }

    /// The work of the preparer: prepares the next segments, and removes surplus files.
    pub fn prepare(&self) {
        preparer::work_off(&self.shared);
    }
}
