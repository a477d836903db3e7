//! The report of a check: it counts every finding and keeps some of each kind.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_meta::record::VolumeState;
use forebay_types::{CommitNumber, Inode, VolumeId};
use serde::Serialize;

use crate::finding::{Finding, Sink};

/// Findings by kind.
#[derive(Debug, Default)]
pub struct Findings {
    /// Most findings of each kind that are kept.
    limit: usize,
    kinds: BTreeMap<&'static str, OfKind>,
}

#[derive(Debug, Default)]
struct OfKind {
    count: u64,
    kept: Vec<Finding>,
}

impl Findings {
    /// Keeps at most `limit` findings of each kind.
    pub fn keeping(limit: usize) -> Findings {
        Findings {
            limit,
            kinds: BTreeMap::new(),
        }
    }

    /// Number of all findings.
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|of_kind| of_kind.count).sum()
    }

    /// For each kind: its name, the number of findings, and the findings that were kept.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64, &[Finding])> {
        self.kinds
            .iter()
            .map(|(name, of_kind)| (*name, of_kind.count, of_kind.kept.as_slice()))
    }

    /// The objects that the kept findings are about.
    pub(crate) fn inodes(&self) -> BTreeSet<Inode> {
        let kept = self.kinds.values().flat_map(|of_kind| &of_kind.kept);
        kept.filter_map(Finding::inode).collect()
    }
}

impl Sink for Findings {
    fn found(&mut self, finding: Finding) {
        let of_kind = self.kinds.entry(finding.name()).or_default();
        of_kind.count += 1;
        if of_kind.kept.len() < self.limit {
            of_kind.kept.push(finding);
        }
    }
}

/// A number of things, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Number of things.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The content of the volume, and objects beside it. None of it is a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Census {
    /// Objects: files, directories and others.
    pub objects: u64,
    /// Directories among them.
    pub directories: u64,
    /// Names.
    pub names: u64,
    /// Block maps, and the bytes that they refer to.
    pub block_maps: Amount,
    /// Removed files whose block maps are still to be collected.
    pub garbage: u64,
    /// Packs with an account, and their bytes in the bucket.
    pub packs: Amount,
    /// Packs that are noted to be deleted.
    pub dead_packs: u64,
    /// Snapshots, also those that are being deleted.
    pub snapshots: u64,
    /// Dead packs that stay in the bucket because snapshots refer to them.
    pub held_packs: Amount,
    /// Packs in the bucket that the metadata do not name and never will: left over by gateways of earlier epochs.
    pub unreferenced_packs: Amount,
    /// Packs of the newest epoch that the metadata do not name yet: on their way to a checkpoint, or left over by a
    /// crash.
    pub packs_under_way: Amount,
    /// Objects below `packs/` that are no packs.
    pub foreign_objects: Amount,
    /// Frames that were read and verified, and their stored bytes.
    pub frames_read: Amount,
    /// Passes over the metadata: more than one if they do not fit the memory limit.
    pub passes: u64,
}

/// The dead packs that a snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBy {
    /// The number of the snapshot.
    pub snapshot: u64,
    /// Its name.
    pub name: String,
    /// Bytes that its deletion gives back.
    pub unique_bytes: u64,
    /// Bytes of all packs that stay for it, also those that other snapshots refer to.
    pub held_bytes: u64,
}

/// The outcome of a check.
#[derive(Debug)]
pub struct Report {
    /// The volume.
    pub volume: VolumeId,
    /// Its state at the checked moment; `None` if it cannot be read.
    pub state: Option<VolumeState>,
    /// Whether a note in the bucket kept the metadata of the moment from being deleted.
    pub pinned: bool,
    /// Whether all live frames were read.
    pub read_data: bool,
    /// The findings.
    pub findings: Findings,
    /// Number of block maps that cannot be read, so that their references are not known.
    pub unreadable_maps: u64,
    /// The last commit that its snapshots and packs name.
    pub last_commit: CommitNumber,
    /// The content of the volume.
    pub census: Census,
    /// What each snapshot holds, the oldest first; without those that are being deleted.
    pub held_by: Vec<HeldBy>,
    /// Paths of objects that findings are about, of those that have one.
    pub paths: HashMap<Inode, String>,
}

impl Report {
    /// Whether everything fits together.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }
}
