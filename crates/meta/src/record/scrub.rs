//! When a pack was last read back, and with which result.

use bytes::Bytes;

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// The result of reading a pack back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ScrubResult {
    /// All of it is as it was written.
    #[default]
    Sound = 0,
    /// Some of it is not as it was written.
    Damaged = 1,
    /// It is not in the bucket.
    Missing = 2,
}

/// The last check of a pack, found by the number of the pack. A pack without this record was never read back as a
/// whole; a pack that has no account and is not held for a snapshot has no such record.
///
/// ```text
/// version: 1 (1)   checked: 8   result: 1   damaged frames: 4
/// result: 0 sound, 1 damaged, 2 missing
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// When it was read, in seconds since 1970-01-01 00:00 UTC.
    pub checked: u64,
    /// The result.
    pub result: ScrubResult,
    /// Number of its damaged frames. It may be 0 for a damaged pack: then its header or its index is damaged.
    pub damaged_frames: u32,
}

impl Record for ScrubRecord {
    const TAG: u8 = tag::SCRUB;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(14);
        out.push(VERSION);
        out.extend(self.checked.to_le_bytes());
        out.push(self.result as u8);
        out.extend(self.damaged_frames.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        let checked = fields.u64()?;
        let result = match fields.u8()? {
            0 => ScrubResult::Sound,
            1 => ScrubResult::Damaged,
            2 => ScrubResult::Missing,
            _ => return Err(fields.corrupt("has an unknown result of a check")),
        };
        Ok(ScrubRecord {
            checked,
            result,
            damaged_frames: fields.u32()?,
        })
    }
}
