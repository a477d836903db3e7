//! Where a clone comes from.
//!
//! A clone has packs and tables in common with its source, which lie under the source's prefix. Packs and tables have
//! the identity of the volume that has none before it in the line, the *content identity*; everything else of the clone
//! has its own. A pack's number has the epoch in which it was written: those up to `last_epoch` of a source lie there
//! (those of an earlier source up to that one's), all later ones under the clone's own prefix.

use forebay_types::{Epoch, SnapshotId, VolumeId};
use serde::{Deserialize, Serialize};

/// Most volumes in the line of a clone.
pub const MAX_SOURCES: usize = 64;

/// Where a clone comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The identity of its packs and tables.
    pub content: VolumeId,
    /// The volumes that have packs and tables of it, the oldest first; none once it is detached.
    pub sources: Vec<SourceVolume>,
}

/// A volume that has packs and tables of a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceVolume {
    /// Its prefix in the same bucket, or its folder.
    pub at: String,
    /// Its identity.
    pub volume: VolumeId,
    /// The snapshot that it must keep for the clone.
    pub snapshot: SnapshotId,
    /// Packs of later epochs are not of this volume.
    pub last_epoch: Epoch,
}

/// A source as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceText {
    at: String,
    volume: String,
    snapshot: u64,
    last_epoch: u64,
}

impl From<&SourceVolume> for SourceText {
    fn from(source: &SourceVolume) -> SourceText {
        SourceText {
            at: source.at.clone(),
            volume: source.volume.to_string(),
            snapshot: source.snapshot.0,
            last_epoch: source.last_epoch.0,
        }
    }
}

impl Origin {
    /// Reads it; `None` if it cannot be one.
    pub(super) fn read(content: &str, sources: Vec<SourceText>) -> Option<Origin> {
        if sources.len() > MAX_SOURCES || !sources.is_sorted_by_key(|source| source.last_epoch) {
            return None;
        }
        let sources = sources.into_iter().map(|source| {
            Some(SourceVolume {
                at: source.at,
                volume: source.volume.parse().ok()?,
                snapshot: SnapshotId(source.snapshot),
                last_epoch: Epoch(source.last_epoch),
            })
        });
        Some(Origin {
            content: content.parse().ok()?,
            sources: sources.collect::<Option<_>>()?,
        })
    }
}
