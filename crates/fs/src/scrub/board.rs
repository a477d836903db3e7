//! Orders of operators to the scrub, its progress, and checks of packs that are not committed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_meta::record::{ScrubRecord, ScrubResult};
use forebay_meta::{Batch, Key};
use forebay_types::PackId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::report::{ScrubEnd, ScrubProgress, ScrubWait as Wait};

/// After this many checks they are committed in a batch of their own, if no other batch takes them along before.
const CHECKS: usize = 256;

/// The state that operators, the scrub and commits share.
#[derive(Default)]
pub(super) struct Board {
    pub(super) wake: Notify,
    pub(super) stop: Notify,
    /// An ordered round: packs whose last check is older than this, in seconds, are to be read.
    pub(super) order: Mutex<Option<u64>>,
    pub(super) round: Mutex<Round>,
    /// Packs that other tasks did not find.
    pub(super) gone: Mutex<BTreeSet<PackId>>,
    pub(super) checks: Mutex<Checks>,
    /// The checks must be committed, even without another batch.
    pub(super) is_due: AtomicBool,
    /// The checks in the batch that is being committed.
    entered: Mutex<Vec<(PackId, ScrubRecord)>>,
}

/// Results of checks that are not committed yet.
#[derive(Default)]
pub(super) struct Checks {
    /// Results that are not in the metadata yet.
    pub(super) pending: BTreeMap<PackId, ScrubRecord>,
    /// The pack that is being read.
    reading: Option<PackId>,
    /// Its account was deleted meanwhile.
    has_gone: bool,
}

#[derive(Default)]
pub(super) struct Round {
    pub(super) running: Option<ScrubProgress>,
    pub(super) damaged: u64,
    pub(super) last: Option<ScrubEnd>,
    pub(super) next: Option<u64>,
}

impl Board {
    /// Whether checks must be committed even if nothing else must be.
    pub(super) fn has_due(&self) -> bool {
        self.is_due.swap(false, Ordering::AcqRel) && !self.checks.lock().pending.is_empty()
    }

    /// Notes a pack that the metadata need and that is missing in the bucket: its frames are damaged, and will be
    /// noted as such.
    pub(super) fn is_gone(&self, pack: PackId) {
        self.gone.lock().insert(pack);
        self.wake.notify_one();
    }

    /// Adds results to a batch that is about to be committed and that deletes the packs `dead`.
    pub(super) fn enter(&self, batch: &mut Batch, dead: &BTreeSet<PackId>) {
        let checks = self.checks.lock();
        let living = checks
            .pending
            .iter()
            .filter(|(pack, _)| !dead.contains(pack));
        let entered: Vec<_> = living.map(|(pack, check)| (*pack, *check)).collect();
        for (pack, check) in &entered {
            batch.put(&Key::Scrub(*pack), check);
        }
        *self.entered.lock() = entered;
    }

    /// Notes that that batch is in the bucket. From now on no results are noted for the packs that it deleted.
    pub(super) fn entered(&self, dead: &BTreeSet<PackId>) {
        let entered = std::mem::take(&mut *self.entered.lock());
        let mut checks = self.checks.lock();
        for (pack, record) in entered {
            // The pack may have been read again meanwhile.
            if checks.pending.get(&pack) == Some(&record) {
                checks.pending.remove(&pack);
            }
        }
        checks.pending.retain(|pack, _| !dead.contains(pack));
        checks.has_gone |= checks.reading.is_some_and(|pack| dead.contains(&pack));
    }

    /// Notes that a pack is about to be read. Its account is looked up after this.
    pub(super) fn begin_pack(&self, pack: PackId) {
        let mut checks = self.checks.lock();
        checks.reading = Some(pack);
        checks.has_gone = false;
    }

    pub(super) fn read(&self, bytes: u64) {
        if let Some(running) = &mut self.round.lock().running {
            running.bytes_done += bytes;
        }
    }

