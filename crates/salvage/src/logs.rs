//! The logs of a gateway's local folder, for an administrator: their content, and the recovery of changes that never
//! reached the bucket.
//!
//! A log that another gateway has overtaken is archived and never replayed. Its records beyond the published LSN were
//! acknowledged to clients and exist nowhere else, so the log can be [listed](Logs::list), [read record by
//! record](Logs::events) and [salvaged](Logs::salvage) as files; only then is it [forgotten](Logs::forget). Nothing
//! here changes the bucket or takes the volume's epoch.

mod claim;
mod event;
mod ranges;
mod salvage;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_environment::archived_log;
use forebay_seal::DataKeys;
use forebay_types::{Inode, Lsn, VolumeId};
use forebay_view::{View, ViewError};
use forebay_wal::{FileStorage, Inspection, KeptLog, LogFolder, RecordKind, Summary};

pub use claim::{Claim, ClaimError};
pub use event::{Event, EventReader, NameEvent, What};
use forebay_environment::Environment;
pub use forebay_environment::archived_log::{Note, Published};
use forebay_environment::state_file::{self, LocalState};
use forebay_environment::{LOG_FOLDER, LocalFolder};
pub use forebay_wal::{Ending, Gap, GapReason, Label};
pub use salvage::{Content, NameChange, Salvage, SalvagedFile};
use tree::Tree;

/// Why a log cannot be read or salvaged. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// There is no log folder.
    #[error("{path} has no log: name the data_dir of the gateway with --data-dir ({source})")]
    NoFolder {
        /// The path where it was looked for.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such log.
    #[error("there is no log {label} in {folder}; the logs there are: {known}")]
    Unknown {
        /// The label that was asked for.
        label: Label,
        /// The log folder.
        folder: PathBuf,
        /// The labels that exist.
        known: String,
    },
    /// The current log belongs to a gateway that runs.
    #[error(
        "a gateway is writing the log in {folder}, and publishes it; to salvage it anyway, stop the gateway"
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The log is not archived.
    #[error(
        "the current log is replayed at the next start of the gateway and cannot be forgotten; to give it up, move {folder} away"
    )]
    Current {
        /// The folder.
        folder: PathBuf,
    },
    /// The log is sealed.
    #[error(
        "the log {label} is sealed, and its records cannot be read without the keys of its volume: set encryption = \"aes-256-gcm\" and a passphrase, key file or KMS key of the volume, and name its store with --store"
    )]
    Locked {
        /// The log.
        label: Label,
    },
    /// The changes in the log would be lost.
    #[error(
        "the log {label} was not salvaged yet: run `forebay log salvage {label} --to FOLDER` first, or use --force to delete its content"
    )]
    NotSalvaged {
        /// The log.
        label: Label,
    },
    /// The folder for the salvaged files exists already.
    #[error("{folder} exists already: name a new folder, because a salvage never overwrites files")]
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// The bucket with the base is another volume.
    #[error(
        "the log belongs to volume {log} and the store holds volume {store}: name the right --store, or salvage without one"
    )]
    OtherVolume {
        /// The volume of the log.
        log: VolumeId,
        /// The volume in the store.
        store: VolumeId,
    },
    /// The bucket cannot be read.
    #[error(transparent)]
    Base(#[from] ViewError),
    /// The system reported an error.
    #[error("{path}: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LogsError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> LogsError {
        let path = path.to_owned();
        move |source| LogsError::Io { path, source }
    }
}

/// The logs of one local folder.
pub struct Logs {
    folder: LogFolder,
    inspection: Inspection,
    local: Arc<dyn LocalFolder>,
    state: Option<LocalState>,
}

/// The space of archived logs on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Archived {
    /// Number of archived logs.
    pub logs: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// When the oldest was archived, in seconds since 1970, as far as that was noted.
    pub oldest: Option<i64>,
}

/// Counts the archived logs in the local folder of a gateway, which may be running. No record is read.
///
/// # Errors
/// When there is no log folder or it cannot be listed.
pub fn archived(data_dir: &Path) -> io::Result<Archived> {
    let path = data_dir.join(LOG_FOLDER);
    let files = forebay_wal::archived(&LogFolder::open(&path)?)?;
    let times = files
        .keys()
        .filter_map(|label| Some(Note::read(&path, label)?.archived_at));
    Ok(Archived {
        logs: files.len() as u64,
        bytes: files.values().sum(),
        oldest: times.min(),
    })
}

/// An archived log, as far as it is known without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    /// Its label.
    pub label: Label,
    /// Bytes of its files.
    pub bytes: u64,
    /// The note that was written when it was archived.
    pub note: Option<Note>,
    /// The folder to which it was salvaged; `None` if it was not salvaged.
    pub salvaged_to: Option<String>,
}

