//! The gateway's folder on its own disk, as the file system uses it.
//!
//! [`state_file`](crate::state_file) is the content of its state file. [`disk_folder`](crate::disk_folder) is the folder on a real
//! disk; simulations have others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_wal::{Options, Recovery, Storage, Wal};

/// Folder of the log in the local folder.
pub const LOG_FOLDER: &str = "log";

/// Name of the state file in the local folder.
pub(crate) const STATE_FILE: &str = "state";

/// Where the note about a log is that was put aside in the folder `log`.
pub(crate) fn note_path(log: &Path, label: &str) -> PathBuf {
    log.join(format!("{label}.note"))
}

/// A folder on the gateway's own disk: a state file and the log.
pub trait LocalFolder: Send + Sync + 'static {
    /// The folder's name, for messages.
    fn path(&self) -> &Path;

    /// Makes the folder if it is missing, and locks the log in it against a second gateway for as
    /// long as what it gives lives.
    fn log(&self) -> io::Result<Arc<dyn Storage>>;

    /// The content of the state file; `None` if there is none.
    fn load_state(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the state file as a whole: after a crash it holds either the old content or the new
    /// one. The new one is on stable storage when this returns.
    fn replace_state(&self, content: &[u8]) -> io::Result<()>;

    /// The mark: what [`set_mark`](Self::set_mark) was last told; `None` if that was never.
    fn mark(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the mark, a line that always has the same length. After a crash it holds the old
    /// line, the new one, or a mixture: nothing but the exactness of a salvage depends on it.
    fn set_mark(&self, line: &[u8]) -> io::Result<()>;

    /// Writes a note beside the log that was put aside under `label`.
    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()>;

    /// The id that the kernel drew when it booted: as long as it is the same, nothing that was
    /// written is lost, flushed or not. Zeros where that is not known.
    fn boot_id(&self) -> [u8; 16];

    /// Where a disk cache may be, which does not exist yet or is from an earlier run; `None` if there can be none.
    fn disk_cache(&self) -> Option<PathBuf> {
        None
    }

    /// Goes on with a recovered log.
    fn start_log(
        &self,
        recovery: Recovery,
        options: Options,
    ) -> Result<Wal, forebay_wal::OpenError> {
        recovery.into_wal(options)
    }
}
