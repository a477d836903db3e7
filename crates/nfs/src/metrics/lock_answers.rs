//! The answers of the lock manager, by their status.

use forebay_metrics::{Counter, Samples, table};

use crate::nlm::Status;

/// See the module's documentation. In the order of [`Status::NAMES`].
#[derive(Debug, Default)]
pub(crate) struct LockAnswers([Counter; Status::NAMES.len()]);

impl LockAnswers {
    /// Counts an answer with this status.
    pub(crate) fn answered(&self, status: Status) {
        let place = Status::NAMES.iter().position(|(known, _)| *known == status);
        if let Some(place) = place {
            self.0[place].add(1);
        }
    }

    /// Adds the counts of statuses that there have been.
    pub(super) fn collect(&self, samples: &mut Samples) {
        let names = Status::NAMES.iter().map(|(_, name)| *name);
        for (name, answers) in names.zip(&self.0) {
            if answers.get() > 0 {
                samples.counter_of(&table::NFS_LOCK_ANSWERS, name, answers);
            }
        }
    }
}
