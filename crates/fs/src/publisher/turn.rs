//! What other engines do in the publisher's turn.

use async_trait::async_trait;

use super::Halted;
use super::committer::Committer;

/// An engine whose changes of the metadata the publisher commits between two checkpoints, since nothing else may.
#[async_trait]
pub(crate) trait Turn: Send + Sync {
    fn has_work(&self) -> bool;

    /// One bounded step.
    ///
    /// # Errors
    /// When the volume stops.
    async fn step(&self, committer: &Committer) -> Result<(), Halted>;

    /// The publisher has nothing to do, or has done one step: the engine may go on.
    fn over(&self);
}
