//! State of the whole volume.

use bytes::Bytes;
use forebay_types::{Epoch, Lsn};

use super::{Record, ValueReader};
use crate::error::Corrupt;
use crate::key::tag;

/// Without the bytes that quotas count.
const VERSION: u8 = 1;
/// With them.
const VERSION_CHARGED: u8 = 2;

/// State of the whole volume, written with every checkpoint that is published.
///
/// ```text
/// version: 1         published LSN: 8    epoch: 8         gateway: 16
/// next inode: 8      next pack: 8        used bytes: 8    used inodes: 8
/// charged bytes: 8                       if the version is 2; else it is 1
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// The bucket holds exactly the state at this position of the log.
    pub published: Lsn,
    /// The newest epoch that a gateway has taken.
    pub epoch: Epoch,
    /// Identity of the gateway that holds the epoch.
    pub gateway: [u8; 16],
    /// The number that the next object gets.
    pub next_inode: u64,
    /// The number that the next pack gets.
    pub next_pack: u64,
    /// Bytes that block maps refer to, also those of removed files that are not collected yet.
    pub used_bytes: u64,
    /// Number of objects.
    pub used_inodes: u64,
    /// The sum of what [`InodeRecord::charged_bytes`](super::InodeRecord::charged_bytes) gives for all
    /// objects; `None` if a version of Forebay wrote this that did not count it.
    pub charged_bytes: Option<u64>,
}

impl Record for VolumeState {
    const TAG: u8 = tag::VOLUME;

    fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(73);
        out.push(match self.charged_bytes {
            None => VERSION,
            Some(_) => VERSION_CHARGED,
        });
        out.extend(self.published.0.to_le_bytes());
        out.extend(self.epoch.0.to_le_bytes());
        out.extend(self.gateway);
        out.extend(self.next_inode.to_le_bytes());
        out.extend(self.next_pack.to_le_bytes());
        out.extend(self.used_bytes.to_le_bytes());
        out.extend(self.used_inodes.to_le_bytes());
        out.extend(
            self.charged_bytes
                .iter()
                .flat_map(|bytes| bytes.to_le_bytes()),
        );
        out.into()
    }

    fn read(ValueReader(fields): &mut ValueReader<'_>) -> Result<Self, Corrupt> {
        let charged = fields.version_of(&[VERSION, VERSION_CHARGED])? == VERSION_CHARGED;
        Ok(VolumeState {
            published: Lsn(fields.u64()?),
            epoch: Epoch(fields.u64()?),
            gateway: fields.array()?,
            next_inode: fields.u64()?,
            next_pack: fields.u64()?,
            used_bytes: fields.u64()?,
            used_inodes: fields.u64()?,
            charged_bytes: match charged {
                true => Some(fields.u64()?),
                false => None,
            },
        })
    }
}
