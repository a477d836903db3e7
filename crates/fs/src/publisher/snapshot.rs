//! Publishing snapshots: the state of a checkpoint that ended with one stays readable in the bucket.
//!
//! The batch of that checkpoint has the snapshot's record, and says under which name its state will be kept: SlateDB does
//! that with the manifest of the batch, without a further request. A store that cannot do it, or does not get to it in
//! time, keeps the state before the next batch is committed. A crash in between is found at the next opening: the record has
//! the number of the last commit, and no state is kept for it.

pub(crate) use forebay_meta::record::kept_name;
use forebay_meta::record::{SnapshotRecord, VolumeState};
use forebay_meta::{Batch, Catalog, Key, KeyRange, StoreError};
use forebay_types::SnapshotId;

use super::{Halted, Publisher};

/// How many records are read at a time.
const PAGE: usize = 1024;

impl Publisher {
    /// Adds a snapshot to the batch that publishes its state, of which the files have `used_bytes`.
    pub(super) fn enter_snapshot(
        &self,
        id: SnapshotId,
        record: &SnapshotRecord,
        used_bytes: u64,
        state: &mut VolumeState,
        batch: &mut Batch,
    ) -> (SnapshotId, SnapshotRecord) {
        state.history.last_snapshot = id.0;
        let record = SnapshotRecord {
            commit: self.committer.next_commit(),
            lsn: state.published,
            used_bytes,
            used_inodes: state.used_inodes,
            ..record.clone()
        };
        batch.put(&Key::Snapshot(id), &record);
        batch.keep_as(&kept_name(id));
        (id, record)
    }

    /// Keeps the state of the last commit, which is that of this snapshot, if the commit has not done it.
    pub(super) async fn keep_snapshot(
        &self,
        id: SnapshotId,
        record: SnapshotRecord,
    ) -> Result<(), Halted> {
        let (store, name) = (self.context.catalog.store(), kept_name(id));
        self.committer.insist(|| store.keep(&name)).await?;
        tracing::info!("snapshot {:?} is in the bucket", record.name);
        self.context.snapshots.set_published(id, record);
        Ok(())
    }
}

/// Reads the snapshots of a volume in the `state` that was published last, and keeps the state of the last one if a crash
/// has prevented that.
///
/// # Errors
/// Those of the store. A snapshot whose state is gone is reported, and is none of them.
pub(crate) async fn load(
    catalog: &Catalog,
    state: &VolumeState,
) -> Result<Vec<(SnapshotId, SnapshotRecord)>, StoreError> {
    if state.history.last_snapshot == 0 {
        return Ok(Vec::new());
    }
    let (mut rest, mut records) = (KeyRange::snapshots(), Vec::new());
    loop {
        let page = catalog.records::<SnapshotRecord>(&rest, PAGE).await?;
        let is_last = page.len() < PAGE;
        records.extend(page);
        match records.last() {
            Some((last, _)) if !is_last => rest = rest.after(&last.encode()),
            _ => break,
        }
    }
    let mut kept = catalog.store().kept().await?;
    let mut found = Vec::with_capacity(records.len());
    for (key, record) in records {
        let Key::Snapshot(id) = key else { continue };
        let name = kept_name(id);
        if record.commit == state.history.commit && !kept.contains(&name) {
            catalog.store().keep(&name).await?;
            kept.insert(name.clone());
        }
        if !kept.contains(&name) && !record.is_being_deleted {
            tracing::error!(
                "the state of snapshot {:?} is gone from the bucket: something else has deleted it. Delete the snapshot",
                record.name
            );
        }
        found.push((id, record));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use forebay_meta::record::Timestamp;
    use forebay_types::{CommitNumber, Lsn};

    use super::*;
    use crate::testing::World;

    fn made_by(commit: u64) -> SnapshotRecord {
        SnapshotRecord {
            is_being_deleted: false,
            commit: CommitNumber(commit),
            lsn: Lsn(0),
            used_bytes: 0,
            used_inodes: 0,
            made: Timestamp {
                seconds: 0,
                nanos: 0,
            },
            name: commit.to_string(),
            made_by: String::new(),
        }
    }

    #[tokio::test]
    async fn the_state_of_the_last_commit_is_kept_if_a_crash_came_before_that() {
        let world = World::new(|_| {});
        let store = world.catalog.store();
        let mut batch = Batch::new();
        for number in [4, 5] {
            let key = Key::Snapshot(SnapshotId(number));
            batch.put(&key, &made_by(number));
        }
        store.commit(&batch).await.unwrap();
        let mut state = world.progress.state();
        state.history.last_snapshot = 5;
        state.history.commit = CommitNumber(5);
        let found = load(&world.catalog, &state).await.unwrap();
        let ids: Vec<_> = found.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [4, 5]);
        // Of an earlier commit, the state now is another one.
        let kept: Vec<_> = store.kept().await.unwrap().into_iter().collect();
        assert_eq!(kept, [kept_name(SnapshotId(5))]);
    }
}
