//! The snapshots of the volume, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use forebay_meta::record::{MAX_SNAPSHOT_NAME, PackLife, SnapshotRecord, holder};
use forebay_types::SnapshotId;
use forebay_vfs::Timestamp;
use parking_lot::Mutex;

/// A snapshot, and whether the bucket has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) record: SnapshotRecord,
    pub(crate) is_published: bool,
    /// Whether no clone needs it, and its state is not kept any more, or not for long: it holds no pack that dies.
    pub(crate) is_released: bool,
}

/// All snapshots of one volume, by their numbers.
#[derive(Debug)]
pub(crate) struct SnapshotList(Mutex<Snapshots>);

#[derive(Debug)]
struct Snapshots {
    last: SnapshotId,
    /// When the volume was opened, and a nanosecond for each snapshot that was made or deleted since.
    changed: Timestamp,
    listed: BTreeMap<SnapshotId, Listed>,
}

impl SnapshotList {
    /// The published snapshots of a volume that is opened `now`. The last one has or had the number `last`; 0 if it had
    /// none.
    pub(crate) fn new(
        last: u64,
        now: Timestamp,
        published: impl IntoIterator<Item = (SnapshotId, SnapshotRecord)>,
    ) -> SnapshotList {
        let listed = published.into_iter().map(|(id, record)| {
            let listed = Listed {
                record,
                is_published: true,
                is_released: false,
            };
            (id, listed)
        });
        SnapshotList(Mutex::new(Snapshots {
            last: SnapshotId(last),
            changed: now,
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
        snapshots.change();
        let listed = Listed {
            record,
            is_published: false,
            is_released: false,
        };
        snapshots.listed.insert(id, listed);
    }

    /// Notes that the bucket has the snapshot with this record.
    pub(crate) fn set_published(&self, id: SnapshotId, record: SnapshotRecord) {
        let listed = Listed {
            record,
            is_published: true,
            is_released: false,
        };
        let mut snapshots = self.0.lock();
        if listed.record.is_being_deleted {
            snapshots.change();
        }
        snapshots.listed.insert(id, listed);
    }

    /// Notes that no clone needs a snapshot that is being deleted: from now on it holds no pack that dies.
    pub(crate) fn set_released(&self, id: SnapshotId) {
        if let Some(one) = self.0.lock().listed.get_mut(&id) {
            one.is_released = true;
        }
    }

    /// Forgets a snapshot that was deleted.
    pub(crate) fn remove(&self, id: SnapshotId) {
        self.0.lock().listed.remove(&id);
    }

    /// Number of snapshots that the bucket does not have yet.
    pub(crate) fn unpublished(&self) -> usize {
        let snapshots = self.0.lock();
        let listed = snapshots.listed.values();
        listed.filter(|one| !one.is_published).count()
    }

    /// The snapshot with this name, unless it is being deleted.
    pub(crate) fn named(&self, name: &str) -> Option<(SnapshotId, Listed)> {
        let snapshots = self.0.lock();
        let mut listed = snapshots.listed.iter();
        let found = listed.find(|(_, one)| one.record.name == name && !one.record.is_being_deleted);
        found.map(|(id, one)| (*id, one.clone()))
    }

    /// The snapshot that a command names: by its name, or by its number if none has that name. None that is being deleted.
    pub(crate) fn given(&self, name_or_number: &str) -> Option<(SnapshotId, Listed)> {
        let numbered = || {
            let id = SnapshotId(name_or_number.parse().ok()?);
            let snapshots = self.0.lock();
            let one = snapshots.listed.get(&id)?;
            (!one.record.is_being_deleted).then(|| (id, one.clone()))
        };
        self.named(name_or_number).or_else(numbered)
    }

    /// The name of a snapshot that is not being deleted, and whether the bucket has it.
    pub(crate) fn name(&self, id: SnapshotId) -> Option<(String, bool)> {
        let snapshots = self.0.lock();
        let one = snapshots.listed.get(&id)?;
        (!one.record.is_being_deleted).then(|| (one.record.name.clone(), one.is_published))
    }

    /// Whether there is a snapshot with this number, and it is not being deleted.
    pub(crate) fn has(&self, id: SnapshotId) -> bool {
        let snapshots = self.0.lock();
        let one = snapshots.listed.get(&id);
        one.is_some_and(|one| !one.record.is_being_deleted)
    }

    /// The snapshots with numbers above `after` that are not being deleted, at most `max`.
    pub(crate) fn names_after(&self, after: u64, max: usize) -> Vec<(SnapshotId, Bytes)> {
        let snapshots = self.0.lock();
        let later = (Bound::Excluded(SnapshotId(after)), Bound::Unbounded);
        let later = snapshots.listed.range(later);
        later
            .filter(|(_, one)| !one.record.is_being_deleted)
            .take(max)
            .map(|(id, one)| (*id, Bytes::copy_from_slice(one.record.name.as_bytes())))
            .collect()
    }

    /// A time that changes whenever a snapshot is made or deleted.
    pub(crate) fn changed(&self) -> Timestamp {
        self.0.lock().changed
    }

    /// The snapshot whose deletion goes on or begins next: one whose deletion has begun, or else `ordered`.
    pub(crate) fn next_to_delete(
        &self,
        ordered: Option<SnapshotId>,
        deferred: &BTreeSet<SnapshotId>,
    ) -> Option<(SnapshotId, Listed)> {
        let snapshots = self.0.lock();
        let mut listed = snapshots.listed.iter();
        let begun = listed.find(|(id, one)| one.record.is_being_deleted && !deferred.contains(id));
        let next = begun.or_else(|| snapshots.listed.get_key_value(&ordered?));
        next.map(|(id, one)| (*id, one.clone()))
    }

    /// All snapshots, the oldest first.
    pub(crate) fn all(&self) -> Vec<(SnapshotId, Listed)> {
        let snapshots = self.0.lock();
        let listed = snapshots.listed.iter();
        listed.map(|(id, one)| (*id, one.clone())).collect()
    }

    /// The names of the published snapshots that refer to a pack with this life, the oldest first.
    pub(crate) fn referring(&self, life: &PackLife) -> Vec<String> {
        let snapshots = self.0.lock();
        let published = snapshots
            .listed
            .values()
            .filter(|one| one.is_published && !one.record.is_being_deleted);
        let referring = published.filter(|one| life.is_seen_by(one.record.commit));
        referring.map(|one| one.record.name.clone()).collect()
    }

    /// Number of snapshots, with those whose deletion has begun.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().listed.len()
    }

    /// The snapshot that holds a dead pack: the newest one that refers to it. One that is being deleted counts until it is
    /// [released](SnapshotList::set_released): a clone may need it.
    pub(crate) fn holder(&self, life: &PackLife) -> Option<SnapshotId> {
        let snapshots = self.0.lock();
        let holding = snapshots.listed.iter().filter(|(_, one)| {
            // Of an unpublished one no pack is dead yet.
            one.is_published && !one.is_released
        });
        holder(life, holding.map(|(id, one)| (*id, one.record.commit)))
    }

    /// Whether a snapshot that was released refers to a pack with this life. That is known in memory alone.
    pub(crate) fn is_seen_by_released(&self, life: &PackLife) -> bool {
        let snapshots = self.0.lock();
        let mut released = snapshots.listed.values().filter(|one| one.is_released);
        released.any(|one| life.is_seen_by(one.record.commit))
    }
}

impl Snapshots {
    /// To be called when a name comes or goes. The time only has to differ from the one before, so that clients notice.
    fn change(&mut self) {
        const SECOND: u32 = 1_000_000_000;
        let nanos = self.changed.nanos + 1;
        self.changed.seconds += i64::from(nanos / SECOND);
        self.changed.nanos = nanos % SECOND;
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
        let list = SnapshotList::new(4, Timestamp::default(), published);
        let opened = list.changed();
        assert_eq!(list.next(), SnapshotId(5), "numbers are not used again");
        list.add(SnapshotId(5), record("made", 0));
        let given = |text| list.given(text).map(|(id, _)| id.0);
        assert_eq!(
            (given("old"), given("1"), given("5")),
            (Some(1), Some(1), Some(5))
        );
        assert_eq!((given("3"), given("-1"), given("")), (None, None, None));
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
        let holder = list.holder(&life(0, 9));
        assert_eq!(holder, Some(SnapshotId(2)), "a clone may need it");
        assert!(!list.is_seen_by_released(&life(0, 9)));
        list.set_released(SnapshotId(2));
        assert_eq!(list.holder(&life(0, 9)), Some(SnapshotId(1)));
        assert!(list.is_seen_by_released(&life(0, 9)));
        assert!(!list.is_seen_by_released(&life(0, 6)));
        assert!(list.named("new").is_none(), "its name is free");
        assert!(list.given("2").is_none());
        assert!(!list.has(SnapshotId(2)));
        assert_ne!(list.changed(), opened);
        let names = list.names_after(1, 9);
        assert_eq!(names, [(SnapshotId(5), "made".into())]);
        let next = list
            .next_to_delete(Some(SnapshotId(1)), &BTreeSet::new())
            .map(|(id, _)| id);
        assert_eq!(next, Some(SnapshotId(2)));
        assert!(list.named("made").is_some_and(|(_, one)| !one.is_published));
        list.set_published(SnapshotId(5), record("made", 8));
        assert_eq!(list.holder(&life(0, 9)), Some(SnapshotId(5)));
        list.remove(SnapshotId(2));
        assert_eq!(list.len(), 2);
        list.add(SnapshotId(6), record("1", 0));
        let given = list.given("1").map(|(id, _)| id);
        assert_eq!(given, Some(SnapshotId(6)), "a name comes before a number");
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
