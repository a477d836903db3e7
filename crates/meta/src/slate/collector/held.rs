//! The tables that checkpoints hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use slatedb::manifest::SsTableId;

/// What the manifests of checkpoints name.
///
/// A table is named by all manifests from the one that adds it to the one before the merge that replaces it. So the
/// first and the last known manifest that name it say which ones do: 40 bytes for each table, however many checkpoints
/// hold it. If a table ever came back after its replacement, it would stay for too long, never too short.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The logs of each known manifest.
    manifests: BTreeMap<u64, Range<u64>>,
    /// The first and the last known manifest that name a table.
    tables: HashMap<SsTableId, (u64, u64)>,
}

impl Held {
    pub(super) fn knows(&self, manifest: u64) -> bool {
        self.manifests.contains_key(&manifest)
    }

    /// Adds a manifest that a checkpoint refers to.
    pub(super) fn learn(
        &mut self,
        manifest: u64,
        tables: impl Iterator<Item = SsTableId>,
        logs: Range<u64>,
    ) {
        self.manifests.insert(manifest, logs);
        for table in tables {
            let (first, last) = self.tables.entry(table).or_insert((manifest, manifest));
            *first = manifest.min(*first);
            *last = manifest.max(*last);
        }
    }

    /// Forgets manifests that no checkpoint refers to any more, and the tables that only they named.
    pub(super) fn retain(&mut self, referred: &BTreeSet<u64>) {
        let before = self.manifests.len();
        self.manifests.retain(|id, _| referred.contains(id));
        if self.manifests.len() == before {
            return;
        }
        let manifests = &self.manifests;
        self.tables.retain(|_, (first, last)| {
            let mut between = manifests.range(*first..=*last);
            let Some((&lowest, _)) = between.next() else {
                return false;
            };
            *last = between.next_back().map_or(lowest, |(&highest, _)| highest);
            *first = lowest;
            true
        });
        self.tables.shrink_to(self.tables.len() * 2);
    }

    pub(super) fn holds_table(&self, table: SsTableId) -> bool {
        self.tables.contains_key(&table)
    }

    pub(super) fn holds_log(&self, log: u64) -> bool {
        self.manifests.values().any(|logs| logs.contains(&log))
    }

    /// Number of tables.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(n: u64) -> SsTableId {
        let ulid = format!("{n:026}").parse();
        SsTableId::new(ulid.unwrap())
    }

    /// A chain of manifests: each adds a table, and each fourth replaces all by one.
    fn chain(len: u64) -> Vec<(u64, Vec<SsTableId>)> {
        let mut tables = Vec::new();
        let manifests = (1..=len).map(|id| {
            if id % 4 == 0 {
                tables.clear();
            }
            tables.push(table(id));
            (id, tables.clone())
        });
        manifests.collect()
    }

    proptest::proptest! {
        #[test]
        fn holds_exactly_what_the_remaining_manifests_name(
            held in proptest::collection::vec(0u64..40, 0..40),
            released in proptest::collection::vec(proptest::collection::vec(0u64..40, 0..10), 0..6),
        ) {
            let chain = chain(40);
            let mut referred: BTreeSet<u64> = held.iter().map(|n| n + 1).collect();
            let mut known = Held::default();
            // In no order, as answers arrive.
            for n in held {
                let (id, tables) = &chain[n as usize];
                known.learn(*id, tables.iter().copied(), *id..*id + 1);
            }
            for round in std::iter::once(Vec::new()).chain(released) {
                for n in round {
                    referred.remove(&(n + 1));
                }
                known.retain(&referred);
                let named: BTreeSet<SsTableId> = chain
                    .iter()
                    .filter(|(id, _)| referred.contains(id))
                    .flat_map(|(_, tables)| tables.iter().copied())
                    .collect();
                for id in 1..=40 {
                    assert_eq!(known.holds_table(table(id)), named.contains(&table(id)), "table {id}");
                    assert_eq!(known.holds_log(id), referred.contains(&id));
                    assert_eq!(known.knows(id), referred.contains(&id));
                }
                assert_eq!(known.len(), named.len());
            }
        }
    }

    #[test]
    fn a_table_that_came_back_is_held_for_too_long_and_never_too_short() {
        let mut known = Held::default();
        for (id, tables) in [
            (1, vec![table(1)]),
            (2, vec![table(2)]),
            (3, vec![table(1)]),
        ] {
            known.learn(id, tables.into_iter(), 0..0);
        }
        for referred in [vec![1, 2, 3], vec![2, 3], vec![2]] {
            known.retain(&referred.into_iter().collect());
            assert!(known.holds_table(table(1)) && known.holds_table(table(2)));
        }
        known.retain(&BTreeSet::new());
        assert_eq!(known.len(), 0);
    }
}
