//! Tiers between memory and the bucket.

use std::fmt::Display;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk_cache::FrameKey;

/// A place that may have frames as the bucket has them: compressed, and sealed where the volume is.
///
/// A pack never changes and its number is never used again, so no tier can have an old version of a frame. Its bytes are
/// verified all the same, as those from the bucket are.
#[async_trait]
pub trait Tier: Send + Sync {
    /// The bytes of a frame, not verified; none if the tier does not have it.
    async fn get(&self, frame: FrameKey) -> Option<Bytes>;

    /// The last bytes were those of the frame.
    fn was_right(&self);

    /// The bytes of this frame were not: the tier forgets them.
    fn was_damaged(&self, frame: FrameKey, why: &(dyn Display + Sync));

    /// Keeps a frame that came from a slower tier, if there is room. Does not wait.
    fn put(&self, frame: FrameKey, stored: Bytes);
}
