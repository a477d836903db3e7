//! How much of the bucket each snapshot holds.

use forebay_types::CommitNumber;

use crate::catalog::Catalog;
use crate::error::StoreError;
use crate::key::KeyRange;
use crate::record::{HeldPack, PackLife};

/// How many held packs are read at a time.
const PAGE: usize = 1024;

/// How much of the bucket a snapshot holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Bytes that its deletion gives back: of packs to which neither live files nor other snapshots refer.
    pub unique_bytes: u64,
    /// Bytes of packs to which it refers and live files do not, those of other snapshots among them.
    pub all_bytes: u64,
}

/// Sums of dead packs over snapshots in the order of their commits.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    commits: Vec<CommitNumber>,
    /// Bytes of packs to which only this snapshot refers.
    unique: Vec<u64>,
    /// Differences, from each snapshot to the next, of the bytes of packs to which it refers.
    steps: Vec<i128>,
}

impl Sums {
    /// For the snapshots with these commits, which are ascending.
    pub fn new(commits: Vec<CommitNumber>) -> Sums {
        Sums {
            unique: vec![0; commits.len()],
            steps: vec![0; commits.len() + 1],
            commits,
        }
    }

    /// Adds a held pack.
    pub fn add(&mut self, life: &PackLife) {
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
    pub fn finish(self) -> Vec<Holds> {
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

/// What each of the published snapshots with these commits, which are ascending, holds. They are all that are not being deleted. Reads
/// the records of all held packs.
///
/// # Errors
/// Those of the store.
pub async fn holds(
    catalog: &Catalog,
    commits: Vec<CommitNumber>,
) -> Result<Vec<Holds>, StoreError> {
    let (mut sums, mut rest) = (Sums::new(commits), KeyRange::held_packs());
    loop {
        let page = catalog.records::<HeldPack>(&rest, PAGE).await?;
        page.iter().for_each(|(_, held)| sums.add(&held.life));
        match page.last() {
            Some((last, _)) if page.len() == PAGE => rest = rest.after(&last.encode()),
            _ => return Ok(sums.finish()),
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
