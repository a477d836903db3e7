//! Doing the work of the log's threads by hand.

use std::sync::Arc;

use super::shared::Shared;
use super::{preparer, syncer};

/// Does what the threads of a log do, when it is told to: for simulations, which decide what happens
/// when. Without it nothing becomes durable and no segment is prepared.
///
/// [`Wal::restart`](super::Wal::restart) must not be called while a call of this is running, as there
/// is nobody else who could end it.
pub struct Hand {
    shared: Arc<Shared>,
}

impl Hand {
    pub(super) fn new(shared: Arc<Shared>) -> Hand {
        Hand { shared }
    }

    /// The syncer's turn: one flush if somebody waits for one or enough has gathered. Says whether
    /// there was something to do.
    pub fn sync(&self) -> bool {
        syncer::turn(&self.shared)
    }

    /// The preparer's turn: has the next segment ready, and clears away what is one too many.
    pub fn prepare(&self) {
        preparer::work_off(&self.shared);
    }
}
