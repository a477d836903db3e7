//! Judges snapshots, which of them holds each dead pack, and the numbers in the history of the volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_meta::held::Sums;
use forebay_meta::record::{
    DeadPack, HeldPack, PackLife, PackRecord, SnapshotRecord, VolumeState, holder,
};
use forebay_types::{CommitNumber, PackId, SnapshotId};

use crate::finding::{Finding, HistoryCount, Sink, VolumeCount};
use crate::report::HeldBy;

/// A snapshot whose record can be read.
#[derive(Clone, Debug)]
struct Row {
    id: SnapshotId,
    commit: CommitNumber,
    is_being_deleted: bool,
    name: Arc<str>,
}

/// A snapshot that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: SnapshotId,
    pub(crate) commit: CommitNumber,
    pub(crate) name: Arc<str>,
}

/// The snapshots of the volume: a thousand or so. They come before the packs.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    rows: Vec<Row>,
    names: BTreeMap<String, SnapshotId>,
    unreadable: u64,
    /// The last commit that a record names.
    pub(crate) last_commit: CommitNumber,
    last_snapshot: u64,
    /// Bytes of held packs.
    held_bytes: u128,
    unreadable_held: u64,
    /// What each snapshot holds; `None` before the first held pack.
    sums: Option<Sums>,
}

impl Snapshots {
    /// Takes a snapshot, in the order of their numbers; `None` if its record cannot be read.
    pub(crate) fn snapshot(
        &mut self,
        id: SnapshotId,
        record: Option<&SnapshotRecord>,
        sink: &mut dyn Sink,
    ) {
        self.last_snapshot = self.last_snapshot.max(id.0);
        let Some(record) = record else {
            self.unreadable += 1;
            return;
        };
        self.saw(record.commit);
        self.rows.push(Row {
            id,
            commit: record.commit,
            is_being_deleted: record.is_being_deleted,
            name: record.name.as_str().into(),
        });
        // The name of one that is being deleted is free.
        if record.is_being_deleted {
            return;
        }
        if let Some(first) = self.names.get(&record.name) {
            sink.found(Finding::SnapshotsWithOneName {
                snapshot: id,
                first: *first,
                name: record.name.clone(),
            });
        } else {
            self.names.insert(record.name.clone(), id);
        }
    }

    /// Takes the account of a pack; `None` if it cannot be read.
    pub(crate) fn account(&mut self, record: Option<&PackRecord>) {
        self.saw(record.map_or_else(CommitNumber::default, |record| record.born));
    }

    /// Takes a pack that is to be deleted; `None` if its record cannot be read.
    pub(crate) fn dead(&mut self, record: Option<&DeadPack>) {
        if let Some(life) = record.and_then(|record| record.life) {
            self.lived(&life);
        }
    }

    /// Judges the holder of a held pack; `None` if its record cannot be read.
    pub(crate) fn held(&mut self, pack: PackId, record: Option<&HeldPack>, sink: &mut dyn Sink) {
        let Some(record) = record else {
            self.unreadable_held += 1;
            return;
        };
        self.held_bytes += u128::from(record.life.bytes);
        if self.sums.is_none() {
            self.sums = Some(self.no_sums());
        }
        if let Some(sums) = &mut self.sums {
            sums.add(&record.life);
        }
        self.lived(&record.life);
        // It is not known to which packs an unreadable snapshot refers.
        if self.unreadable > 0 {
            return;
        }
        let (says, is) = (record.holder, self.holder(record));
        if is != Some(says) {
            sink.found(Finding::WrongHolder { pack, says, is });
        }
    }

    /// The snapshot that should hold a pack. One that is being deleted keeps its packs until they are passed on.
    fn holder(&self, record: &HeldPack) -> Option<SnapshotId> {
        let rows = self.rows.iter();
        let kept = rows.filter(|row| !row.is_being_deleted || row.id == record.holder);
        holder(&record.life, kept.map(|row| (row.id, row.commit)))
    }

    /// The snapshots that are not being deleted, the newest first.
    pub(crate) fn newest_first(&self) -> Vec<Kept> {
        let live = self.rows.iter().filter(|row| !row.is_being_deleted);
        let mut kept: Vec<Kept> = live
            .map(|row| Kept {
                id: row.id,
                commit: row.commit,
                name: row.name.clone(),
            })
            .collect();
        kept.sort_by_key(|one| std::cmp::Reverse(one.commit));
        kept
    }

    fn no_sums(&self) -> Sums {
        let oldest_first = self.newest_first().into_iter().rev();
        Sums::new(oldest_first.map(|kept| kept.commit).collect())
    }

    /// What each snapshot that is not being deleted holds, the oldest first. Called after the last pack.
    pub(crate) fn held_by(&self) -> Vec<HeldBy> {
        let sums = self.sums.clone().unwrap_or_else(|| self.no_sums());
        let oldest_first = self.newest_first().into_iter().rev();
        let held = oldest_first.zip(sums.finish());
        held.map(|(kept, holds)| HeldBy {
            snapshot: kept.id.0,
            name: kept.name.to_string(),
            unique_bytes: holds.unique_bytes,
            held_bytes: holds.all_bytes,
        })
        .collect()
    }

    /// The names of the snapshots that refer to a pack which was born and has died then; `None` if it has an account.
    pub(crate) fn referring(&self, born: CommitNumber, died: Option<CommitNumber>) -> Vec<String> {
        let life = PackLife {
            born,
            died: died.unwrap_or(CommitNumber(u64::MAX)),
            bytes: 0,
        };
        let live = self.rows.iter().filter(|row| !row.is_being_deleted);
        let seeing = live.filter(|row| life.is_seen_by(row.commit));
        seeing.map(|row| row.name.to_string()).collect()
    }

    fn lived(&mut self, life: &PackLife) {
        self.saw(life.born);
        // A repair makes no commit: what dies by it dies with the next one.
        self.saw(CommitNumber(life.died.0.saturating_sub(1)));
    }

    fn saw(&mut self, commit: CommitNumber) {
        self.last_commit = self.last_commit.max(commit);
    }

    /// Number of snapshots.
    pub(crate) fn count(&self) -> u64 {
        self.rows.len() as u64 + self.unreadable
    }

    /// Called after the last pack.
    pub(crate) fn finish(&self, state: Option<&VolumeState>, sink: &mut dyn Sink) {
        // A missing state is a finding of its own.
        let Some(history) = state.map(|state| state.history) else {
            return;
        };
        for (count, says, highest) in [
            (HistoryCount::Commit, history.commit.0, self.last_commit.0),
            (
                HistoryCount::Snapshot,
                history.last_snapshot,
                self.last_snapshot,
            ),
        ] {
            if highest > says {
                sink.found(Finding::HistoryTooLow {
                    count,
                    says,
                    highest,
                });
            }
        }
        let (says, is) = (history.held_bytes, self.held_bytes);
        if u128::from(says) != is && self.unreadable_held == 0 {
            let is = u64::try_from(is).unwrap_or(u64::MAX);
            let count = VolumeCount::HeldBytes;
            sink.found(Finding::WrongVolumeCount { count, says, is });
        }
    }
}
