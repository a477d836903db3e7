//! The requests to the disk of the temporary folder, as the kernel counts them for all processes that use the disk.

use std::os::unix::fs::MetadataExt;

/// The unit of the kernel's counts, whatever the disk's own sectors are.
const SECTOR: u64 = 512;

/// Counts since the machine was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Writes. A flush of the disk counts as one.
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
}

impl Asked {
    /// The requests since `before`.
    pub(crate) fn since(self, before: Asked) -> Asked {
        Asked {
            writes: self.writes - before.writes,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// `None` if the folder has no single disk: in memory, or on a file system that has several.
pub(crate) fn asked() -> Option<Asked> {
    let device = std::env::temp_dir().metadata().ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let counts: Option<Vec<u64>> = text
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect();
    // Four numbers of reads, then of writes: count, merged ones, and sectors.
    let &[_, _, _, _, writes, _, sectors, ..] = counts?.as_slice() else {
        return None;
    };
    Some(Asked {
        writes,
        bytes: sectors * SECTOR,
    })
}
