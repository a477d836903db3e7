//! State of the whole volume.

use bytes::Bytes;
use forebay_types::{CommitNumber, Epoch, Lsn};

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

/// Without the charged bytes.
const VERSION: u8 = 1;
/// With the charged bytes, and without the lease of inode numbers.
const VERSION_CHARGED: u8 = 2;
/// With both.
const VERSION_LEASED: u8 = 3;
/// With both, and the history.
const VERSION_COUNTED: u8 = 4;
/// With all that, and the trash.
const VERSION_TRASH: u8 = 5;

/// The counts of a volume that has or had snapshots; all zero before its first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The last commit. Each one that changes accounts of packs, or publishes a checkpoint, adds 1.
    pub commit: CommitNumber,
    /// The number of the last snapshot that was made; 0 if there was none.
    pub last_snapshot: u64,
    /// Bytes of dead packs in the bucket that snapshots hold.
    pub held_bytes: u64,
}

impl History {
    /// Whether the volume counts its commits.
    pub fn is_counted(&self) -> bool {
        *self != History::default()
    }
}

/// The counts of the trash; both are zero while nothing is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashTotals {
    /// The sum of [`InodeRecord::charged_bytes`](super::InodeRecord::charged_bytes) over all objects in the trash.
    pub bytes: u64,
    /// Number of objects in the trash.
    pub files: u64,
}

/// State of the whole volume, written with every checkpoint that is published.
///
/// ```text
/// version: 1         published LSN: 8    epoch: 8         gateway: 16
/// next inode: 8      next pack: 8        used bytes: 8    used inodes: 8
/// charged bytes: 8                                                      if the version is 2 to 5
/// inode lease: 8                                                        if the version is 3 to 5
/// last commit: 8     last snapshot: 8    bytes held by snapshots: 8     if the version is 4 or 5
/// bytes of the trash: 8                 objects in the trash: 8         if the version is 5
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// The bucket holds exactly the state at this position of the log.
    pub published: Lsn,
    /// The newest epoch that a gateway has taken.
    pub epoch: Epoch,
    /// Identity of the gateway that holds the epoch.
    pub gateway: [u8; 16],
    /// The number of the next object, unless it was assigned since.
    pub next_inode: u64,
    /// How many numbers, from `next_inode` on, may have been assigned since this was published; `None` if a version of
    /// Forebay wrote this that had no such limit. It is written only together with the charged bytes.
    pub inode_lease: Option<u64>,
    /// The number of the next pack.
    pub next_pack: u64,
    /// Bytes that block maps refer to, also those of removed files that are not collected yet.
    pub used_bytes: u64,
    /// Number of objects, without those in the trash.
    pub used_inodes: u64,
    /// The sum of [`InodeRecord::charged_bytes`](super::InodeRecord::charged_bytes) over all objects that are
    /// not in the trash; `None` if a
    /// version of Forebay wrote this that did not count it.
    pub charged_bytes: Option<u64>,
    /// The counts of snapshots. They are written only together with the lease.
    pub history: History,
    /// The counts of the trash. They are written only together with the lease.
    pub trash: TrashTotals,
}

impl Record for VolumeState {
    const TAG: u8 = tag::VOLUME;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(121);
        let lease = self.inode_lease.filter(|_| self.charged_bytes.is_some());
        let trash =
            Some(self.trash).filter(|trash| lease.is_some() && *trash != TrashTotals::default());
        let history = Some(self.history)
            .filter(|history| lease.is_some() && (history.is_counted() || trash.is_some()));
        out.push(match (self.charged_bytes, lease, history, trash) {
            (None, ..) => VERSION,
            (Some(_), None, ..) => VERSION_CHARGED,
            (Some(_), Some(_), None, _) => VERSION_LEASED,
            (Some(_), Some(_), Some(_), None) => VERSION_COUNTED,
            (Some(_), Some(_), Some(_), Some(_)) => VERSION_TRASH,
        });
        out.extend(self.published.0.to_le_bytes());
        out.extend(self.epoch.0.to_le_bytes());
        out.extend(self.gateway);
        out.extend(self.next_inode.to_le_bytes());
        out.extend(self.next_pack.to_le_bytes());
        out.extend(self.used_bytes.to_le_bytes());
        out.extend(self.used_inodes.to_le_bytes());
        for number in self.charged_bytes.into_iter().chain(lease) {
            out.extend(number.to_le_bytes());
        }
        if let Some(history) = history {
            out.extend(history.commit.0.to_le_bytes());
            out.extend(history.last_snapshot.to_le_bytes());
            out.extend(history.held_bytes.to_le_bytes());
        }
        if let Some(trash) = trash {
            out.extend(trash.bytes.to_le_bytes());
            out.extend(trash.files.to_le_bytes());
        }
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let version = fields.version_of(&[
            VERSION,
            VERSION_CHARGED,
            VERSION_LEASED,
            VERSION_COUNTED,
            VERSION_TRASH,
        ])?;
        let mut state = VolumeState {
            published: Lsn(fields.u64()?),
            epoch: Epoch(fields.u64()?),
            gateway: fields.array()?,
            next_inode: fields.u64()?,
            next_pack: fields.u64()?,
            used_bytes: fields.u64()?,
            used_inodes: fields.u64()?,
            charged_bytes: None,
            inode_lease: None,
            history: History::default(),
            trash: TrashTotals::default(),
        };
        if version >= VERSION_CHARGED {
            state.charged_bytes = Some(fields.u64()?);
        }
        if version >= VERSION_LEASED {
            state.inode_lease = Some(fields.u64()?);
        }
        if version >= VERSION_COUNTED {
            state.history = History {
                commit: CommitNumber(fields.u64()?),
                last_snapshot: fields.u64()?,
                held_bytes: fields.u64()?,
            };
            if version == VERSION_COUNTED && !state.history.is_counted() {
                return Err(fields.corrupt("has a history without commits"));
            }
        }
        if version >= VERSION_TRASH {
            state.trash = TrashTotals {
                bytes: fields.u64()?,
                files: fields.u64()?,
            };
            if state.trash == TrashTotals::default() {
                return Err(fields.corrupt("counts a trash without objects"));
            }
        }
        Ok(state)
    }
}