/// The archived logs in the local folder of a gateway, which may be running. No record is read.
///
/// # Errors
/// When there is no log folder or it cannot be listed.
pub fn archived_logs(data_dir: &Path) -> io::Result<Vec<ArchivedLog>> {
    let path = data_dir.join(LOG_FOLDER);
    let files = forebay_wal::archived(&LogFolder::open(&path)?)?;
    let log = |(label, bytes): (Label, u64)| ArchivedLog {
        bytes,
        note: Note::read(&path, &label),
        salvaged_to: std::fs::read_to_string(receipt(&path, &label)).ok(),
        label,
    };
    Ok(files.into_iter().map(log).collect())
}

/// The file that names the folder to which a log was salvaged.
fn receipt(log_folder: &Path, label: &Label) -> PathBuf {
    log_folder.join(format!("{label}.salvaged"))
}

/// One log, and its unpublished part.
#[derive(Clone, Debug)]
pub struct LogInfo {
    /// The label of the log.
    pub label: Label,
    /// Its volume; `None` if no segment has a valid header.
    pub volume: Option<VolumeId>,
    /// The note that was written when it was archived.
    pub note: Option<Note>,
    /// The published part of it; `None` if that is not known.
    pub published: Option<Published>,
    /// Its segments, gaps and end.
    pub summary: Summary,
    /// Files that cannot be read, and why.
    pub unusable: Vec<(String, String)>,
    /// Whether it has sealed records that cannot be read because the keys are missing. They are counted, but neither
    /// authenticated nor assigned to files.
    pub locked: bool,
    /// Bytes of its files on disk.
    pub disk_bytes: u64,
    /// The unpublished changes; all changes if the published part is not known.
    pub unpublished: Unpublished,
}

/// The changes of a log beyond the published LSN.
#[derive(Clone, Debug, Default)]
pub struct Unpublished {
    /// Number of records.
    pub records: u64,
    /// Bytes that were written to files.
    pub data_bytes: u64,
    /// Number of changes of names and attributes.
    pub name_changes: u64,
    /// The files that were written to or changed in size, by inode.
    pub files: Vec<TouchedFile>,
}

/// A file with unpublished changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedFile {
    /// Its inode number.
    pub inode: Inode,
    /// Its path, as far as the log shows it.
    pub path: String,
    /// Bytes that were written to it.
    pub bytes: u64,
    /// Whether it has lost its last name since.
    pub removed: bool,
}

impl Logs {
    /// Opens the local folder of a gateway, which may be running.
    ///
    /// # Errors
    /// When there is no log folder or it cannot be listed.
    pub fn open(data_dir: &Path) -> Result<Logs, LogsError> {
        Logs::open_with(data_dir, None, false)
    }

    /// The same, with the keys of sealed logs. With `only_sealed`, for a gateway that seals its log, no unsealed
    /// records count.
    ///
    /// # Errors
    /// When there is no log folder or it cannot be listed.
    pub fn open_with(
        data_dir: &Path,
        keys: Option<Arc<DataKeys>>,
        only_sealed: bool,
    ) -> Result<Logs, LogsError> {
        let path = data_dir.join(LOG_FOLDER);
        let no_folder = |source| LogsError::NoFolder {
            path: data_dir.to_owned(),
            source,
        };
        let folder = LogFolder::open(&path).map_err(no_folder)?;
        let files = LogFolder::open(&path).map_err(no_folder)?;
        let inspection = Inspection::open_with(Arc::new(files), keys, only_sealed)
            .map_err(LogsError::io(&path))?;
        let local = Environment::real(data_dir.to_owned()).local;
        Ok(Logs {
            folder,
            inspection,
            // Without it less is known, and the information on each log says so.
            state: state_file::load(&*local).ok().flatten(),
            local,
        })
    }

    /// Reads every log completely: the current one first.
    pub fn list(&self) -> Vec<LogInfo> {
        let logs = self.inspection.logs().iter();
        logs.map(|log| self.describe(log)).collect()
    }

    /// Whether this log, or any log if `label` is `None`, has records that cannot be read because the keys are
    /// missing.
    pub fn is_locked(&self, label: Option<&Label>) -> bool {
        let mut logs = self.inspection.logs().iter();
        logs.any(|log| label.is_none_or(|label| log.label() == label) && log.is_locked())
    }

    /// The labels of all archived logs.
    pub fn archived(&self) -> Vec<Label> {
        let labels = self.inspection.logs().iter().map(KeptLog::label);
        labels
            .filter(|label| **label != Label::Current)
            .cloned()
            .collect()
    }

    /// Reads one log completely.
    ///
    /// # Errors
    /// When there is none of this label.
    pub fn info(&self, label: &Label) -> Result<LogInfo, LogsError> {
        Ok(self.describe(self.find(label)?))
    }

    /// Reads a log record by record, from `from` on.
    ///
    /// # Errors
    /// When there is none of this label, or it is sealed and there are no keys.
    pub fn events(&self, label: &Label, from: Lsn) -> Result<EventReader, LogsError> {
        Ok(EventReader::new(self.readable(label)?.read_from(from)))
    }

    /// The folder to which an archived log was salvaged; `None` if it was not salvaged.
    pub fn salvaged_to(&self, label: &Label) -> Option<String> {
        std::fs::read_to_string(self.receipt(label)).ok()
    }

