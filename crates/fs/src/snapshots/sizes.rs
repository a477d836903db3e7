//! How much of the bucket each snapshot holds.

use std::collections::BTreeMap;

use forebay_meta::record::{HeldPack, PackLife};
use forebay_meta::{Catalog, KeyRange, StoreError};
use forebay_types::{CommitNumber, SnapshotId};

use super::{Holds, SnapshotCounts, SnapshotError, SnapshotInfo, Snapshots};
use crate::state::Listed;

/// How many held packs are read at a time.
const PAGE: usize = 1024;

/// Sums of dead packs over snapshots in the order of their commits.
#[derive(Debug)]
struct Sums {
    commits: Vec<CommitNumber>,
    /// Bytes of packs to which only this snapshot refers.
    unique: Vec<u64>,
    /// Differences, from each snapshot to the next, of the bytes of packs to which it refers.
    steps: Vec<i128>,
}

impl Sums {
    /// The commits are ascending.
    fn new(commits: Vec<CommitNumber>) -> Sums {
        Sums {
            unique: vec![0; commits.len()],
            steps: vec![0; commits.len() + 1],
            commits,
        }
    }

    fn add(&mut self, life: &PackLife) {
        let first = self.commits.partition_point(|commit| *commit < life.born);
        let end = self.commits.partition_point(|commit| *commit < life.died);
        if first >= end {
            return;
        }
        if first + 1 == end {
            self.unique[first] += life.bytes;
        }
        self.steps[first] += i128::from(life.bytes);
        self.steps[end] -= i128::from(life.bytes);
    }

    /// What each snapshot holds.
    fn finish(self) -> Vec<Holds> {
        let mut held = 0;
        let sums = self.unique.into_iter().zip(self.steps);
        let sums = sums.map(|(unique_bytes, step)| {
            held += step;
            Holds {
                unique_bytes,
                all_bytes: u64::try_from(held).unwrap_or(0),
            }
        });
        sums.collect()
    }
}

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
        let mut sums = Sums::new(commits);
        add_held(&self.context.catalog, &mut sums).await?;
        Ok(ids.into_iter().zip(sums.finish()).collect())
    }
}

async fn add_held(catalog: &Catalog, sums: &mut Sums) -> Result<(), StoreError> {
    let mut rest = KeyRange::held_packs();
    loop {
        let page = catalog.records::<HeldPack>(&rest, PAGE).await?;
        page.iter().for_each(|(_, held)| sums.add(&held.life));
        match page.last() {
            Some((last, _)) if page.len() == PAGE => rest = rest.after(&last.encode()),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_unique_to_the_only_snapshot_that_refers_to_it() {
        let mut sums = Sums::new([3, 5, 9].map(CommitNumber).to_vec());
        for (born, died, bytes) in [
            (0, 4, 1),
            (4, 9, 10),
            (5, 10, 100),
            (6, 9, 1000),
            (0, 20, 10_000),
        ] {
            sums.add(&PackLife {
                born: CommitNumber(born),
                died: CommitNumber(died),
                bytes,
            });
        }
        let holds = sums.finish().into_iter();
        let holds = holds.map(|one| (one.unique_bytes, one.all_bytes));
        let expected = [(1, 10_001), (10, 10_110), (0, 10_100)];
        assert_eq!(holds.collect::<Vec<_>>(), expected);
    }
}
