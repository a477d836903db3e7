//! Pieces of packs for those who check packs, and frames of the disk cache for those who heal: no reader waits for them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::FrameAddress;
use forebay_types::{BlockKey, PackId};
use object_store::ObjectStoreExt;

use super::{Fetched, PackStore, Stored};

/// Why bytes of a pack cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoPiece {
    /// The bucket does not answer; it may later.
    Unavailable(String),
    /// The bucket does not have the pack.
    Missing,
    /// The pack ends before them.
    CutOff {
        /// Bytes that it has.
        len: u64,
    },
}

impl PackStore {
    /// Whether others fetch frames or put packs at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.fetches.available_permits() < self.fetch_places
            || self.puts.available_permits() < self.put_places
    }

    /// Bytes of a pack, not verified, past the turns of readers and the disk cache.
    pub(crate) async fn piece(&self, pack: PackId, range: Range<u64>) -> Result<Bytes, NoPiece> {
        let location = self.location(pack);
        let why = match self.store.get_range(&location, range.clone()).await {
            Ok(bytes) if bytes.len() as u64 == range.end - range.start => return Ok(bytes),
            Ok(bytes) => format!("{} bytes came", bytes.len()),
            Err(object_store::Error::NotFound { .. }) => return Err(NoPiece::Missing),
            Err(error) => error.to_string(),
        };
        // Stores differ in what they say of a range that is not there.
        match self.store.head(&location).await {
            Ok(object) if object.size < range.end => Err(NoPiece::CutOff { len: object.size }),
            Err(object_store::Error::NotFound { .. }) => Err(NoPiece::Missing),
            _ => Err(NoPiece::Unavailable(format!("{location}: {why}"))),
        }
    }

    /// A frame that the disk cache has, verified.
    pub(crate) async fn kept_on_disk(
        &self,
        block: BlockKey,
        address: &FrameAddress,
    ) -> Option<Arc<Fetched>> {
        let disk = self.disk.as_ref()?;
        let frame = Stored::new(block, address);
        self.look_on_disk(disk, &frame, None).await
    }
}