    pub(super) fn waits_for(&self, what: Option<Wait>) {
        if let Some(running) = &mut self.round.lock().running {
            running.waits_for = what;
        }
    }

    /// Begins a round, if none is in progress.
    pub(super) fn begin(&self, since: u64) -> bool {
        let mut round = self.round.lock();
        if round.running.is_some() {
            return false;
        }
        round.damaged = 0;
        round.next = None;
        round.running = Some(ScrubProgress {
            since,
            packs: 0,
            bytes: 0,
            packs_done: 0,
            bytes_done: 0,
            waits_for: None,
        });
        true
    }

    pub(super) fn chose(&self, packs: u64, bytes: u64) {
        if let Some(running) = &mut self.round.lock().running {
            running.packs = running.packs_done + packs;
            running.bytes = running.bytes_done + bytes;
        }
    }

    pub(super) fn end(&self, at: u64, cut_short: Option<String>) {
        let mut round = self.round.lock();
        let Some(running) = round.running.take() else {
            return;
        };
        round.last = Some(ScrubEnd {
            at,
            packs: running.packs_done,
            bytes: running.bytes_done,
            damaged: round.damaged,
            cut_short,
        });
    }

    /// Notes the result for a pack; none if it was deleted. Returns whether there are enough results to be committed.
    pub(super) fn verified(&self, pack: PackId, record: Option<ScrubRecord>) -> bool {
        let mut round = self.round.lock();
        if let Some(running) = &mut round.running {
            running.packs_done += 1;
        }
        let mut checks = self.checks.lock();
        checks.reading = None;
        let Some(record) = record.filter(|_| !checks.has_gone) else {
            return false;
        };
        if record.result != ScrubResult::Sound {
            round.damaged += 1;
        }
        checks.pending.insert(pack, record);
        checks.pending.len() >= CHECKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACK: PackId = PackId(7);

    fn sound(checked: u64) -> ScrubRecord {
        ScrubRecord {
            checked,
            ..ScrubRecord::default()
        }
    }

    /// Commits the pending results; returns those that were committed.
    fn enter(board: &Board, dead: &[PackId]) -> Vec<(PackId, ScrubRecord)> {
        let dead = dead.iter().copied().collect();
        board.enter(&mut Batch::new(), &dead);
        let entered = board.entered.lock().clone();
        board.entered(&dead);
        entered
    }

    #[test]
    fn a_check_is_written_once_and_a_newer_one_is_not_lost() {
        let board = Board::default();
        board.begin_pack(PACK);
        board.verified(PACK, Some(sound(1)));
        board.enter(&mut Batch::new(), &BTreeSet::new());
        assert_eq!(*board.entered.lock(), [(PACK, sound(1))]);
        // Read again before that batch is in the bucket.
        board.begin_pack(PACK);
        board.verified(PACK, Some(sound(2)));
        board.entered(&BTreeSet::new());
        assert_eq!(enter(&board, &[]), [(PACK, sound(2))]);
        assert_eq!(enter(&board, &[]), []);
    }

    #[test]
    fn nothing_is_noted_of_a_pack_that_goes_while_it_is_read_or_after() {
        let board = Board::default();
        board.begin_pack(PACK);
        assert_eq!(enter(&board, &[PACK]), []);
        board.verified(PACK, Some(sound(1)));
        assert_eq!(enter(&board, &[]), []);

        board.begin_pack(PACK);
        board.verified(PACK, Some(sound(2)));
        assert_eq!(enter(&board, &[PACK]), []);
        assert_eq!(enter(&board, &[]), []);
    }

    #[test]
    fn an_end_of_a_round_is_written_down_only_if_there_is_something_to_write() {
        let board = Board::default();
        board.is_due.store(true, Ordering::Release);
        assert!(!board.has_due());
        board.begin_pack(PACK);
        board.verified(PACK, Some(sound(1)));
        assert!(!board.has_due(), "it waits for others");
        board.is_due.store(true, Ordering::Release);
        assert!(board.has_due());
    }
}
