//! What an operator learns about a path.

use forebay_meta::record::Kind;
use forebay_vfs::Error;

use crate::display_path::DisplayPath;
use crate::publisher::{FlushError, Since};

/// Where the bytes of a file are, or of a tree: of everything below a directory, and the directory itself. A file with
/// several names below it counts for each.
///
/// Clients work while a tree is walked: each object is as it was when the walk came to it. Bytes of holes are in no
/// sum but `size_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// Kind of the object at the path.
    pub kind: Kind,
    /// Objects: files, directories and all others.
    pub objects: u64,
    /// Regular files among them.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// Sizes of the files.
    pub size_bytes: u64,
    /// Whether the bucket has it all, as it is now, under this path. `None` if that is not known: some of the metadata
    /// could not be read, and what could be is in the bucket.
    pub is_in_bucket: Option<bool>,
    /// Objects with a change that is not published: of their bytes, attributes or, for a directory, of names in it.
    pub unpublished_objects: u64,
    /// Bytes that are not published, and are in memory alone: those of files whose last change is not flushed to the
    /// log, if there is one.
    pub unflushed_bytes: u64,
    /// Bytes that are not published, and are in the flushed log.
    pub log_bytes: u64,
    /// Bytes of both that are in packs in the bucket already, to which nothing refers before the next publication.
    pub uploaded_bytes: u64,
    /// Since when the bucket has everything; `None` unless it has.
    pub since: Option<Since>,
    /// Bytes that are published.
    pub published_bytes: u64,
    /// Their bytes in packs: compressed, and of parts of frames in proportion.
    pub stored_bytes: u64,
    /// Published bytes that were not uploaded, because the volume had the same bytes at another place.
    pub shared_bytes: u64,
    /// Packs that hold them.
    pub packs: u64,
    /// Bytes in the memory of the gateway.
    pub memory_bytes: u64,
    /// Published bytes in its disk cache.
    pub disk_cache_bytes: u64,
    /// What could not be read; the sums of published bytes then lack something.
    pub unknown: Option<Unknown>,
}

/// What could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// Objects whose attributes or places could not be read. They are published.
    pub objects: u64,
    /// Directories that could not be listed: of what is below them, only unpublished names are known.
    pub directories: u64,
    /// Why the first of them could not be.
    pub why: String,
}

impl Whereabouts {
    /// Bytes that the bucket does not have as published bytes.
    pub fn unpublished_bytes(&self) -> u64 {
        self.unflushed_bytes + self.log_bytes
    }
}

/// The result of [`flush_path`](crate::Volume::flush_path).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushedPath {
    /// The published LSN.
    pub published: forebay_types::Lsn,
    /// Whether there was something to wait for.
    pub waited: bool,
}

/// Why there is no answer about a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is no path of the volume.
    #[error("{0} is not a path: {1}")]
    Bad(DisplayPath, &'static str),
    /// There is no object of that name.
    #[error(
        "there is no {0} in the volume; paths begin at the volume's root, not at a mount point"
    )]
    NotFound(DisplayPath),
    /// Something on the way is no directory.
    #[error("{0} is not a directory, so there is nothing below it")]
    NotADirectory(DisplayPath),
    /// Something on the way is a symbolic link.
    #[error("{0} is a symbolic link, and links are not followed: give the path of its target")]
    Link(DisplayPath),
    /// The metadata of the path are not in memory and cannot be read.
    #[error("{0} cannot be looked up, so nothing is known about it: {1}")]
    Unreadable(DisplayPath, String),
    /// It cannot be published.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// The volume could not do it.
    #[error("the volume cannot do it now: {0}; see `forebay status` and the gateway's messages")]
    Volume(#[from] Error),
}
