//! Requests and reports about snapshots.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// A request about snapshots of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum SnapshotRequest {
    /// List all snapshots.
    List,
    /// Show one.
    Show {
        /// Its name, or its number.
        name: String,
    },
    /// Make one of everything that was acknowledged before.
    Create {
        /// Its name; without one it is named after the time, in UTC.
        name: Option<String>,
        /// Name of the user that asks, shown in the list of snapshots.
        by: String,
    },
    /// Delete one.
    Delete {
        /// Its name, or its number.
        name: String,
    },
}

/// A snapshot. `forebay snapshot list --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u64,
    /// When it was made, in seconds since 1970.
    pub made: i64,
    /// The person or schedule that asked for it.
    pub made_by: String,
    /// Whether the bucket has it; if not, the log has it.
    pub published: bool,
    /// Bytes of its files; null before it is published.
    pub used_bytes: Option<u64>,
    /// Number of its objects; null before it is published.
    pub used_files: Option<u64>,
    /// Bytes in the bucket that its deletion gives back; null before it is published.
    pub unique_bytes: Option<u64>,
    /// Bytes in the bucket of packs to which it refers and no live file, those of other snapshots among them; null
    /// before it is published.
    pub held_bytes: Option<u64>,
}

/// Snapshots as a table for people.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotTable<'a>(pub &'a [SnapshotReport]);

/// Seconds since 1970 as text: `2026-11-27T09:15:00Z`.
pub(crate) fn utc(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    match SystemTime::UNIX_EPOCH.checked_add(since) {
        Some(time) => humantime::format_rfc3339_seconds(time).to_string(),
        None => seconds.to_string(),
    }
}

impl fmt::Display for SnapshotTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return writeln!(f, "no snapshots");
        }
        let size = |bytes: Option<u64>| {
            bytes.map_or_else(
                || "-".to_owned(),
                |bytes| ByteSize::b(bytes).display().iec().to_string(),
            )
        };
        writeln!(
            f,
            "{:<20} {:>12} {:>12} {:>12} {:>12}  name",
            "made (UTC)", "files", "bytes", "alone", "held"
        )?;
        for snapshot in self.0 {
            let note = match snapshot.published {
                true => "",
                false => "  (not in the bucket yet)",
            };
            let files = snapshot.used_files;
            writeln!(
                f,
                "{:<20} {:>12} {:>12} {:>12} {:>12}  {}, by {}{note}",
                utc(snapshot.made),
                files.map_or_else(|| "-".to_owned(), |files| files.to_string()),
                size(snapshot.used_bytes),
                size(snapshot.unique_bytes),
                size(snapshot.held_bytes),
                // A name must not send control characters to the terminal.
                snapshot.name.escape_debug(),
                snapshot.made_by.escape_debug(),
            )?;
        }
        Ok(())
    }
}
