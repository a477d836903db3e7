//! Whether the packs that snapshots refer to are kept for them.

use forebay_types::{CommitNumber, PackId};

use super::{Packs, STRANGERS, What};
use crate::finding::{Finding, Sink};
use crate::judge::snapshots::Kept;

impl Packs {
    /// Notes that a block map of a snapshot refers to a pack. Every range receives all references.
    pub(crate) fn seen(&mut self, pack: PackId, snapshot: CommitNumber) {
        if let Some(row) = self.find(pack).and_then(|at| self.rows.get_mut(at)) {
            let (first, last) = row.seen.unwrap_or((snapshot, snapshot));
            row.seen = Some((first.min(snapshot), last.max(snapshot)));
        } else if self.holds(pack) && self.lost.len() < STRANGERS {
            self.lost.entry(pack).or_insert(snapshot);
        }
    }

    /// Judges whether each pack that snapshots refer to is kept for them. `kept` are all snapshots.
    pub(crate) fn judge_seen(&self, kept: &[Kept], sink: &mut dyn Sink) {
        let mut found = |pack: PackId, snapshot: CommitNumber, why: &'static str| {
            if let Some(of) = kept.iter().find(|one| one.commit == snapshot) {
                let (snapshot, name) = (of.id, of.name.to_string());
                sink.found(Finding::PackNotHeld {
                    snapshot,
                    name,
                    pack,
                    why,
                });
            }
        };
        for (&pack, &snapshot) in &self.lost {
            found(pack, snapshot, "has no record: nothing keeps it");
        }
        for row in &self.rows {
            let Some((first, last)) = row.seen else {
                continue;
            };
            if matches!(row.what, What::Unreadable | What::UnreadableHeld) {
                continue;
            }
            if row.record.born > first {
                found(row.pack, first, "was born after it, as its record says");
            } else if row.died.is_some_and(|died| died <= last) {
                found(row.pack, last, "died before it, as its record says");
            }
        }
    }
}
