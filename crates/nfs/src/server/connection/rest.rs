//! The other memory that a connection holds while it waits, counted in the share of its client.

use std::sync::Arc;

use crate::address::ClientNetwork;
use crate::server::budget::{Budget, BudgetPermit, Part};

/// Bytes that a waiting connection may hold without their being counted: a call that waits costs about one KiB.
const UNCOUNTED_BYTES: usize = 2 << 10;

/// Further bytes are counted in steps of this size.
const COUNTED_STEP: usize = 4 << 10;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Rest(Option<BudgetPermit>);

impl Rest {
    /// Counts this number of bytes from now on. False if the share of the client has no room for them.
    pub(super) fn count(
        &mut self,
        held: usize,
        budget: &Arc<Budget>,
        client: ClientNetwork,
    ) -> bool {
        if held <= UNCOUNTED_BYTES {
            self.0 = None;
            return true;
        }
        let held = held.next_multiple_of(COUNTED_STEP);
        let counted = self.0.as_ref().map_or(0, BudgetPermit::bytes);
        if held <= counted {
            if let Some(permit) = self.0.as_mut().filter(|_| held < counted / 2) {
                permit.keep(held);
            }
            return true;
        }
        let Some(more) = budget.take((client, Part::Rest), held - counted) else {
            return false;
        };
        match &mut self.0 {
            Some(permit) => permit.join(more),
            none => *none = Some(more),
        }
        true
    }
}
