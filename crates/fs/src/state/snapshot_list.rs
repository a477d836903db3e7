//! The snapshots of the volume, in memory.

use std::collections::BTreeMap;

use forebay_meta::record::{MAX_SNAPSHOT_NAME, PackLife, SnapshotRecord, holder};
use forebay_types::SnapshotId;
use parking_lot::Mutex;

/// How many snapshots a volume may have. Each commit writes a list of all of them.
pub(crate) const MAX_SNAPSHOTS: usize = 1024;

/// A snapshot, and whether the bucket has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) record: SnapshotRecord,
    pub(crate) is_published: bool,
}

/// All snapshots of one volume, by their numbers.
#[derive(Debug)]
pub(crate) struct SnapshotList(Mutex<Snapshots>);

#[derive(Debug)]
struct Snapshots {
    last: SnapshotId,
    listed: BTreeMap<SnapshotId, Listed>,
}

impl SnapshotList {
    /// The published snapshots of a volume, the last of which has or had the number `last`; 0 if it had none.
    pub(crate) fn new(
        last: u64,
        published: impl IntoIterator<Item = (SnapshotId, SnapshotRecord)>,
    ) -> SnapshotList {
        let listed = published.into_iter().map(|(id, record)| {
            let is_published = true;
            let listed = Listed {
                record,
                is_published,
            };
            (id, listed)
        });
        SnapshotList(Mutex::new(Snapshots {
            last: SnapshotId(last),
            listed: listed.collect(),
        }))
    }

    /// The number of the next snapshot.
    pub(super) fn next(&self) -> SnapshotId {
        self.0.lock().last.next()
    }

    /// Adds a snapshot whose record is in the log.
    pub(super) fn add(&self, id: SnapshotId, record: SnapshotRecord) {
        let mut snapshots = self.0.lock();
        snapshots.last = snapshots.last.max(id);
        let listed = Listed {
            record,
            is_published: false,
        };
        snapshots.listed.insert(id, listed);
    }

    /// Notes that the bucket has the snapshot with this record.
    pub(crate) fn set_published(&self, id: SnapshotId, record: SnapshotRecord) {
        let listed = Listed {
            record,
            is_published: true,
        };
        self.0.lock().listed.insert(id, listed);
    }

    /// Forgets a snapshot that was deleted.
    pub(crate) fn remove(&self, id: SnapshotId) {
        self.0.lock().listed.remove(&id);
    }

    /// The snapshot with this name, unless it is being deleted.
    pub(crate) fn named(&self, name: &str) -> Option<(SnapshotId, Listed)> {
        let snapshots = self.0.lock();
        let mut listed = snapshots.listed.iter();
        let found = listed.find(|(_, one)| one.record.name == name && !one.record.is_being_deleted);
        found.map(|(id, one)| (*id, one.clone()))
    }

    /// All snapshots, the oldest first.
    pub(crate) fn all(&self) -> Vec<(SnapshotId, Listed)> {
        let snapshots = self.0.lock();
        let listed = snapshots.listed.iter();
        listed.map(|(id, one)| (*id, one.clone())).collect()
    }

    /// Number of snapshots, with those whose deletion has begun.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().listed.len()
    }

    /// The snapshot that holds a dead pack: the newest one that refers to it.
    pub(crate) fn holder(&self, life: &PackLife) -> Option<SnapshotId> {
        let snapshots = self.0.lock();
        let holding = snapshots.listed.iter().filter(|(_, one)| {
            // Of an unpublished one no pack is dead yet.
            one.is_published && !one.record.is_being_deleted
        });
        holder(life, holding.map(|(id, one)| (*id, one.record.commit)))
    }
}

/// Why a text is no name of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSnapshotName {
    /// It is empty.
    #[error("the name of a snapshot is empty")]
    Empty,
    /// It is longer than [`MAX_SNAPSHOT_NAME`].
    #[error("the name of a snapshot has more than {MAX_SNAPSHOT_NAME} bytes")]
    TooLong,
    /// It begins with a dot or a hyphen.
    #[error("the name of a snapshot begins with a dot or a hyphen")]
    Beginning,
    /// It has a slash or a control character.
    #[error("the name of a snapshot has a slash or a control character")]
    Character,
}

/// Checks the name of a new snapshot. It is a name in the directory `.snapshot`, and an argument of commands.
pub(crate) fn check_name(name: &str) -> Result<(), BadSnapshotName> {
    if name.is_empty() {
        return Err(BadSnapshotName::Empty);
    }
    if name.len() > MAX_SNAPSHOT_NAME {
        return Err(BadSnapshotName::TooLong);
    }
    if name.starts_with(['.', '-']) {
        return Err(BadSnapshotName::Beginning);
    }
    if name.contains(|c: char| c == '/' || c.is_control()) {
        return Err(BadSnapshotName::Character);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use forebay_types::CommitNumber;

    use super::*;

    fn record(name: &str, commit: u64) -> SnapshotRecord {
        SnapshotRecord {
            is_being_deleted: false,
            commit: CommitNumber(commit),
            lsn: forebay_types::Lsn(0),
            used_bytes: 0,
            used_inodes: 0,
            made: Default::default(),
            name: name.to_owned(),
            made_by: String::new(),
        }
    }

    #[test]
    fn only_published_snapshots_that_stay_hold_packs() {
        let published = [
            (SnapshotId(1), record("old", 3)),
            (SnapshotId(2), record("new", 6)),
        ];
        let list = SnapshotList::new(4, published);
        assert_eq!(list.next(), SnapshotId(5), "numbers are not used again");
        list.add(SnapshotId(5), record("made", 0));
        let life = |born, died| PackLife {
            born: CommitNumber(born),
            died: CommitNumber(died),
            bytes: 1,
        };
        assert_eq!(list.holder(&life(0, 9)), Some(SnapshotId(2)));
        assert_eq!(list.holder(&life(0, 6)), Some(SnapshotId(1)));
        assert_eq!(list.holder(&life(4, 6)), None);
        let deleting = SnapshotRecord {
            is_being_deleted: true,
            ..record("new", 6)
        };
        list.set_published(SnapshotId(2), deleting);
        assert_eq!(list.holder(&life(0, 9)), Some(SnapshotId(1)));
        assert!(list.named("new").is_none(), "its name is free");
        assert!(list.named("made").is_some_and(|(_, one)| !one.is_published));
        list.set_published(SnapshotId(5), record("made", 8));
        assert_eq!(list.holder(&life(0, 9)), Some(SnapshotId(5)));
        list.remove(SnapshotId(2));
        assert_eq!(list.len(), 2);
    }

    #[test]
    fn names_are_names_in_a_directory_and_no_options() {
        for good in ["a", "2026-11-27T09:00Z", "before the upgrade", "größe"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for (bad, why) in [
            ("", BadSnapshotName::Empty),
            (".", BadSnapshotName::Beginning),
            ("--all", BadSnapshotName::Beginning),
            ("a/b", BadSnapshotName::Character),
            ("a\nb", BadSnapshotName::Character),
            (&"x".repeat(129), BadSnapshotName::TooLong),
        ] {
            assert_eq!(check_name(bad), Err(why), "{bad:?}");
        }
    }
}
