//! Requests and reports about quotas.

use std::fmt;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// A request. Paths are those of directories within the volume, from its root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum QuotaRequest {
    /// List all quotas.
    List,
    /// Show the quota that a directory counts in.
    Show {
        /// The directory.
        path: String,
    },
    /// Limit a directory and everything below it.
    Set {
        /// The directory.
        path: String,
        /// Bytes that files may use.
        bytes: QuotaLimit,
        /// Maximum number of objects.
        files: QuotaLimit,
    },
    /// Remove a quota.
    Remove {
        /// The directory.
        path: String,
    },
}

/// The change of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuotaLimit {
    /// Unchanged.
    #[default]
    Keep,
    /// No limit.
    None,
    /// This limit.
    To(u64),
}

/// A quota and its usage. `forebay quota list --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReport {
    /// The directory, from the volume's root; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its inode number.
    pub inode: u64,
    /// Bytes that files may use; null for no limit.
    pub limit_bytes: Option<u64>,
    /// Maximum number of objects, including the directory; null for no limit.
    pub limit_files: Option<u64>,
    /// Bytes that files use.
    pub used_bytes: u64,
    /// Number of objects, including the directory.
    pub used_files: u64,
    /// Whether the objects from before the quota was set, or removed, are still being counted.
    pub counting: bool,
}

/// Quotas as a table for people.
#[derive(Clone, Copy, Debug)]
pub struct QuotaTable<'a>(pub &'a [QuotaReport]);

impl fmt::Display for QuotaTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return writeln!(f, "no quotas");
        }
        let size = |bytes| ByteSize::b(bytes).display().iec().to_string();
        let none = || "none".to_owned();
        writeln!(
            f,
            "{:>12} {:>12} {:>12} {:>12}  directory",
            "used", "limit", "files", "limit"
        )?;
        for quota in self.0 {
            let note = if quota.counting {
                "  (counting in progress)"
            } else {
                ""
            };
            writeln!(
                f,
                "{:>12} {:>12} {:>12} {:>12}  {}{note}",
                size(quota.used_bytes),
                quota.limit_bytes.map_or_else(none, size),
                quota.used_files,
                quota
                    .limit_files
                    .map_or_else(none, |files| files.to_string()),
                // A name must not send control characters to the terminal.
                quota.path.escape_debug(),
            )?;
        }
        Ok(())
    }
}
