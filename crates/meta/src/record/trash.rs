//! Objects in the trash, and the order in which they are deleted.
//!
//! An object in the trash has its record still, with a link count of 0, and no name. An entry says where its last name was.

use bytes::Bytes;
use forebay_types::Inode;

use super::{Record, Timestamp, ValueReader};
use crate::codec::put_bytes;
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// The place that an object in the trash had, found by the object.
///
/// ```text
/// version: 1 (1)   directory: 8   removed: 8 + 4   until: 8   by uid: 4   name: 4 + n
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashRecord {
    /// The directory of its last name, which may be in the trash as well, or gone.
    pub directory: Inode,
    /// When the name was removed or replaced.
    pub removed: Timestamp,
    /// It is deleted from then on, in seconds since 1970.
    pub until: u64,
    /// The user that removed or replaced it.
    pub by: u32,
    /// Its last name.
    pub name: Bytes,
}

impl Record for TrashRecord {
    const TAG: u8 = tag::TRASH;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(37 + self.name.len());
        out.push(VERSION);
        out.extend(self.directory.0.to_le_bytes());
        out.extend(self.removed.seconds.to_le_bytes());
        out.extend(self.removed.nanos.to_le_bytes());
        out.extend(self.until.to_le_bytes());
        out.extend(self.by.to_le_bytes());
        put_bytes(&mut out, &self.name);
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        let record = TrashRecord {
            directory: Inode(fields.u64()?),
            removed: Timestamp {
                seconds: fields.i64()?,
                nanos: fields.u32()?,
            },
            until: fields.u64()?,
            by: fields.u32()?,
            name: fields.bytes()?,
        };
        if record.name.is_empty() {
            return Err(fields.corrupt("has an empty name"));
        }
        Ok(record)
    }
}

/// Marks an object in the trash, under the time until which it stays there.
///
/// ```text
/// version: 1 (1)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrashUntil;

/// Marks a regular file in the trash, under the user that owns it: users list their own files without reading all entries.
///
/// ```text
/// version: 1 (1)
/// ```
///
/// Versions before this mark have none. A mark without an entry is of no importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrashOwner;

impl Record for TrashOwner {
    const TAG: u8 = tag::TRASH_OWNER;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(TrashOwner)
    }
}

impl Record for TrashUntil {
    const TAG: u8 = tag::TRASH_UNTIL;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(TrashUntil)
    }
}
