//! Claims a local folder: keeps its gateway from starting while another program writes the volume.

use std::path::{Path, PathBuf};

use forebay_environment::LOG_FOLDER;
use forebay_environment::state_file::{self, LocalError};
use forebay_meta::VolumeDescriptor;
use forebay_meta::volume::VolumeError;
use forebay_object::Store;
use forebay_types::Epoch;
use forebay_wal::{FileStorage, Label};

use super::{Logs, LogsError};

/// Why a local folder cannot be claimed. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The gateway is running.
    #[error(
        "a gateway runs on {folder}: stop it first (all gateways of this volume, on whatever machine)"
    )]
    Running {
        /// The local folder.
        folder: PathBuf,
    },
    /// The log has changes that the bucket does not have.
    #[error(
        "the log in {folder} holds {records} changes that are not in the bucket: start the gateway and stop it, which publishes them, and run this command again. If the gateway does not start, --put-log-aside continues without them: the next start then archives the log, and you can salvage it (`forebay log list`)"
    )]
    Unpublished {
        /// The local folder.
        folder: PathBuf,
        /// Number of their log records.
        records: u64,
    },
    /// There is no volume, or its descriptor is damaged or newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The gateway's own state file.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogsError),
}

/// While it lives, no gateway starts on the local folder.
#[derive(Debug)]
pub struct Claim {
    _lock: Option<FileStorage>,
    seen: Epoch,
}

impl Claim {
    /// Claims the local folder `data_dir`, if a gateway was ever started there, for a program that is about to write
    /// the volume in `store`. With `unpublished` even if the log has changes that the bucket does not have.
    ///
    /// # Errors
    /// When there is no volume, a gateway runs there, the log holds what is not in the bucket, or it cannot be read.
    pub async fn of(
        data_dir: &Path,
        store: &Store,
        unpublished: bool,
    ) -> Result<Claim, ClaimError> {
        let descriptor = VolumeDescriptor::load(&store.store, &store.root)
            .await
            .map_err(|error| error.at(&store.url))?;
        let seen = state_file::epoch_seen(data_dir, descriptor.volume)?;
        let log = data_dir.join(LOG_FOLDER);
        if !log.is_dir() {
            return Ok(Claim { _lock: None, seen });
        }
        let folder = || data_dir.to_owned();
        let lock = FileStorage::open(&log).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => ClaimError::Running { folder: folder() },
            _ => ClaimError::Log(LogsError::io(&log)(error)),
        })?;
        let logs = Logs::open(data_dir)?;
        let current = logs
            .list()
            .into_iter()
            .find(|log| log.label == Label::Current);
        if let Some(log) = current.filter(|log| log.volume == Some(descriptor.volume))
            && log.unpublished.records > 0
            && !unpublished
        {
            return Err(ClaimError::Unpublished {
                folder: folder(),
                records: log.unpublished.records,
            });
        }
        Ok(Claim {
            _lock: Some(lock),
            seen,
        })
    }

    /// The highest epoch of the volume that the gateway of the folder has seen. A bucket of an earlier epoch was
    /// restored.
    pub fn seen(&self) -> Epoch {
        self.seen
    }
}
