//! The limit of a volume whose snapshots count against it.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_quota::{Accounts, Amount};
use forebay_types::PackId;

use crate::publisher::{AccountChange, Observer, Progress};

/// Takes the bytes that snapshots hold from the limit of the volume's live files. After each commit: until then, the
/// bytes that it makes snapshots hold are not counted.
pub(crate) struct SpaceOfSnapshots {
    limit: Amount,
    accounts: Arc<Accounts>,
    progress: Arc<Progress>,
}

impl SpaceOfSnapshots {
    /// `limit` is that of live files and snapshots together.
    pub(crate) fn new(
        limit: Amount,
        accounts: Arc<Accounts>,
        progress: Arc<Progress>,
    ) -> SpaceOfSnapshots {
        let space = SpaceOfSnapshots {
            limit,
            accounts,
            progress,
        };
        space.set_limit();
        space
    }

    fn set_limit(&self) {
        let held = self.progress.state().history.held_bytes;
        self.accounts.volume().set_limit(Amount {
            bytes: self.limit.bytes.saturating_sub(held),
            ..self.limit
        });
    }
}

impl Observer for SpaceOfSnapshots {
    fn committed(&self, _changes: &[AccountChange], _dead: &BTreeSet<PackId>) {
        self.set_limit();
    }
}
