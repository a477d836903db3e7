//! Files with secrets, which only their owner may read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Permissions of other users that are refused.
const OTHERS: u32 = 0o077;

/// Opens the file that `setting` names. `danger` is what other users could do with its content. The permissions are
/// checked on the opened file, so that it cannot be replaced in between.
///
/// # Errors
/// If it cannot be read or other users may read it: the problem and the remedy, as a message to the user.
pub(crate) fn open_private(setting: &str, path: &Path, danger: &str) -> Result<File, String> {
    let failed = |error: io::Error| unreadable(setting, path, &error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(format!(
            "{setting} = {path}: users other than its owner have access to it (mode {mode:04o}), and {danger}: \
             run `chmod 600 {path}` as its owner, and make a new one if other users may have read it",
            path = path.display(),
            mode = mode & 0o7777,
        ));
    }
    Ok(file)
}

/// Why a file cannot be read, and the remedy.
pub(crate) fn unreadable(setting: &str, path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "put the file there, or correct the path",
        io::ErrorKind::PermissionDenied => "let the user that runs the gateway read it",
        _ if fs::metadata(path).is_ok_and(|found| found.is_dir()) => "name a file in that folder",
        _ => "make it readable, or correct the path",
    };
    format!(
        "{setting} = {}: cannot read it: {error}; {advice}",
        path.display()
    )
}
