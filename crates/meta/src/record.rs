//! Records: what the values of a volume's metadata say.
//!
//! Every value begins with a version byte, so that each kind of record can change by itself.
//! Numbers are little-endian. The layouts are pictured at the records.

mod block_map;
mod inode;
mod name;
mod pack;
mod pack_frames;
mod quota;
mod scrub;
mod truncated;
mod volume_state;

pub use block_map::{
    BlockMap, Displaced, Extent, FrameAddress, MAX_EXTENTS, MapError, Origin, REWRITE_EXTENTS,
};
pub use inode::{Content, Device, Directory, InodeRecord, Kind, SPACE_UNIT, Timestamp, round_up};
pub use name::{CookieRecord, NameRecord};
pub use pack::{DeadPack, Garbage, PackRecord};
pub use pack_frames::{KnownFrame, PART_FRAMES, PackFrames, Referrer};
pub use quota::{QuotaRecord, Spread, UsageRecord};
pub use scrub::{ScrubRecord, ScrubResult};
pub use truncated::{Truncated, TruncatedBlocks};
pub use volume_state::VolumeState;

use bytes::Bytes;

use crate::codec::Reader;
use crate::error::Corrupt;

/// A value of the schema.
pub trait Record: Sized {
    /// First byte of the keys that such values stand under.
    const TAG: u8;

    /// The value as it is stored.
    fn encode(&self) -> Bytes;

    /// Reads the fields; what remains unread is an error of the caller's.
    #[doc(hidden)]
    fn read(fields: &mut ValueReader<'_>) -> Result<Self, Corrupt>;

    /// The record that `value`, found under the encoded key `key`, is. Never panics.
    fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corrupt> {
        let mut fields = ValueReader(Reader::new(key, value));
        let record = Self::read(&mut fields)?;
        fields.0.end()?;
        Ok(record)
    }
}

/// The fields of a value that is being decoded.
#[doc(hidden)]
pub struct ValueReader<'a>(pub(crate) Reader<'a>);

#[cfg(test)]
mod tests;
