//! Judges the counts of the volume and its trees against the sums over their objects.

use std::collections::BTreeMap;

use forebay_meta::InodeRecord;
use forebay_meta::record::{QuotaRecord, Recount, UsageRecord, VolumeState};
use forebay_types::{Inode, PackId};

use super::packs::next_pack;
use crate::finding::{Finding, Sink, VolumeCount};

/// Most trees without a quota that are counted separately; an undamaged volume has none.
const STRANGERS: usize = 10_000;

/// Why a quota is of no directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Root {
    #[default]
    NotSeen,
    Unreadable,
    NoDirectory,
    Elsewhere,
    Fine,
}

#[derive(Debug, Default)]
struct Tree {
    quota: Option<QuotaRecord>,
    /// The quota's record cannot be read, so its limits are not known.
    unreadable: bool,
    usage: UsageRecord,
    bytes: u128,
    files: u64,
    root: Root,
}

/// Sums over all objects, and the records that they are compared with. Trees come before objects.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    /// Objects in the trash, which are not among the others.
    trash_objects: u64,
    trash_bytes: u128,
    pub(crate) directories: u64,
    pub(crate) names: u64,
    pub(crate) garbage: u64,
    pub(crate) block_maps: u64,
    /// Bytes that block maps refer to.
    pub(crate) used: u128,
    charged: u128,
    highest: Option<Inode>,
    trees: BTreeMap<Inode, Tree>,
    unreadable_objects: u64,
    pub(crate) unreadable_maps: u64,
}

impl Totals {
    /// Takes the limits of a tree; `None` if the record cannot be read.
    pub(crate) fn quota(&mut self, root: Inode, record: Option<QuotaRecord>) {
        let tree = self.trees.entry(root).or_default();
        tree.unreadable |= record.is_none();
        tree.quota = record;
    }

    /// Takes the recorded usage of a tree; `None` if the record cannot be read.
    pub(crate) fn usage(&mut self, root: Inode, record: Option<UsageRecord>) {
        let tree = self.trees.entry(root).or_default();
        tree.unreadable |= record.is_none();
        tree.usage = record.unwrap_or_default();
    }

    /// Whether there is any quota.
    pub(crate) fn has_trees(&self) -> bool {
        !self.trees.is_empty()
    }

    /// Whether objects on either side of this tree's border may for now be counted on the wrong side.
    pub(crate) fn is_unsettled(&self, tree: Option<Inode>) -> bool {
        let tree = tree.and_then(|root| self.trees.get(&root));
        tree.is_some_and(|tree| {
            tree.unreadable
                || tree
                    .quota
                    .is_some_and(|quota| quota.recount != Recount::Done)
        })
    }

    /// Takes an object; `None` for its record if that cannot be read.
    pub(crate) fn object(&mut self, inode: Inode, record: Option<&InodeRecord>) {
        self.highest = self.highest.max(Some(inode));
        if let Some(tree) = self.trees.get_mut(&inode) {
            tree.root = match record {
                None => Root::Unreadable,
                Some(record) if record.directory().is_none() => Root::NoDirectory,
                Some(record) if record.tree != Some(inode) => Root::Elsewhere,
                Some(_) => Root::Fine,
            };
        }
        let Some(record) = record else {
            self.objects += 1;
            self.unreadable_objects += 1;
            return;
        };
        self.directories += u64::from(record.directory().is_some());
        let bytes = u128::from(record.charged_bytes());
        if record.is_in_trash() {
            self.trash_objects += 1;
            self.trash_bytes += bytes;
        } else {
            self.objects += 1;
            self.charged += bytes;
        }
        let Some(root) = record.tree else { return };
        if self.trees.len() < STRANGERS || self.trees.contains_key(&root) {
            let tree = self.trees.entry(root).or_default();
            tree.bytes += bytes;
            tree.files += 1;
        }
    }

    /// Takes a removed file.
    pub(crate) fn garbage(&mut self, inode: Inode) {
        self.garbage += 1;
        self.highest = self.highest.max(Some(inode));
    }

    /// Takes a block map, which refers to `bytes` bytes.
    pub(crate) fn block_map(&mut self, bytes: u64) {
        self.block_maps += 1;
        self.used += u128::from(bytes);
    }

    /// Takes a block map that cannot be read.
    pub(crate) fn unreadable_map(&mut self) {
        self.block_maps += 1;
        self.unreadable_maps += 1;
    }

    /// Whether sums over block maps are incomplete.
    pub(crate) fn maps_are_unknown(&self) -> bool {
        self.unreadable_maps > 0
    }

    /// Compares the sums. `highest_pack` is the pack with the highest number that the metadata know.
    pub(crate) fn finish(
        &self,
        state: Option<&VolumeState>,
        highest_pack: Option<PackId>,
        sink: &mut dyn Sink,
    ) {
        match state {
            Some(state) => self.judge_state(state, highest_pack, sink),
            None => sink.found(Finding::NoVolumeState),
        }
        for (root, tree) in &self.trees {
            self.judge_tree(*root, tree, sink);
        }
    }

    fn judge_state(&self, state: &VolumeState, highest_pack: Option<PackId>, sink: &mut dyn Sink) {
        let mut compare = |count, says: u64, is: u128| {
            if u128::from(says) != is {
                let is = u64::try_from(is).unwrap_or(u64::MAX);
                sink.found(Finding::WrongVolumeCount { count, says, is });
            }
        };
        let objects = u128::from(self.objects);
        compare(VolumeCount::Objects, state.used_inodes, objects);
        if !self.maps_are_unknown() {
            compare(VolumeCount::UsedBytes, state.used_bytes, self.used);
        }
        if let Some(charged) = state.charged_bytes
            && self.unreadable_objects == 0
        {
            compare(VolumeCount::ChargedBytes, charged, self.charged);
        }
        if self.unreadable_objects == 0 {
            let says = state.trash;
            let objects = u128::from(self.trash_objects);
            compare(VolumeCount::TrashObjects, says.files, objects);
            compare(VolumeCount::TrashBytes, says.bytes, self.trash_bytes);
        }
        let next = state.next_inode;
        if let Some(highest) = self.highest.filter(|highest| highest.0 >= next) {
            sink.found(Finding::NextInodeTooLow { next, highest });
        }
        let next = next_pack(state);
        if let Some(highest) = highest_pack.filter(|highest| *highest >= next) {
            sink.found(Finding::NextPackTooLow { next, highest });
        }
    }

    fn judge_tree(&self, inode: Inode, tree: &Tree, sink: &mut dyn Sink) {
        if tree.unreadable {
            return;
        }
        if tree.quota.is_some() {
            let why = match tree.root {
                Root::NotSeen => Some("which does not exist"),
                Root::NoDirectory => Some("which is not a directory"),
                Root::Elsewhere => Some("which does not count in it"),
                Root::Unreadable | Root::Fine => None,
            };
            if let Some(why) = why {
                sink.found(Finding::QuotaOfNoDirectory { inode, why });
            }
        } else if tree.files > 0 {
            let files = tree.files;
            sink.found(Finding::TreeWithoutQuota { inode, files });
        }
        let says = tree.usage;
        let differs = u128::from(says.bytes) != tree.bytes || says.files != tree.files;
        if differs && self.unreadable_objects == 0 {
            sink.found(Finding::WrongUsage {
                inode,
                says_bytes: says.bytes,
                says_files: says.files,
                is_bytes: u64::try_from(tree.bytes).unwrap_or(u64::MAX),
                is_files: tree.files,
            });
        }
    }
}
