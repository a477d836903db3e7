//! What is asked and said about quotas.

use std::fmt;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// What is to be done. Paths are those of directories within the volume, from its root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum QuotaRequest {
    /// Name all quotas.
    List,
    /// Say which quota a directory counts in.
    Show {
        /// The directory.
        path: String,
    },
    /// Limit a directory and all that is below it.
    Set {
        /// The directory.
        path: String,
        /// Bytes that files may use.
        bytes: QuotaLimit,
        /// Objects that there may be.
        files: QuotaLimit,
    },
    /// Take a quota away.
    Remove {
        /// The directory.
        path: String,
    },
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuotaLimit {
    /// It stays as it is.
    #[default]
    Keep,
    /// There is none any more.
    None,
    /// It is this.
    To(u64),
}

/// A quota and what its tree holds. `forebay quota list --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaReport {
    /// The directory, from the volume's root; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its inode number.
    pub inode: u64,
    /// Bytes that files may use; null for no limit.
    pub limit_bytes: Option<u64>,
    /// Objects that there may be, the directory among them; null for no limit.
    pub limit_files: Option<u64>,
    /// Bytes that files use.
    pub used_bytes: u64,
    /// Objects there are, the directory among them.
    pub used_files: u64,
    /// Whether what was there when the quota was set, or removed, is still being counted.
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
                "  (counting goes on)"
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
                // A name must not write to the terminal.
                quota.path.escape_debug(),
            )?;
        }
        Ok(())
    }
}
