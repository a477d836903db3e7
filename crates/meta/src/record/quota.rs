//! Quotas of directory trees: the limits of a tree, and its usage.
//!
//! They are two records, since they have different writers: an operator sets the limits, through the log, and the
//! publisher writes the usage, with the checkpoint whose state it counts.

use bytes::Bytes;

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// The work that remains for the objects below the root of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Recount {
    /// None: each object counts where it should.
    #[default]
    Done = 0,
    /// The root counts in the tree, and some of what lies below it may not yet.
    Joining = 1,
    /// The quota was removed, and some of what lies below the root may still count in the tree.
    Leaving = 2,
}

/// The limits of a tree, found by the inode of its root directory.
///
/// ```text
/// version: 1 (1)   recount: 1   bytes: 8   files: 8     (2^64 - 1: no limit)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRecord {
    /// Bytes that files in the tree may use; `u64::MAX` for no limit.
    pub limit_bytes: u64,
    /// Objects that the tree may have, its root among them; `u64::MAX` for no limit.
    pub limit_files: u64,
    /// Whether all of the tree counts yet.
    pub recount: Recount,
}

impl Record for QuotaRecord {
    const TAG: u8 = tag::QUOTA;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(18);
        out.extend([VERSION, self.recount as u8]);
        out.extend(self.limit_bytes.to_le_bytes());
        out.extend(self.limit_files.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        let recount = match fields.u8()? {
            0 => Recount::Done,
            1 => Recount::Joining,
            2 => Recount::Leaving,
            _ => return Err(fields.corrupt("has an unknown step of a quota")),
        };
        Ok(QuotaRecord {
            recount,
            limit_bytes: fields.u64()?,
            limit_files: fields.u64()?,
        })
    }
}

/// The usage of a tree as of the published LSN, found by the inode of its root directory.
///
/// ```text
/// version: 1 (1)   bytes: 8   files: 8
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRecord {
    /// Bytes that its files use: the sum of [`InodeRecord::charged_bytes`](super::InodeRecord::charged_bytes).
    pub bytes: u64,
    /// Number of its objects.
    pub files: u64,
}

impl Record for UsageRecord {
    const TAG: u8 = tag::USAGE;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(17);
        out.push(VERSION);
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.files.to_le_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(UsageRecord {
            bytes: fields.u64()?,
            files: fields.u64()?,
        })
    }
}
