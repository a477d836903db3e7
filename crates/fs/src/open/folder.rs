//! The gateway's folder on the local disk, and the value of its log beside the state of the bucket.

use std::sync::Arc;

use forebay_environment::LocalFolder;
use forebay_environment::archived_log::{self, ArchiveOutcome, Note, Published};
use forebay_environment::state_file::{self, GatewayId, LocalState};
use forebay_meta::record::VolumeState;
use forebay_object::Store;
use forebay_types::{Epoch, Inode, Lsn, VolumeId};
use forebay_vfs::Timestamp;
use forebay_wal::{LogKeys, Recovery, Storage, WriterEnd};

use super::OpenError;

/// The gateway's folder on the local disk, locked.
pub(super) struct Local {
    pub(super) folder: Arc<dyn LocalFolder>,
    pub(super) state: Option<LocalState>,
    volume: VolumeId,
    /// The log folder; locked also for a volume without a log.
    pub(super) storage: Arc<dyn Storage>,
}

/// The starting point of an opening: the bucket's state, and the log beside it.
pub(super) struct Outlook {
    pub(super) bucket: VolumeState,
    /// Whether the log continues the bucket's state. Otherwise another gateway has written to the volume since.
    pub(super) continues: bool,
    /// The log, if it continues.
    pub(super) recovery: Option<Recovery>,
}

impl Local {
    pub(super) fn open(folder: Arc<dyn LocalFolder>, volume: VolumeId) -> Result<Local, OpenError> {
        let state = state_file::load(&*folder)?;
        if let Some(found) = state.as_ref().map(|state| state.volume)
            && found != volume
        {
            return Err(OpenError::OtherVolume {
                folder: folder.path().to_owned(),
                found,
                expected: volume,
            });
        }
        let storage = folder.log().map_err(|source| OpenError::LogFolder {
            folder: folder.path().to_owned(),
            source,
        })?;
        Ok(Local {
            folder,
            state,
            volume,
            storage,
        })
    }

    /// Stores `gateway` as the identity of the folder, on stable storage when this returns. So a start that ends
    /// early is recognized by its note in the bucket.
    pub(super) fn keep_identity(&self, gateway: GatewayId) -> Result<(), OpenError> {
        if self.state.is_none() {
            state_file::store(&*self.folder, &LocalState::new(self.volume, gateway))?;
        }
        Ok(())
    }

    /// Compares the log with a bucket in this state. Changes nothing.
    pub(super) fn consider(
        &self,
        store: &Store,
        bucket: VolumeState,
        keys: &LogKeys,
    ) -> Result<Outlook, OpenError> {
        let Some(state) = &self.state else {
            return Ok(Outlook {
                bucket,
                continues: false,
                recovery: None,
            });
        };
        if bucket.epoch < state.epoch {
            return Err(OpenError::PutBack {
                url: store.url.clone(),
                folder: self.folder.path().to_owned(),
                found: bucket.epoch,
                seen: state.epoch,
            });
        }
        let continues = state.continues(bucket.gateway, bucket.epoch);
        let recovery = match continues {
            true => {
                let ending = state.ending(self.folder.boot_id());
                Some(self.scan(state.volume, bucket.published, ending, keys)?)
            }
            false => None,
        };
        Ok(Outlook {
            bucket,
            continues,
            recovery,
        })
    }

    /// Reads the log from the published LSN on.
    pub(super) fn scan(
        &self,
        volume: VolumeId,
        from: Lsn,
        ending: WriterEnd,
        keys: &LogKeys,
    ) -> Result<Recovery, OpenError> {
        let storage = self.storage.clone();
        Ok(Recovery::scan_with(
            storage,
            volume,
            from,
            ending,
            keys.clone(),
        )?)
    }

    /// Archives the log, because another gateway has written to the volume since: it must never be replayed. Fails if
    /// archived logs take `limit` bytes already.
    pub(super) fn put_log_aside(
        &self,
        bucket: &VolumeState,
        now: Timestamp,
        limit: u64,
    ) -> Result<(), OpenError> {
        let epoch = self.state.as_ref().map_or(Epoch(0), |state| state.epoch);
        let note = self.state.as_ref().map(|state| Note {
            volume: state.volume,
            gateway: state.gateway,
            epoch,
            published: archived_log::published(&*self.folder, state),
            taken_by: (bucket.gateway, bucket.epoch),
            archived_at: now.seconds,
        });
        let fate = self.archive(&format!("epoch-{}", epoch.0), note, limit)?;
        let (folder, by) = (self.folder.path().display(), bucket.epoch.0);
        match fate {
            // `NoRoom` became an error above.
            ArchiveOutcome::Nothing | ArchiveOutcome::NoRoom { .. } => {}
            ArchiveOutcome::Discarded => tracing::info!(
                "another gateway has written the volume since, in epoch {by}; everything in the log in {folder} is in the bucket"
            ),
            ArchiveOutcome::Kept { label, segments } => tracing::warn!(
                "the log in {folder} holds changes that were not published before another gateway wrote the volume in epoch {by}: it is archived ({segments} segments, label {label}) and not replayed; `forebay log list` shows its content, and `forebay log salvage {label}` writes it as files"
            ),
        }
        Ok(())
    }

    /// Deletes the log: the bucket, in this state, has all of it, and the volume goes on without a log. Keeps only
    /// the part behind a damaged place.
    pub(super) fn archive_published_log(
        &self,
        bucket: &VolumeState,
        volume: VolumeId,
        now: Timestamp,
    ) -> Result<(), OpenError> {
        let note = Note {
            volume,
            gateway: bucket.gateway,
            epoch: bucket.epoch,
            published: Some(Published {
                lsn: bucket.published,
                next_inode: Inode(bucket.next_inode),
            }),
            taken_by: (bucket.gateway, bucket.epoch),
            archived_at: now.seconds,
        };
        let folder = self.folder.path().display();
        match self.archive("published", Some(note), u64::MAX)? {
            ArchiveOutcome::Nothing | ArchiveOutcome::NoRoom { .. } => {}
            ArchiveOutcome::Discarded => tracing::info!(
                "everything in the log in {folder} is in the bucket; the configuration has log = none, so the log is removed"
            ),
            ArchiveOutcome::Kept { label, .. } => tracing::warn!(
                "the readable part of the log in {folder} is published, and the log is archived (label {label}): the configuration has log = none"
            ),
        }
        Ok(())
    }

    fn archive(
        &self,
        label: &str,
        note: Option<Note>,
        limit: u64,
    ) -> Result<ArchiveOutcome, OpenError> {
        let fate = archived_log::archive(&*self.folder, &self.storage, label, note, limit);
        match fate {
            Ok(ArchiveOutcome::NoRoom { archived }) => Err(OpenError::ArchiveFull {
                folder: self.folder.path().to_owned(),
                archived,
                limit,
            }),
            Ok(fate) => Ok(fate),
            Err(source) => Err(OpenError::LogFolder {
                folder: self.folder.path().to_owned(),
                source,
            }),
        }
    }
}
