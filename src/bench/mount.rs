//! The mount of the folder: a figure without it is of little use.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A folder and its mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The folder, without symbolic links.
    pub folder: PathBuf,
    /// The type of file system, such as `nfs` or `ext4`; none if the system does not report it.
    pub kind: Option<String>,
    /// The source of the mount: a device, or server and path.
    pub source: Option<String>,
    /// The options of the mount.
    pub options: Option<String>,
}

impl Mount {
    /// The mount of this folder, according to `/proc/self/mounts`.
    pub(super) fn of(folder: &Path) -> Mount {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Mount::among(folder, &mounts)
    }

    /// A folder whose mount is not known.
    pub(super) fn unknown(folder: impl Into<PathBuf>) -> Mount {
        Mount {
            folder: folder.into(),
            kind: None,
            source: None,
            options: None,
        }
    }

    fn among(folder: &Path, mounts: &str) -> Mount {
        let mut place = Mount::unknown(folder);
        let mut depth = 0;
        for mount in mounts.lines() {
            let mut fields = mount.split(' ');
            let mut next = || fields.next().map(unescape);
            let (Some(source), Some(point), Some(kind), Some(options)) =
                (next(), next(), next(), next())
            else {
                continue;
            };
            // Of several mounts at the same point, the last one is visible.
            let point = Path::new(&point);
            if folder.starts_with(point) && point.components().count() >= depth {
                depth = point.components().count();
                place.source = Some(source);
                place.kind = Some(kind);
                place.options = Some(options);
            }
        }
        place
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.folder.display().to_string().escape_debug())?;
        if let (Some(kind), Some(source)) = (&self.kind, &self.source) {
            write!(f, " ({kind}, {})", source.escape_debug())?;
        }
        Ok(())
    }
}

/// Decodes the octal escapes of the kernel (space, tab, line feed and backslash).
fn unescape(field: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(field.to_owned(), |field, (code, character)| {
            field.replace(code, character)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/vda / ext4 rw,relatime 0 0\n\
        server:/media /mnt/two\\040words nfs rw,vers=3 0 0\n\
        tmpfs /mnt tmpfs rw 0 0\n";

    fn kind(folder: &str) -> Option<String> {
        Mount::among(Path::new(folder), MOUNTS).kind
    }

    #[test]
    fn the_deepest_mount_above_the_folder_counts() {
        assert_eq!(kind("/home/ann").as_deref(), Some("ext4"));
        assert_eq!(kind("/mnt/x").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/mnt/two words/below").as_deref(), Some("nfs"));
        assert_eq!(
            kind("/mntx").as_deref(),
            Some("ext4"),
            "a name that begins alike"
        );
        let place = Mount::among(Path::new("/mnt/two words"), MOUNTS);
        assert_eq!(place.to_string(), "/mnt/two words (nfs, server:/media)");
    }

    #[test]
    fn nothing_is_said_of_a_mount_that_is_not_listed() {
        assert_eq!(Mount::among(Path::new("/a"), "x y\n"), Mount::unknown("/a"));
    }
}
