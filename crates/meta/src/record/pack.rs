//! Accounts of packs, and records of files and packs to clean up.

use bytes::Bytes;
use forebay_types::BlockIndex;

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// Account of a pack: how much of it is still in use.
///
/// ```text
/// version: 1 (1)   bytes: 8   raw bytes: 8   live bytes: 8   frames: 4
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
        let mut out = Vec::with_capacity(29);
        out.push(VERSION);
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.raw_bytes.to_le_bytes());
        out.extend(self.live_bytes.to_le_bytes());
        out.extend(self.frames.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(PackRecord {
            bytes: fields.u64()?,
            raw_bytes: fields.u64()?,
            live_bytes: fields.u64()?,
            frames: fields.u32()?,
        })
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

/// A pack without live bytes, whose object is to be deleted from the bucket.
///
/// ```text
/// version: 1 (1)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadPack;

impl Record for DeadPack {
    const TAG: u8 = tag::DEAD_PACK;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(DeadPack)
    }
}
