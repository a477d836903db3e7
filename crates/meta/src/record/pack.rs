//! Accounts of packs, and records of files and packs to clean up.

use bytes::Bytes;
use forebay_types::{BlockIndex, CommitNumber};

use super::{PackLife, Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;
/// With the commit of its birth, and for a dead pack that of its death.
const VERSION_COUNTED: u8 = 2;

/// Account of a pack: how much of it is still in use.
///
/// ```text
/// version: 1         bytes: 8   raw bytes: 8   live bytes: 8   frames: 4
/// born: 8                                                        if the version is 2
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// Size of the object in the bucket.
    pub bytes: u64,
    /// Bytes of its frames before compression.
    pub raw_bytes: u64,
    /// Bytes of blocks that refer to them: the raw bytes that are still in use, counted once more for each further
    /// place that shares them.
    pub live_bytes: u64,
    /// Number of its frames.
    pub frames: u32,
    /// The commit that opened this account; 0 if that was before commits were counted.
    pub born: CommitNumber,
}

impl PackRecord {
    /// Lower bound of the bytes that are referred to more than once.
    pub fn shared_bytes(&self) -> u64 {
        self.live_bytes.saturating_sub(self.raw_bytes)
    }
}

impl Record for PackRecord {
    const TAG: u8 = tag::PACK;

    fn encode(&self) -> Bytes {
        let is_counted = self.born > CommitNumber::default();
        let mut out = Vec::with_capacity(37);
        out.push(if is_counted { VERSION_COUNTED } else { VERSION });
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.raw_bytes.to_le_bytes());
        out.extend(self.live_bytes.to_le_bytes());
        out.extend(self.frames.to_le_bytes());
        if is_counted {
            out.extend(self.born.0.to_le_bytes());
        }
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let version = fields.version_of(&[VERSION, VERSION_COUNTED])?;
        let mut record = PackRecord {
            bytes: fields.u64()?,
            raw_bytes: fields.u64()?,
            live_bytes: fields.u64()?,
            frames: fields.u32()?,
            born: CommitNumber::default(),
        };
        if version == VERSION_COUNTED {
            record.born = CommitNumber(fields.u64()?);
            if record.born == CommitNumber::default() {
                return Err(fields.corrupt("has a birth before commits were counted"));
            }
        }
        Ok(record)
    }
}

/// A removed file whose block maps still have to be collected.
///
/// ```text
/// version: 1 (1)   size: 8   first block: 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Size that the file had: no block map lies behind it.
    pub size: u64,
    /// The blocks before this one have been collected already.
    pub first_block: BlockIndex,
}

impl Record for Garbage {
    const TAG: u8 = tag::GARBAGE;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(17);
        out.push(VERSION);
        out.extend(self.size.to_le_bytes());
        out.extend(self.first_block.0.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(Garbage {
            size: fields.u64()?,
            first_block: BlockIndex(fields.u64()?),
        })
    }
}

/// A pack without live bytes, whose object is to be deleted from the bucket, unless a snapshot refers to it.
///
/// ```text
/// version: 1
/// born: 8   died: 8   bytes: 8      if the version is 2
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadPack {
    /// Its life; `None` if no snapshot refers to it: that was found before its object was deleted, or it died before commits were
    /// counted.
    pub life: Option<PackLife>,
}

impl Record for DeadPack {
    const TAG: u8 = tag::DEAD_PACK;

    fn encode(&self) -> Bytes {
        let Some(life) = &self.life else {
            return Bytes::from_static(&[VERSION]);
        };
        let mut out = vec![VERSION_COUNTED];
        life.put(&mut out);
        out.into()
    }

    fn read(fields: &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let version = fields.0.version_of(&[VERSION, VERSION_COUNTED])?;
        let life = match version {
            VERSION => None,
            _ => Some(PackLife::take(fields)?),
        };
        Ok(DeadPack { life })
    }
}
