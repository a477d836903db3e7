//! Requests and reports about the trash.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::VolumePath;
use super::snapshot::utc;
use super::status::size;

/// A request about the trash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum TrashRequest {
    /// List some objects.
    List {
        /// Behind the one that ends at this time and has this number.
        after: Option<(u64, u64)>,
    },
    /// Bring back what had a path, and everything below it.
    Path {
        /// The path.
        path: VolumePath,
        /// Where to, if not to its place.
        to: Option<VolumePath>,
    },
    /// Bring back one object.
    Id {
        /// Its number.
        id: u64,
        /// Where to, if not to its place.
        to: Option<VolumePath>,
    },
}

/// A file or directory that is or was in the trash. `forebay undelete --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashRow {
    /// Its number.
    pub id: u64,
    /// Its path from the volume's root; null if the directory that it was in is gone. Bytes that are no printable ASCII
    /// are encoded as in URLs.
    pub path: Option<VolumePath>,
    /// Its last name, encoded in the same manner.
    pub name: VolumePath,
    /// `file` or `directory`.
    pub kind: String,
    /// Size of a file.
    pub size_bytes: u64,
    /// When it was removed or replaced, in seconds since 1970.
    pub removed: i64,
    /// User that removed or replaced it.
    pub removed_by: u32,
    /// When it will be deleted, in seconds since 1970, if no room is needed before.
    pub until: u64,
}

/// The answer to a request about the trash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashReport {
    /// The objects that are listed, or are back.
    pub objects: Vec<TrashRow>,
    /// Objects that stay in the trash because something else has their path.
    pub left: u64,
    /// Where a list goes on; null at its end.
    pub next: Option<(u64, u64)>,
}

/// Objects in the trash as lines of a table for people.
#[derive(Clone, Copy, Debug)]
pub struct TrashTable<'a>(pub &'a [TrashRow]);

/// The head of that table.
pub const TRASH_HEAD: &str =
    "removed (UTC)         by uid     until (UTC)                 size          id  path\n";

impl fmt::Display for TrashTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.0 {
            let is_directory = row.kind == "directory";
            let (path, note) = match &row.path {
                Some(VolumePath(path)) => (path, ""),
                None => (
                    &row.name.0,
                    "  (its directory is gone: --id and --to bring it back)",
                ),
            };
            writeln!(
                f,
                "{:<20}  {:<9}  {:<20}  {:>10}  {:>10}  {}{}{note}",
                utc(row.removed),
                row.removed_by,
                utc(i64::try_from(row.until).unwrap_or(i64::MAX)),
                if is_directory {
                    "-".to_owned()
                } else {
                    size(row.size_bytes)
                },
                row.id,
                // A name must not send control characters to the terminal.
                path.escape_ascii(),
                if is_directory { "/" } else { "" },
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_where_each_object_was_and_escapes_names() {
        let file = TrashRow {
            id: 17,
            path: Some(VolumePath(b"/home/a\x1bnn".to_vec())),
            name: VolumePath(b"a\x1bnn".to_vec()),
            kind: "file".to_owned(),
            size_bytes: 2048,
            removed: 1_764_230_400,
            removed_by: 1000,
            until: 1_764_316_800,
        };
        let lost = TrashRow {
            id: 18,
            path: None,
            name: VolumePath(b"old".to_vec()),
            kind: "directory".to_owned(),
            ..file.clone()
        };
        let text = format!("{TRASH_HEAD}{}", TrashTable(&[file, lost]));
        assert_eq!(
            text,
            "removed (UTC)         by uid     until (UTC)                 size          id  path\n\
             2025-11-27T08:00:00Z  1000       2025-11-28T08:00:00Z     2.0 KiB          17  /home/a\\x1bnn\n\
             2025-11-27T08:00:00Z  1000       2025-11-28T08:00:00Z           -          18  old/  (its directory is gone: --id and --to bring it back)\n"
        );
    }
}
