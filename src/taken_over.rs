//! The note in a local folder about a takeover: it names the gateway that has taken the volume. `forebay status`
//! shows it while no gateway runs, until one serves from this folder again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum length of the text that is shown.
const LONGEST: u64 = 16 << 10;

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("taken-over")
}

/// Records that the gateway of this folder was taken over. Nothing depends on the note.
pub(crate) fn note(data_dir: &Path, reason: &str) {
    if let Err(error) = fs::write(file(data_dir), reason) {
        tracing::warn!("{}: {error}", file(data_dir).display());
    }
}

/// Deletes the note: a gateway serves from this folder again.
pub(crate) fn forget(data_dir: &Path) {
    match fs::remove_file(file(data_dir)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("{}: {error}", file(data_dir).display());
        }
        _ => {}
    }
}

/// Reads the note, if there is one.
pub(crate) fn noted(data_dir: &Path) -> Option<String> {
    let file = file(data_dir);
    let is_short = fs::metadata(&file).ok()?.len() <= LONGEST;
    fs::read_to_string(file).ok().filter(|_| is_short)
}
