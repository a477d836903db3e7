//! Pieces of packs for the tasks that check packs, and frames of the tiers for the healer: no reader waits for them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::FrameAddress;
use forebay_pack::open_frame;
use forebay_types::{BlockKey, PackId};
use object_store::ObjectStoreExt;

use crate::fetched::Fetched;
use crate::runs::Stored;
use crate::single_flight::tier_key;
use crate::store::PackStore;

/// Why bytes of a pack are not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPiece {
    /// The bucket does not answer; it may later.
    Unavailable(String),
    /// The bucket does not have the pack.
    Missing,
    /// The pack ends before them.
    CutOff {
        /// Length of the pack.
        len: u64,
    },
}

impl PackStore {
    /// Whether other tasks fetch frames or put packs at this moment.
    pub fn is_busy(&self) -> bool {
        self.fetches.are_in_use() || self.puts.are_in_use()
    }

    /// Bytes of a pack, not verified. Takes no turn of readers, and ignores the disk cache.
    pub async fn piece(&self, pack: PackId, range: Range<u64>) -> Result<Bytes, NoPiece> {
        let location = self.location(pack);
        let why = match self.store.get_range(&location, range.clone()).await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
            Ok(bytes) => format!("{} bytes came", bytes.len()),
            Err(object_store::Error::NotFound { .. }) => return Err(NoPiece::Missing),
            Err(error) => error.to_string(),
        };
        // Stores report a range beyond the end differently.
        match self.store.head(&location).await {
            Ok(object) if object.size < range.end => Err(NoPiece::CutOff { len: object.size }),
            Err(object_store::Error::NotFound { .. }) => Err(NoPiece::Missing),
            _ => Err(NoPiece::Unavailable(format!("{location}: {why}"))),
        }
    }

    /// The bytes of a frame as the bucket has them, from a tier, verified; `None` if no tier has it.
    pub async fn stored_in_tiers(&self, block: BlockKey, address: &FrameAddress) -> Option<Bytes> {
        let frame = Stored::new(block, address);
        let key = tier_key(&frame.reference);
        for tier in &self.tiers {
            let Some(stored) = tier.get(key).await else {
                continue;
            };
            let opened = open_frame(stored.clone(), &frame.reference, frame.block, self.keys());
            match opened.and_then(|frame| frame.verify_hash(self.keys())) {
                Ok(()) => return Some(stored),
                Err(error) => tier.was_damaged(key, &error),
            }
        }
        None
    }

    /// A frame from a tier, verified; `None` if no tier has it.
    pub async fn kept_in_tiers(
        &self,
        block: BlockKey,
        address: &FrameAddress,
    ) -> Option<Arc<Fetched>> {
        self.look_in_tiers(&Stored::new(block, address), None).await
    }
}