    /// The file that records this.
    fn receipt(&self, label: &Label) -> PathBuf {
        receipt(self.folder.path(), label)
    }

    /// Deletes an archived log, and returns the bytes of disk space that this frees. With `force` also one that was
    /// not salvaged.
    ///
    /// # Errors
    /// For the current log, one that was not salvaged, and when the system refuses.
    pub fn forget(&self, label: &Label, force: bool) -> Result<u64, LogsError> {
        self.find(label)?;
        let folder = self.folder.path();
        if *label == Label::Current {
            return Err(LogsError::Current {
                folder: folder.to_owned(),
            });
        }
        if !force && self.salvaged_to(label).is_none() {
            return Err(LogsError::NotSalvaged {
                label: label.clone(),
            });
        }
        let bytes = self.folder.forget(label).map_err(LogsError::io(folder))?;
        Note::remove(folder, label).map_err(LogsError::io(folder))?;
        match std::fs::remove_file(self.receipt(label)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogsError::io(folder)(error))
            }
            _ => Ok(bytes),
        }
    }

    /// Writes the unpublished changes into the new folder `to`: each file as it was when the log ended, or, without
    /// `base`, as far as the log alone has it. [`Salvage`] says for each file which of the two.
    ///
    /// # Errors
    /// If `to` exists, the log is sealed and there are no keys, the current log is in use, `base` is another volume,
    /// or something cannot be written. Files written by then stay.
    pub async fn salvage(
        &self,
        label: &Label,
        to: &Path,
        base: Option<&View>,
    ) -> Result<Salvage, LogsError> {
        let log = self.readable(label)?;
        let _lock = match label {
            Label::Current => Some(self.lock()?),
            Label::Archived(_) => None,
        };
        if let (Some(base), Some(volume)) = (base, log.volume())
            && base.volume() != volume
        {
            return Err(LogsError::OtherVolume {
                log: volume,
                store: base.volume(),
            });
        }
        let salvaged = salvage::salvage(log, self.published(log), to, base).await?;
        if *label != Label::Current {
            let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
            let receipt = self.receipt(label);
            std::fs::write(&receipt, to.as_os_str().as_encoded_bytes())
                .map_err(LogsError::io(&receipt))?;
        }
        Ok(salvaged)
    }

    /// Keeps a gateway from starting while its log is read.
    fn lock(&self) -> Result<FileStorage, LogsError> {
        let folder = self.folder.path();
        FileStorage::open(folder).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => LogsError::InUse {
                folder: folder.to_owned(),
            },
            _ => LogsError::io(folder)(error),
        })
    }

    /// Finds a log whose records can be read.
    fn readable(&self, label: &Label) -> Result<&KeptLog, LogsError> {
        let log = self.find(label)?;
        match log.is_locked() {
            true => Err(LogsError::Locked {
                label: label.clone(),
            }),
            false => Ok(log),
        }
    }

    fn find(&self, label: &Label) -> Result<&KeptLog, LogsError> {
        self.inspection.log(label).ok_or_else(|| {
            let known: Vec<String> = self
                .inspection
                .logs()
                .iter()
                .map(|log| log.label().to_string())
                .collect();
            LogsError::Unknown {
                label: label.clone(),
                folder: self.folder.path().to_owned(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            }
        })
    }

    fn published(&self, log: &KeptLog) -> Option<Published> {
        match log.label() {
            Label::Current => archived_log::published(&*self.local, self.state.as_ref()?),
            label => Note::read(self.folder.path(), label)?.published,
        }
    }

    fn describe(&self, log: &KeptLog) -> LogInfo {
        let published = self.published(log);
        LogInfo {
            label: log.label().clone(),
            volume: log.volume(),
            note: Note::read(self.folder.path(), log.label()),
            published,
            summary: log.summarize(),
            unusable: log.unusable().to_vec(),
            locked: log.is_locked(),
            disk_bytes: log.bytes(),
            unpublished: unpublished(log, published),
        }
    }
}

fn unpublished(log: &KeptLog, published: Option<Published>) -> Unpublished {
    let from = published.map_or(Lsn::ZERO, |published| published.lsn);
    let tree = Tree::of(log, published);
    let mut found = Unpublished::default();
    let mut events = EventReader::new(log.read_from(from));
    while let Some(event) = events.next() {
        if matches!(event.what, What::Gap { .. }) {
            continue;
        }
        found.records += 1;
        match event.what {
            What::Write { data, .. } => found.data_bytes += data.len() as u64,
            // Including the header of each write: a few bytes.
            What::Locked {
                kind: RecordKind::Data,
                bytes,
            } => found.data_bytes += bytes,
            What::Names(changes) => found.name_changes += changes.len() as u64,
            _ => {}
        }
    }
    found.files = tree
        .touched()
        .map(|(inode, touched)| TouchedFile {
            inode,
            path: tree.describe(inode),
            bytes: touched.written,
            removed: tree.is_removed(inode),
        })
        .collect();
    found
}
