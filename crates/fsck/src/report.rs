//! The outcome of a check: every finding is counted, and some of each kind are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_meta::record::VolumeState;
use forebay_types::{Inode, VolumeId};
use serde::Serialize;

use crate::finding::{Finding, Sink};

/// What was found, kind by kind.
#[derive(Debug, Default)]
pub struct Findings {
    /// Most that are kept of each kind.
    limit: usize,
    kinds: BTreeMap<&'static str, OfKind>,
}

#[derive(Debug, Default)]
struct OfKind {
    count: u64,
    kept: Vec<Finding>,
}

impl Findings {
    /// Keeps at most `limit` of each kind.
    pub fn keeping(limit: usize) -> Findings {
        Findings {
            limit,
            kinds: BTreeMap::new(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|of_kind| of_kind.count).sum()
    }

    /// Of each kind: its name, how many there are, and those that were kept.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64, &[Finding])> {
        self.kinds
            .iter()
            .map(|(name, of_kind)| (*name, of_kind.count, of_kind.kept.as_slice()))
    }

    /// The objects that those which were kept are about.
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

/// How many of something, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many.
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

/// What there is in the volume and beside it. None of it is a finding.
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
    /// Packs that are noted down to be deleted.
    pub dead_packs: u64,
    /// Packs in the bucket that nothing knows and nobody is going to: left over by gateways of earlier epochs.
    pub unreferenced_packs: Amount,
    /// Packs of the newest epoch that nothing knows yet: on their way to a checkpoint, or left over by a crash.
    pub packs_under_way: Amount,
    /// Objects among the packs that are none.
    pub foreign_objects: Amount,
    /// Frames that were read and verified, and their stored bytes.
    pub frames_read: Amount,
    /// Passes over the metadata: more than one if they do not fit the memory that was allowed.
    pub passes: u64,
}

/// The outcome of a check.
#[derive(Debug)]
pub struct Report {
    /// The volume.
    pub volume: VolumeId,
    /// Its state at the moment that was looked at; none if it cannot be read.
    pub state: Option<VolumeState>,
    /// Whether a note in the bucket kept what was looked at from being deleted.
    pub pinned: bool,
    /// Whether all live frames were read.
    pub read_data: bool,
    /// What does not fit together.
    pub findings: Findings,
    /// Block maps that cannot be read: what they refer to is not known.
    pub unreadable_maps: u64,
    /// What there is.
    pub census: Census,
    /// Paths of objects that findings are about, as far as they have one.
    pub paths: HashMap<Inode, String>,
}

impl Report {
    /// Whether everything fits together.
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }
}
