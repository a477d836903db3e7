//! Packs that may come back after they were deleted.
//!
//! ```text
//!   PUT, no answer ---> PUT again, answered ---> published ---> dead, deleted ---> looked for once more
//!     |                                                                        ^   after the grace time
//!     +------------------ may be carried out now, or here, or here ------------+
//! ```
//!
//! Nothing refers to a pack that comes back after its deletion, nor ever will: numbers are not used again. For gateways before
//! this one, `orphans.rs` finds such packs. This module handles the packs of this one, and only those of which an attempt was
//! never answered: it sends no request while the bucket answers, and otherwise one for each of them.
//!
//! The scrub puts packs again that snapshots hold, and these may be deleted at any moment of that. So it notes a pack before the
//! PUT, and takes the note back only when the PUT was answered and the pack was not dead after it: then a deletion is still to come,
//! and deletes what was put.
//!
//! The notes are only in memory: after a restart they are packs of an earlier epoch.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;

use forebay_types::PackId;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::rate::Work;
use super::{Collector, Step};

/// How many packs of each kind are remembered. Others are found after the next start.
const MOST: usize = 65_536;

/// The packs that may come back after they were deleted, of all engines that put packs.
#[derive(Debug, Default)]
pub(crate) struct LatePacks(Mutex<Late>);

impl LatePacks {
    /// Notes that the pack may come back. Returns whether that was not noted before.
    pub(crate) fn may_come_again(&self, pack: PackId) -> bool {
        self.0.lock().may_come_again(pack)
    }

    /// Takes such a note back, unless the pack was deleted since.
    pub(crate) fn is_settled(&self, pack: PackId) {
        self.0.lock().doubtful.remove(&pack);
    }

    pub(super) fn deleted(&self, pack: PackId, due: Instant) {
        self.0.lock().deleted(pack, due);
    }
}

#[derive(Debug, Default)]
struct Late {
    /// Packs that an unanswered attempt may put into the bucket again.
    doubtful: BTreeSet<PackId>,
    /// Those of them that were deleted, and when to look for them.
    deleted: VecDeque<(Instant, PackId)>,
}

impl Late {
    fn may_come_again(&mut self, pack: PackId) -> bool {
        if self.doubtful.len() >= MOST {
            self.doubtful.pop_first();
        }
        self.doubtful.insert(pack)
    }

    fn deleted(&mut self, pack: PackId, due: Instant) {
        if self.doubtful.remove(&pack) && self.deleted.len() < MOST {
            self.deleted.push_back((due, pack));
        }
    }

    /// The next pack to look for now.
    fn due(&self, now: Instant) -> Option<PackId> {
        let (due, pack) = self.deleted.front()?;
        (*due <= now).then_some(*pack)
    }

    fn looked_for(&mut self, pack: PackId) {
        self.deleted.retain(|(_, other)| *other != pack);
    }
}

impl Collector {
    /// Looks for a pack that may have come back, if it is time to, and deletes it. `None` if there is none to look
    /// for.
    pub(super) async fn look_for_late_packs(&self) -> Option<Step> {
        let pack = self.late.0.lock().due(Instant::now())?;
        let mut work = Work::default();
        if let Err(why) = self.delete_late_pack(pack, &mut work).await {
            return Some(Step::Later(why.to_string()));
        }
        self.late.0.lock().looked_for(pack);
        Some(Step::Worked(work))
    }

    async fn delete_late_pack(&self, pack: PackId, work: &mut Work) -> object_store::Result<()> {
        work.add(0);
        if !self.context.packs.has(pack).await? {
            return Ok(());
        }
        work.add(0);
        self.context.packs.delete(pack).await?;
        self.orphans_deleted.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            "an abandoned upload has created pack {pack} again after its deletion: it is deleted again"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_was_doubtful_is_looked_for_once_and_not_before_its_time() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut late = Late::default();
        late.may_come_again(PackId(1));
        late.may_come_again(PackId(2));
        late.deleted(PackId(1), now + second);
        late.deleted(PackId(3), now);
        assert_eq!(late.due(now), None);
        assert_eq!(late.due(now + second), Some(PackId(1)));
        late.looked_for(PackId(1));
        late.deleted(PackId(1), now);
        assert_eq!(late.due(now + second), None);
        late.deleted(PackId(2), now);
        assert_eq!(late.due(now), Some(PackId(2)));
    }

    #[test]
    fn a_note_is_taken_back_only_before_the_deletion() {
        let (now, late) = (Instant::now(), LatePacks::default());
        assert!(late.may_come_again(PackId(1)));
        assert!(!late.may_come_again(PackId(1)), "it is noted already");
        late.is_settled(PackId(1));
        late.deleted(PackId(1), now);
        assert_eq!(late.0.lock().due(now), None);
        late.may_come_again(PackId(1));
        late.deleted(PackId(1), now);
        late.is_settled(PackId(1));
        assert_eq!(late.0.lock().due(now), Some(PackId(1)));
    }

    #[test]
    fn memory_is_bounded_and_the_latest_are_kept() {
        let now = Instant::now();
        let mut late = Late::default();
        for pack in 0..=MOST as u64 {
            late.may_come_again(PackId(pack));
        }
        late.deleted(PackId(0), now);
        assert_eq!(late.due(now), None);
        for pack in 1..=MOST as u64 {
            late.deleted(PackId(pack), now);
            late.may_come_again(PackId(MOST as u64 + pack));
        }
        late.deleted(PackId(MOST as u64 + 1), now);
        assert_eq!(late.deleted.len(), MOST);
    }
}
