//! Requests about a path of the volume, and where it is.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::status::size;

/// Bytes that are encoded: all but printable ASCII, and the sign of an encoding.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// The first second that is not written as a time.
const YEAR_10000: u64 = 253_402_300_800;

/// A path within the volume, from its root: any bytes. In JSON, bytes that are no printable ASCII are encoded as in
/// URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePath(pub Vec<u8>);

impl Serialize for VolumePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&percent_encode(&self.0, ENCODED))
    }
}

impl<'de> Deserialize<'de> for VolumePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VolumePath, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(VolumePath(percent_decode_str(&text).collect()))
    }
}

/// Why a request about a path is refused, as a message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRefusal {
    /// It is no path.
    Bad(String),
    /// There is nothing.
    NotFound(String),
    /// The gateway cannot answer or do it now.
    Unavailable(String),
}

impl PathRefusal {
    /// The message.
    pub fn message(self) -> String {
        match self {
            PathRefusal::Bad(why) | PathRefusal::NotFound(why) | PathRefusal::Unavailable(why) => {
                why
            }
        }
    }
}

/// Where a file or tree is. `forebay where --json` prints it. In sums over a tree, a file with several names counts for
/// each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhereReport {
    /// The path as it was given; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// `file`, `directory`, `symlink` or `other`.
    pub kind: String,
    /// Whether the bucket has all of it, as it is now, under this path; null if that is not known.
    pub in_bucket: Option<bool>,
    /// Since when, in seconds since 1970; null unless the bucket has all of it.
    pub since_seconds: Option<i64>,
    /// Whether it was published at that moment; else then or earlier. Null without such a moment.
    pub since_is_exact: Option<bool>,
    /// Objects: files, directories and all others.
    pub objects: u64,
    /// Files among them.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    /// Objects with a change that is not published.
    pub unpublished_objects: u64,
    /// Bytes that are not published: the sum of the next two.
    pub unpublished_bytes: u64,
    /// Those that are in memory alone: of files whose last change is not flushed to the log.
    pub unflushed_bytes: u64,
    /// Those that are in the log on the disk.
    pub log_bytes: u64,
    /// Those of both that are in packs in the bucket, and will be published with the next checkpoint.
    pub uploaded_bytes: u64,
    /// Bytes that are published.
    pub published_bytes: u64,
    /// Their size in packs, compressed.
    pub stored_bytes: u64,
    /// Those of them that deduplication has saved from being uploaded.
    pub shared_bytes: u64,
    /// Packs that hold them.
    pub packs: u64,
    /// Bytes in the gateway's memory.
    pub memory_bytes: u64,
    /// Published bytes in its disk cache.
    pub disk_cache_bytes: u64,
    /// What could not be read; null if nothing is missing in the sums.
    pub unknown: Option<UnknownPart>,
}

/// What could not be read, for example because the bucket does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPart {
    /// Objects that are published, and whose sizes or packs could not be read.
    pub objects: u64,
    /// Directories that could not be listed.
    pub directories: u64,
    /// The reason.
    pub why: String,
}

impl WhereReport {
    /// The answer of a volume about `path`.
    pub fn new(path: &[u8], found: &forebay_fs::Whereabouts) -> WhereReport {
        WhereReport {
            path: String::from_utf8_lossy(path).into_owned(),
            kind: match found.kind {
                forebay_fs::Kind::Regular => "file",
                forebay_fs::Kind::Directory => "directory",
                forebay_fs::Kind::Symlink => "symlink",
                _ => "other",
            }
            .to_owned(),
            in_bucket: found.is_in_bucket,
            since_seconds: found.since.map(|since| since.seconds),
            since_is_exact: found.since.map(|since| since.is_exact),
            objects: found.objects,
            files: found.files,
            directories: found.directories,
            size_bytes: found.size_bytes,
            unpublished_objects: found.unpublished_objects,
            unpublished_bytes: found.unpublished_bytes(),
            unflushed_bytes: found.unflushed_bytes,
            log_bytes: found.log_bytes,
            uploaded_bytes: found.uploaded_bytes,
            published_bytes: found.published_bytes,
            stored_bytes: found.stored_bytes,
            shared_bytes: found.shared_bytes,
            packs: found.packs,
            memory_bytes: found.memory_bytes,
            disk_cache_bytes: found.disk_cache_bytes,
            unknown: found.unknown.clone().map(|unknown| UnknownPart {
                objects: unknown.objects,
                directories: unknown.directories,
                why: unknown.why,
            }),
        }
    }

