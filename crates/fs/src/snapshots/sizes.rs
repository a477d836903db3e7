//! How much of the bucket each snapshot holds.

use std::collections::BTreeMap;

use forebay_meta::StoreError;
use forebay_meta::held::{self, Holds};
use forebay_types::SnapshotId;

use super::{SnapshotCounts, SnapshotError, SnapshotInfo, Snapshots};
use crate::state::Listed;

impl Snapshots {
    /// All snapshots that are not being deleted, the oldest first, with what each holds. Reads the records of all held
    /// packs.
    pub(crate) async fn infos(&self) -> Result<Vec<SnapshotInfo>, SnapshotError> {
        let mut listed = self.context.list.all();
        listed.retain(|(_, one)| !one.record.is_being_deleted);
        let mut holds = match self.holds(&listed).await {
            Ok(holds) => Some(holds),
            // Everything else is known without the bucket.
            Err(StoreError::Transient(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let infos = listed.into_iter().map(|(id, one)| SnapshotInfo {
            id,
            counts: one.is_published.then(|| SnapshotCounts {
                lsn: one.record.lsn,
                commit: one.record.commit,
                used_bytes: one.record.used_bytes,
                used_inodes: one.record.used_inodes,
                holds: holds.as_mut().and_then(|holds| holds.remove(&id)),
            }),
            is_published: one.is_published,
            ..Snapshots::made(id, one.record)
        });
        Ok(infos.collect())
    }

    async fn holds(
        &self,
        listed: &[(SnapshotId, Listed)],
    ) -> Result<BTreeMap<SnapshotId, Holds>, StoreError> {
        // Numbers and commits have the same order.
        let published = listed.iter().filter(|(_, one)| one.is_published);
        let (ids, commits): (Vec<_>, Vec<_>) =
            published.map(|(id, one)| (*id, one.record.commit)).unzip();
        let holds = held::holds(&self.context.catalog, commits).await?;
        Ok(ids.into_iter().zip(holds).collect())
    }
}
