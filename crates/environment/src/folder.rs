//! The interface of the gateway's folder on its local disk.
//!
//! [`state_file`](crate::state_file) defines the content of its state file. [`disk_folder`](crate::disk_folder) is
//! the folder on a real disk; simulations have others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_wal::{Options, Recovery, Storage, Wal};

/// Folder of the log in the local folder.
pub const LOG_FOLDER: &str = "log";

/// Name of the state file in the local folder.
pub(crate) const STATE_FILE: &str = "state";

/// The path of the note of a log that was archived in the folder `log`.
pub(crate) fn note_path(log: &Path, label: &str) -> PathBuf {
    log.join(format!("{label}.note"))
}

/// A folder on the gateway's local disk: a state file and the log.
pub trait LocalFolder: Send + Sync + 'static {
    /// The path of the folder, for messages.
    fn path(&self) -> &Path;

    /// Makes the folder if it is missing, and locks the log in it against a second gateway until the returned storage
    /// is dropped.
    fn log(&self) -> io::Result<Arc<dyn Storage>>;

    /// The content of the state file; `None` if there is none.
    fn load_state(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the state file as a whole: after a crash it holds either the old content or the new
    /// one. The new one is on stable storage when this returns.
    fn replace_state(&self, content: &[u8]) -> io::Result<()>;

    /// The mark: the line of the last [`set_mark`](Self::set_mark); `None` if there was none.
    fn mark(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the mark, a line that always has the same length. After a crash it holds the old line, the new one,
    /// or a mixture: only the exactness of a salvage depends on it.
    fn set_mark(&self, line: &[u8]) -> io::Result<()>;

    /// Writes a note beside the log that was archived under `label`.
    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()>;

    /// The id that the kernel drew when it booted: while it is the same, nothing that was written is lost, flushed or
    /// not. Zeros if it is not known.
    fn boot_id(&self) -> [u8; 16];

    /// The folder for a disk cache, which may not exist yet or be left from an earlier run; `None` if there can be no
    /// cache.
    fn disk_cache(&self) -> Option<PathBuf> {
        None
    }

    /// Continues a recovered log.
    fn start_log(
        &self,
        recovery: Recovery,
        options: Options,
    ) -> Result<Wal, forebay_wal::OpenError> {
        recovery.into_wal(options)
    }
}
