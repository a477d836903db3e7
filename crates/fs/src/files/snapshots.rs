//! Making snapshots.

use forebay_meta::record::{MAX_SNAPSHOTS, SnapshotRecord};
use forebay_types::{CommitNumber, Lsn};
use forebay_vfs::Error;
use forebay_view::convert;

use super::Files;
use crate::snapshots::{SnapshotError, SnapshotInfo, Snapshots};
use crate::state::{Refusal, check_name};

impl Files {
    /// Makes a snapshot of the volume, exactly here in the order of all changes. Returns it and the position that must
    /// be stable.
    pub(crate) async fn make_snapshot(
        &self,
        name: &str,
        made_by: &str,
    ) -> Result<(SnapshotInfo, Lsn), SnapshotError> {
        check_name(name)?;
        // Of two requests for the same name one is first.
        let _making = self.making_snapshot.lock().await;
        loop {
            self.state.signals.check_running()?;
            if self.state.snapshots.named(name).is_some() {
                return Err(SnapshotError::Exists(name.to_owned()));
            }
            if self.state.snapshots.len() >= MAX_SNAPSHOTS {
                return Err(SnapshotError::Full);
            }
            if self.state.has_too_many_waiting() {
                return Err(SnapshotError::TooMany);
            }
            let record = SnapshotRecord {
                is_being_deleted: false,
                commit: CommitNumber::default(),
                lsn: Lsn::ZERO,
                used_bytes: 0,
                used_inodes: 0,
                made: convert::record_time(self.state.now()),
                name: name.to_owned(),
                made_by: made_by.to_owned(),
            };
            match self.state.make_snapshot(record.clone()) {
                Ok((id, end)) => return Ok((Snapshots::made(id, record), end)),
                Err(Refusal::Error(Error::Delay)) if self.state.has_too_many_waiting() => {
                    return Err(SnapshotError::TooMany);
                }
                Err(Refusal::Error(error)) => return Err(error.into()),
                Err(Refusal::Full(bytes)) => self.state.wait_for_log_room(bytes).await?,
            }
        }
    }
}
