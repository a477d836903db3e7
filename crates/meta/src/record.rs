//! Records: the values of a volume's metadata.
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
mod snapshot;
mod trash;
mod truncated;
mod volume_state;

pub use block_map::{BlockMap, Displaced, Extent, FrameAddress, MAX_EXTENTS, MapError, Origin};
pub use inode::{Content, Device, Directory, InodeRecord, Kind, SPACE_UNIT, Timestamp, round_up};
pub use name::{CookieRecord, NameRecord};
pub use pack::{DeadPack, Garbage, PackRecord};
pub use pack_frames::{KnownFrame, PART_FRAMES, PackFrames, Referrer};
pub use quota::{QuotaRecord, Recount, UsageRecord};
pub use scrub::{ScrubRecord, ScrubResult};
pub use snapshot::{
    HeldPack, Holding, MAX_SNAPSHOT_NAME, MAX_SNAPSHOTS, PackLife, SnapshotRecord, holder,
    kept_name,
};
pub use trash::{TrashOwner, TrashRecord, TrashUntil};
pub use truncated::{Truncated, TruncatedBlocks};
pub use volume_state::{History, TrashTotals, VolumeState};

use bytes::Bytes;

use crate::codec::Reader;
use crate::error::Corrupt;

/// A value of the schema.
pub trait Record: Sized {
    /// First byte of the keys of this kind of record.
    const TAG: u8;

    /// Encodes the value.
    fn encode(&self) -> Bytes;

    /// Reads the fields; the caller treats unread bytes as an error.
    #[doc(hidden)]
    fn read(fields: &mut ValueReader<'_>) -> Result<Self, Corrupt>;

    /// Decodes `value`, which was found under the encoded key `key`. Never panics.
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
