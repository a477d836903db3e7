//! The bytes of a block that go into a pack.

use std::sync::Arc;

use forebay_cache::BlockImage;
use forebay_meta::record::Origin;
use forebay_types::{BlockKey, ByteRange, bounded_u32, to_usize};

use crate::state::Node;

/// The bytes of a block that go into a pack.
pub(super) struct Content {
    pub(super) key: BlockKey,
    pub(super) node: Arc<Node>,
    pub(super) image: BlockImage,
    pub(super) rewritten: Option<Vec<u8>>,
    /// The ranges that become frames.
    pub(super) frames: Vec<ByteRange>,
}

impl Content {
    /// The origins of its frames.
    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> {
        let origin = |frame: &ByteRange| Origin {
            block: self.key,
            // Blocks have 4 MiB.
            start: bounded_u32(to_usize(frame.start)),
        };
        self.frames.iter().map(origin)
    }

    /// The bytes of one of its frames.
    pub(super) fn pieces(&self, frame: ByteRange) -> Vec<&[u8]> {
        match &self.rewritten {
            Some(whole) => vec![&whole[std::ops::Range::<usize>::from(frame)]],
            None => self.image.slices(frame).collect(),
        }
    }
}
