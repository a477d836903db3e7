//! The steps of other engines between two checkpoints.

use async_trait::async_trait;
use tokio::time::Instant;

use super::Halted;
use super::committer::Committer;

/// An engine whose changes of the metadata the publisher commits between two checkpoints, because nothing else may
/// commit.
#[async_trait]
pub(crate) trait BetweenCheckpoints: Send + Sync {
    fn has_work(&self) -> bool;

    /// Does one bounded step.
    ///
    /// # Errors
    /// `Err` if the volume stops.
    async fn step(&self, committer: &Committer) -> Result<(), Halted>;

    /// The publisher is idle, or has done one step: the engine may go on.
    fn over(&self);

    /// When it may have work although nothing else happens until then; `None` if it only waits for other events.
    fn next_at(&self) -> Option<Instant> {
        None
    }
}
