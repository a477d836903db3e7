//! The index of a pack in the bucket.

use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN};
use forebay_pack::{PackError, PackIndex, open_index};
use forebay_types::PackId;

use crate::fetched::FetchError;
use crate::store::PackStore;

/// The first part that is read of the end of a pack: the index of some 370 frames.
const TAIL: u64 = (16 << 10) + INDEX_FOOTER_LEN as u64;
const _: () = assert!(TAIL > INDEX_ENTRY_LEN as u64);

impl PackStore {
    /// The index of a pack of `bytes` bytes, which is verified, and the number of bytes that were fetched for it.
    ///
    /// # Errors
    /// [`FetchError::Damaged`] if the pack has no index, a damaged one, or that of another pack.
    pub async fn index(&self, pack: PackId, bytes: u64) -> Result<(PackIndex, u64), FetchError> {
        let (mut tail_len, mut fetched) = (TAIL, 0);
        loop {
            let from = bytes.saturating_sub(tail_len);
            let tail = self.bytes(pack, from..bytes).await?;
            fetched += tail.len() as u64;
            match open_index(&tail, self.keys()) {
                Ok(index) if index.pack == pack && index.volume == self.keys().volume() => {
                    return Ok((index, fetched));
                }
                Ok(_) => return Err(FetchError::Damaged("its index is of another pack".into())),
                Err(PackError::TailTooShort { needed }) if tail_len < needed as u64 => {
                    tail_len = needed as u64;
                }
                Err(error) => return Err(FetchError::Damaged(error.to_string())),
            }
        }
    }
}
