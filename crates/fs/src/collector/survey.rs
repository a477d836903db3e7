//! A survey of the accounts of packs, which decides which packs are worth rewriting. It has no clock and does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::PackRecord;
use forebay_types::PackId;
use forebay_types::balance::taken;

/// How many packs below the threshold are remembered. If there are more, the survey starts again when these are done.
const MOST_REMEMBERED: usize = 100_000;
/// The most packs that are rewritten together.
const MOST_TOGETHER: usize = 64;
/// Rewriting must free this share of a full pack: less is not worth its requests.
const LEAST_GAIN: u64 = 32;

/// The sums of all packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Number of packs.
    pub packs: u64,
    /// Their bytes in the bucket.
    pub stored_bytes: u64,
    /// Bytes of their frames before compression.
    pub raw_bytes: u64,
    /// Bytes of files that refer to them. Bytes that several files, or several places of one, share count for each.
    pub live_bytes: u64,
    /// The live bytes in excess of the bytes that a pack holds: at least that many are in the bucket once and
    /// referred to more than once. Where a pack has dead bytes as well, it may be more: accounts do not say which
    /// bytes are shared.
    pub shared_bytes: u64,
}

impl Space {
    fn add(&mut self, record: &PackRecord) {
        self.packs = self.packs.saturating_add(1);
        self.stored_bytes = self.stored_bytes.saturating_add(record.bytes);
        self.raw_bytes = self.raw_bytes.saturating_add(record.raw_bytes);
        self.live_bytes = self.live_bytes.saturating_add(record.live_bytes);
        self.shared_bytes = self.shared_bytes.saturating_add(record.shared_bytes());
    }

    fn remove(&mut self, record: &PackRecord) {
        self.packs = taken("packs of the survey", self.packs, 1);
        self.stored_bytes = taken("stored bytes of packs", self.stored_bytes, record.bytes);
        self.raw_bytes = taken("bytes of packs", self.raw_bytes, record.raw_bytes);
        self.live_bytes = taken("live bytes of packs", self.live_bytes, record.live_bytes);
        self.shared_bytes = taken(
            "shared bytes of packs",
            self.shared_bytes,
            record.shared_bytes(),
        );
    }

    /// An upper limit of the bytes of the packs, before compression, that files refer to, each counted once.
    pub fn used_bytes(&self) -> u64 {
        self.live_bytes.saturating_sub(self.shared_bytes)
    }
}

/// The known accounts: all before [`Survey::rest`], kept exact by the changes of commits.
#[derive(Debug)]
pub(crate) struct Survey {
    /// A pack with a smaller live share than this, in hundredths, is rewritten.
    below_percent: u32,
    /// The accounts from here on were not read yet; none if all were read.
    rest: Option<PackId>,
    space: Space,
    sparse: BTreeMap<PackId, PackRecord>,
    /// `sparse` was full for some packs.
    more: bool,
    /// Packs that could not be rewritten: not tried again by this gateway.
    alone: BTreeSet<PackId>,
}

impl Survey {
    pub(crate) fn new(below_percent: u32) -> Survey {
        Survey {
            below_percent,
            rest: Some(PackId(0)),
            space: Space::default(),
            sparse: BTreeMap::new(),
            more: false,
            alone: BTreeSet::new(),
        }
    }

    /// Where the next page of accounts begins; none if all are known.
    pub(crate) fn rest(&self) -> Option<PackId> {
        self.rest
    }

    /// Adds the next accounts, in ascending order. If there are fewer than `asked`, they are the last ones.
    pub(crate) fn page(&mut self, accounts: &[(PackId, PackRecord)], asked: usize) {
        for (pack, record) in accounts {
            self.space.add(record);
            self.remember(*pack, record);
        }
        self.rest = match accounts.last() {
            Some((last, _)) if accounts.len() >= asked => Some(PackId(last.0.saturating_add(1))),
            _ => None,
        };
    }

