//! State of the whole volume.

use bytes::Bytes;
use forebay_types::{Epoch, Lsn};

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

/// Without the charged bytes.
const VERSION: u8 = 1;
/// With the charged bytes, and without the lease of inode numbers.
const VERSION_CHARGED: u8 = 2;
/// With both.
const VERSION_LEASED: u8 = 3;

/// State of the whole volume, written with every checkpoint that is published.
///
/// ```text
/// version: 1         published LSN: 8    epoch: 8         gateway: 16
/// next inode: 8      next pack: 8        used bytes: 8    used inodes: 8
/// charged bytes: 8                       if the version is 2 or 3
/// inode lease: 8                         if the version is 3
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
    /// Number of objects.
    pub used_inodes: u64,
    /// The sum of [`InodeRecord::charged_bytes`](super::InodeRecord::charged_bytes) over all objects; `None` if a
    /// version of Forebay wrote this that did not count it.
    pub charged_bytes: Option<u64>,
}

impl Record for VolumeState {
    const TAG: u8 = tag::VOLUME;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(81);
        let lease = self.inode_lease.filter(|_| self.charged_bytes.is_some());
        out.push(match (self.charged_bytes, lease) {
            (None, _) => VERSION,
            (Some(_), None) => VERSION_CHARGED,
            (Some(_), Some(_)) => VERSION_LEASED,
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
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let version = fields.version_of(&[VERSION, VERSION_CHARGED, VERSION_LEASED])?;
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
        };
        if version >= VERSION_CHARGED {
            state.charged_bytes = Some(fields.u64()?);
        }
        if version >= VERSION_LEASED {
            state.inode_lease = Some(fields.u64()?);
        }
        Ok(state)
    }
}