    /// The answer in a line.
    fn answer(&self) -> String {
        match (self.in_bucket, self.unpublished_bytes) {
            (Some(true), _) => format!("yes{}", self.since()),
            (Some(false), 0) => {
                "no, a change of names or attributes is not yet, and all bytes are".to_owned()
            }
            (Some(false), bytes) => format!("no, {bytes} bytes are not yet"),
            (None, _) => "not known, see below; what could be read is".to_owned(),
        }
    }

    fn since(&self) -> String {
        let seconds = self.since_seconds.and_then(|at| u64::try_from(at).ok());
        let seconds = seconds.filter(|at| *at < YEAR_10000);
        let Some(seconds) = seconds else {
            return String::new();
        };
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds));
        match self.since_is_exact {
            Some(true) => format!(", since {at}"),
            _ => format!(", since {at} or earlier"),
        }
    }

    fn content(&self) -> String {
        let bytes = size(self.size_bytes);
        match &*self.kind {
            "directory" => format!(
                "directory with {bytes} in {} files; {} directories, {} objects in all",
                self.files, self.directories, self.objects
            ),
            "file" => format!("file of {bytes}"),
            kind => kind.to_owned(),
        }
    }

    fn unpublished(&self) -> String {
        let mut text = format!(
            "{} in {} objects: {} in the log, {} in memory alone",
            size(self.unpublished_bytes),
            self.unpublished_objects,
            size(self.log_bytes),
            size(self.unflushed_bytes),
        );
        if self.uploaded_bytes > 0 {
            text += &format!("; {} uploaded already", size(self.uploaded_bytes));
        }
        text
    }

    fn published(&self) -> String {
        let mut text = format!(
            "{} in {} packs, stored as {}",
            size(self.published_bytes),
            self.packs,
            size(self.stored_bytes)
        );
        if self.shared_bytes > 0 {
            text += &format!("; {} shared with other places", size(self.shared_bytes));
        }
        text
    }
}

impl fmt::Display for WhereReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "in the bucket: {}", self.answer())?;
        let mut row = |name: &str, text: String| writeln!(f, "{name:<13} {text}");
        // A name must not send control characters to the terminal.
        row("path", self.path.escape_debug().to_string())?;
        row("content", self.content())?;
        if self.unpublished_objects > 0 {
            row("unpublished", self.unpublished())?;
        }
        row("published", self.published())?;
        let (memory, disk) = (size(self.memory_bytes), size(self.disk_cache_bytes));
        row(
            "local copies",
            format!("{memory} in memory, {disk} in the disk cache"),
        )?;
        if let Some(unknown) = &self.unknown {
            let text = format!(
                "{} directories were not listed, {} objects not read: {}",
                unknown.directories, unknown.objects, unknown.why
            );
            row("not known", text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_a_path_in_json() {
        for path in [
            "/a b/ü%41\n\"\\".as_bytes(),
            b"/\xff\x00\x1b",
            b"",
            &[b'\xff'; 4096],
        ] {
            let path = VolumePath(path.to_vec());
            let text = serde_json::to_string(&path).unwrap();
            assert!(text.is_ascii() && text.len() < 13_000);
            assert_eq!(serde_json::from_str::<VolumePath>(&text).unwrap(), path);
        }
    }
}
