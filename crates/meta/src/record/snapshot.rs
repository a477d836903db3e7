//! Snapshots, and packs that they hold.
//!
//! From the first snapshot on, a volume counts its commits. A pack was born with the commit that opened its account, and
//! dies with the one that removed it. A snapshot refers to the pack if its own commit lies between: at or after the
//! birth, and before the death.

use bytes::Bytes;
use forebay_types::{CommitNumber, Lsn, SnapshotId};

use super::{Record, Timestamp, ValueReader};
use crate::codec::put_bytes;
use crate::error::Corrupt;
use crate::key::tag;

const VERSION: u8 = 1;

/// Longest name of a snapshot, in bytes.
pub const MAX_SNAPSHOT_NAME: usize = 128;

/// Most snapshots of a volume. Each commit writes a list of all of them.
pub const MAX_SNAPSHOTS: usize = 1024;

/// The name under which the store of metadata [keeps](crate::MetaStore::keep) the state of a snapshot.
pub fn kept_name(id: SnapshotId) -> String {
    format!("forebay-snapshot-{id}")
}

/// A snapshot of the whole volume, found by its number.
///
/// ```text
/// version: 1 (1)    is being deleted: 1 (0 or 1)    commit: 8    LSN: 8
/// used bytes: 8     used inodes: 8                  made: 8 + 4  (seconds, nanoseconds)
/// name: 4 + n       made by: 4 + n
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Whether its deletion has begun: nothing can be read from it.
    pub is_being_deleted: bool,
    /// The commit that published its state.
    pub commit: CommitNumber,
    /// It holds exactly the changes that were recorded before this position of the log.
    pub lsn: Lsn,
    /// Bytes of its files, as the volume counted them.
    pub used_bytes: u64,
    /// Number of its objects.
    pub used_inodes: u64,
    /// When it was made, in UTC.
    pub made: Timestamp,
    /// Its name, which no other snapshot has: UTF-8, at most [`MAX_SNAPSHOT_NAME`] bytes.
    pub name: String,
    /// The person or the schedule that asked for it, for people.
    pub made_by: String,
}

impl Record for SnapshotRecord {
    const TAG: u8 = tag::SNAPSHOT;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(54 + self.name.len() + self.made_by.len());
        out.extend([VERSION, u8::from(self.is_being_deleted)]);
        for number in [self.commit.0, self.lsn.0, self.used_bytes, self.used_inodes] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.made.seconds.to_le_bytes());
        out.extend(self.made.nanos.to_le_bytes());
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(&mut out, self.made_by.as_bytes());
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        let is_being_deleted = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(fields.corrupt("has an unknown state of a snapshot")),
        };
        let mut record = SnapshotRecord {
            is_being_deleted,
            commit: CommitNumber(fields.u64()?),
            lsn: Lsn(fields.u64()?),
            used_bytes: fields.u64()?,
            used_inodes: fields.u64()?,
            made: Timestamp {
                seconds: fields.i64()?,
                nanos: fields.u32()?,
            },
            name: String::new(),
            made_by: String::new(),
        };
        for text in [&mut record.name, &mut record.made_by] {
            let bytes = fields.bytes()?.to_vec();
            *text = String::from_utf8(bytes)
                .map_err(|_| fields.corrupt("has a text that is not UTF-8"))?;
        }
        Ok(record)
    }
}

/// Birth and death of a pack.
///
/// ```text
/// version: 1 (1)   born: 8   died: 8   bytes: 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLife {
    /// The commit that opened its account; 0 if it was opened before commits were counted.
    pub born: CommitNumber,
    /// The commit that removed its account.
    pub died: CommitNumber,
    /// Size of the object in the bucket.
    pub bytes: u64,
}

impl PackLife {
    /// Whether a snapshot with this commit refers to the pack.
    pub fn is_seen_by(&self, snapshot: CommitNumber) -> bool {
        self.born <= snapshot && snapshot < self.died
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for number in [self.born.0, self.died.0, self.bytes] {
            out.extend(number.to_le_bytes());
        }
    }

    pub(super) fn take(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        Ok(PackLife {
            born: CommitNumber(fields.u64()?),
            died: CommitNumber(fields.u64()?),
            bytes: fields.u64()?,
        })
    }
}

/// A dead pack that stays in the bucket because snapshots refer to it.
///
/// ```text
/// version: 1 (1)   holder: 8   born: 8   died: 8   bytes: 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPack {
    /// The newest snapshot that refers to it.
    pub holder: SnapshotId,
    /// Its life.
    pub life: PackLife,
}

impl Record for HeldPack {
    const TAG: u8 = tag::HELD_PACK;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(33);
        out.push(VERSION);
        out.extend(self.holder.0.to_le_bytes());
        self.life.put(&mut out);
        out.into()
    }

    fn read(fields: &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.0.version(VERSION)?;
        Ok(HeldPack {
            holder: SnapshotId(fields.0.u64()?),
            life: PackLife::take(fields)?,
        })
    }
}

/// Marks a held pack, under its holder.
///
/// ```text
/// version: 1 (1)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding;

impl Record for Holding {
    const TAG: u8 = tag::HOLDING;

    fn encode(&self) -> Bytes {
        Bytes::from_static(&[VERSION])
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        fields.version(VERSION)?;
        Ok(Holding)
    }
}

/// The newest of these snapshots that refers to a dead pack: the one that holds it. `snapshots` are in any order.
pub fn holder(
    life: &PackLife,
    snapshots: impl IntoIterator<Item = (SnapshotId, CommitNumber)>,
) -> Option<SnapshotId> {
    let seeing = snapshots
        .into_iter()
        .filter(|(_, commit)| life.is_seen_by(*commit));
    seeing.max_by_key(|(_, commit)| *commit).map(|(id, _)| id)
}
