//! Tiers between memory and the bucket.

use std::fmt::Display;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk_cache::FrameKey;

/// A tier that may have frames in the form of the bucket: compressed, and sealed if the volume is.
///
/// A pack never changes and its number is never used again, so no tier can have an old version of a frame. Its bytes
/// are still verified, like those from the bucket.
#[async_trait]
pub trait Tier: Send + Sync {
    /// The bytes of a frame, not verified; `None` if the tier does not have it.
    async fn get(&self, frame: FrameKey) -> Option<Bytes>;

    /// Notes that the last bytes were those of the frame.
    fn was_right(&self);

    /// Notes that the bytes of this frame were wrong: the tier forgets them.
    fn was_damaged(&self, frame: FrameKey, why: &(dyn Display + Sync));

    /// Keeps a frame that came from a slower tier, if there is room. Does not wait.
    fn put(&self, frame: FrameKey, stored: Bytes);
}