    /// Notes that a commit has changed an account; `None` stands for no account.
    pub(crate) fn changed(
        &mut self,
        pack: PackId,
        before: Option<&PackRecord>,
        after: Option<&PackRecord>,
    ) {
        if self.rest.is_some_and(|rest| pack >= rest) {
            // It will be read in its new state.
            return;
        }
        if let Some(before) = before {
            self.space.remove(before);
            self.sparse.remove(&pack);
        }
        match after {
            Some(after) => {
                self.space.add(after);
                self.remember(pack, after);
            }
            None => drop(self.alone.remove(&pack)),
        }
    }

    fn remember(&mut self, pack: PackId, record: &PackRecord) {
        if !is_sparse(record, self.below_percent) || self.alone.contains(&pack) {
            return;
        }
        if self.sparse.len() >= MOST_REMEMBERED {
            self.more = true;
            return;
        }
        self.sparse.insert(pack, *record);
    }

    /// Notes that a pack cannot be rewritten, so that it is not tried again.
    pub(crate) fn leave_alone(&mut self, pack: PackId) {
        self.sparse.remove(&pack);
        if self.alone.len() < MOST_REMEMBERED {
            self.alone.insert(pack);
        }
    }

    /// The sums of all packs; `None` before all accounts were read.
    pub(crate) fn space(&self) -> Option<Space> {
        self.rest.is_none().then_some(self.space)
    }

    /// Number of packs to rewrite, and their dead bytes in the bucket.
    pub(crate) fn to_rewrite(&self) -> (u64, u64) {
        let dead = self.sparse.values().map(dead_bytes).sum();
        (self.sparse.len() as u64, dead)
    }

    /// Number of packs that could not be rewritten.
    pub(crate) fn left_alone(&self) -> u64 {
        self.alone.len() as u64
    }

    /// Live bytes of packs that will be rewritten.
    pub(crate) fn live_in(&self, group: &[PackId]) -> u64 {
        let records = group.iter().filter_map(|pack| self.sparse.get(pack));
        records.map(|record| record.live_bytes).sum()
    }

    /// The next packs to rewrite together, whose live bytes fill a pack of `pack_bytes` or nearly so; empty if
    /// nothing is worth it.
    pub(crate) fn next_group(&mut self, pack_bytes: u64) -> Vec<PackId> {
        self.group_that_frees(pack_bytes / LEAST_GAIN, pack_bytes)
    }

    /// The same, even if it frees little.
    pub(crate) fn next_group_of_all(&mut self, pack_bytes: u64) -> Vec<PackId> {
        self.group_that_frees(0, pack_bytes)
    }

    fn group_that_frees(&mut self, least: u64, pack_bytes: u64) -> Vec<PackId> {
        let group = worthwhile(&self.sparse, pack_bytes, least);
        if group.is_empty() && self.more && self.rest.is_none() {
            // Starts again, to find the packs for which `sparse` had no room.
            let alone = std::mem::take(&mut self.alone);
            *self = Survey {
                alone,
                ..Survey::new(self.below_percent)
            };
        }
        group
    }
}

/// Whether the live share of a pack is below this percentage.
pub(crate) fn is_sparse(record: &PackRecord, below_percent: u32) -> bool {
    let (live, raw) = (u128::from(record.live_bytes), u128::from(record.raw_bytes));
    live * 100 < raw * u128::from(below_percent)
}

/// Bytes of a pack in the bucket to which nothing refers, as far as its account shows.
#[expect(
    clippy::cast_possible_truncation,
    reason = "no more are dead than the pack has"
)]
pub(crate) fn dead_bytes(record: &PackRecord) -> u64 {
    let raw = u128::from(record.raw_bytes.max(1));
    let dead = u128::from(record.raw_bytes.saturating_sub(record.live_bytes));
    (u128::from(record.bytes) * dead / raw) as u64
}

