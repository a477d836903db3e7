//! A request to put a file or directory of a snapshot back, and the report of that.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::VolumePath;
use super::status::size;

/// The request. Paths begin at the volume's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreOrder {
    /// The file or directory in the snapshot.
    pub path: VolumePath,
    /// The snapshot: its name or number.
    pub from: String,
    /// The path that it gets; the same one if not given.
    pub to: Option<VolumePath>,
    /// Whether an object that has that path is renamed first. If not, that is an error.
    pub replace: bool,
}

/// The report. `forebay restore --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// The path of the restored object.
    pub path: VolumePath,
    /// The path that the object has now that was there before; null if there was none.
    pub moved_aside: Option<VolumePath>,
    /// Number of restored objects of all kinds. A file with several names is one.
    pub objects: u64,
    /// Bytes of their files, without holes. They are shared with the snapshot.
    pub bytes: u64,
    /// Duration.
    pub seconds: f64,
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is restored: {} objects, {}, which it shares with the snapshot, in {:.2} s",
            self.path.0.escape_ascii(),
            self.objects,
            size(self.bytes),
            self.seconds
        )?;
        match &self.moved_aside {
            None => writeln!(f),
            Some(path) => writeln!(
                f,
                "\nbefore it there was another object; it is {} now",
                path.0.escape_ascii()
            ),
        }
    }
}