/// The first packs that are worth rewriting together: if that frees `least` bytes. Neighbours by number are taken
/// together: they were written at the same time, so their bytes stay together.
fn worthwhile(sparse: &BTreeMap<PackId, PackRecord>, pack_bytes: u64, least: u64) -> Vec<PackId> {
    let mut group = Vec::new();
    let (mut live, mut freed) = (0_u64, 0_u64);
    for (pack, record) in sparse {
        let is_full = live.saturating_add(record.live_bytes) > pack_bytes;
        if !group.is_empty() && (is_full || group.len() == MOST_TOGETHER) {
            if freed >= least {
                return group;
            }
            group.clear();
            (live, freed) = (0, 0);
        }
        group.push(*pack);
        live = live.saturating_add(record.live_bytes);
        freed = freed.saturating_add(dead_bytes(record));
    }
    match freed >= least {
        true => group,
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn record(raw_bytes: u64, live_bytes: u64) -> PackRecord {
        PackRecord {
            bytes: raw_bytes / 2,
            raw_bytes,
            live_bytes,
            frames: 1,
            born: Default::default(),
        }
    }

    fn surveyed(accounts: &[(u64, PackRecord)]) -> Survey {
        let mut survey = Survey::new(50);
        let accounts: Vec<_> = accounts
            .iter()
            .map(|(pack, record)| (PackId(*pack), *record))
            .collect();
        survey.page(&accounts, accounts.len() + 1);
        survey
    }

    fn packs(numbers: &[u64]) -> Vec<PackId> {
        numbers.iter().copied().map(PackId).collect()
    }

    #[test]
    fn packs_with_less_than_the_share_are_taken_and_no_others() {
        let accounts = [
            (1, record(8 * MIB, 4 * MIB)),
            (2, record(8 * MIB, 4 * MIB - 1)),
            (3, record(8 * MIB, 8 * MIB)),
            (4, record(8 * MIB, 1)),
        ];
        let mut survey = surveyed(&accounts);
        assert_eq!(survey.next_group(8 * MIB), packs(&[2, 4]));
        assert_eq!(survey.to_rewrite(), (2, 2 * MIB + 4 * MIB - 1));
        let mut never = Survey::new(0);
        never.page(&[(PackId(1), record(8 * MIB, 1))], 2);
        assert_eq!(never.next_group(8 * MIB), []);
    }

    #[test]
    fn what_is_live_of_a_group_fits_a_pack_and_neighbours_stay_together() {
        let accounts: Vec<_> = (1..=5)
            .map(|pack| (pack, record(8 * MIB, 3 * MIB)))
            .collect();
        let mut survey = surveyed(&accounts);
        assert_eq!(survey.next_group(8 * MIB), packs(&[1, 2]));
        for pack in [1, 2] {
            survey.changed(PackId(pack), Some(&record(8 * MIB, 3 * MIB)), None);
        }
        assert_eq!(survey.next_group(8 * MIB), packs(&[3, 4]));
        // A single one may be larger than the intended size of a pack.
        let mut survey = surveyed(&[(7, record(64 * MIB, 20 * MIB))]);
        assert_eq!(survey.next_group(8 * MIB), packs(&[7]));
    }

    #[test]
    fn what_frees_too_little_waits_for_company_and_keeps_nobody_back() {
        let tiny = record(4096, 1);
        let mut survey = surveyed(&[(1, tiny), (2, tiny)]);
        assert_eq!(survey.next_group(8 * MIB), []);
        let large = record(8 * MIB, 3 * MIB);
        survey.changed(PackId(9), None, Some(&large));
        assert_eq!(survey.next_group(8 * MIB), packs(&[1, 2, 9]));
        survey.changed(PackId(9), Some(&large), None);
        assert_eq!(survey.next_group(8 * MIB), []);
        assert_eq!(survey.next_group_of_all(8 * MIB), packs(&[1, 2]));
        assert_eq!(surveyed(&[]).next_group_of_all(8 * MIB), []);
        // Many tiny ones are limited by the number of packs in one round.
        let many: Vec<_> = (1..1000).map(|pack| (pack, record(64 << 10, 9))).collect();
        let group = surveyed(&many).next_group(8 * MIB);
        assert_eq!(group.len(), MOST_TOGETHER);
        // The first round of packs would free too little, the next one does not.
        let mut some: Vec<_> = (1..=64).map(|pack| (pack, tiny)).collect();
        some.push((70, large));
        assert_eq!(surveyed(&some).next_group(8 * MIB), packs(&[70]));
    }

    #[test]
    fn sums_are_exact_whatever_changes_while_accounts_are_read() {
        let (whole, half) = (record(8, 8), record(8, 2));
        let mut survey = Survey::new(50);
        assert_eq!(survey.rest(), Some(PackId(0)));
        survey.page(&[(PackId(1), whole), (PackId(5), whole)], 2);
        assert_eq!((survey.rest(), survey.space()), (Some(PackId(6)), None));
        // An account that was read already counts. One that was not will come with its page.
        survey.changed(PackId(5), Some(&whole), Some(&half));
        survey.changed(PackId(7), Some(&whole), Some(&half));
        survey.changed(PackId(8), None, Some(&whole));
        survey.page(&[(PackId(7), half), (PackId(8), whole)], 2);
        survey.page(&[], 2);
        survey.changed(PackId(1), Some(&whole), None);
        survey.changed(PackId(9), None, Some(&half));
        let space = Space {
            packs: 4,
            stored_bytes: 16,
            raw_bytes: 32,
            live_bytes: 14,
            shared_bytes: 0,
        };
        assert_eq!(survey.space(), Some(space));
        assert_eq!(survey.to_rewrite().0, 3);
    }

    #[test]
    fn what_is_shared_never_makes_more_than_all_of_a_pack_used() {
        let (shared, half) = (record(8, 20), record(8, 4));
        let mut survey = surveyed(&[(1, shared), (2, half)]);
        let space = survey.space().unwrap();
        assert_eq!((space.live_bytes, space.shared_bytes), (24, 12));
        assert_eq!(space.used_bytes(), 12);
        survey.changed(PackId(1), Some(&shared), Some(&record(8, 8)));
        assert_eq!(survey.space().unwrap().shared_bytes, 0);
        survey.changed(PackId(2), Some(&half), Some(&shared));
        survey.changed(PackId(1), Some(&record(8, 8)), None);
        let space = survey.space().unwrap();
        assert_eq!((space.used_bytes(), space.shared_bytes), (8, 12));
    }

    #[test]
    fn what_cannot_be_rewritten_is_not_tried_again() {
        let sparse = record(8 * MIB, MIB);
        let mut survey = surveyed(&[(1, sparse), (2, sparse)]);
        survey.leave_alone(PackId(1));
        survey.changed(PackId(1), Some(&sparse), Some(&record(8 * MIB, 1)));
        assert_eq!(survey.next_group(8 * MIB), packs(&[2]));
        assert_eq!(survey.left_alone(), 1);
        survey.changed(PackId(1), Some(&record(8 * MIB, 1)), None);
        assert_eq!(survey.left_alone(), 0);
    }

    #[test]
    fn what_found_no_place_is_looked_for_again() {
        let sparse = record(8 * MIB, MIB);
        let accounts: Vec<_> = (0..=MOST_REMEMBERED as u64)
            .map(|pack| (pack, sparse))
            .collect();
        let mut survey = surveyed(&accounts);
        while let group @ [_, ..] = &survey.next_group(8 * MIB)[..] {
            for pack in group {
                survey.changed(*pack, Some(&sparse), None);
            }
        }
        assert_eq!(survey.rest(), Some(PackId(0)));
    }
}
