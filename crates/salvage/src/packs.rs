//! Salvages files from packs alone, for a volume whose metadata are lost.
//!
//! A frame names its inode, block and range. There is no more to go by: no names, no sizes, no attributes, no
//! directories, and no order of two frames of one range. So
//!
//! * a file is named by its inode number, and ends where its last frame ends; ranges without a frame are holes;
//! * packs are taken in the order of their numbers, which begin with the epoch and count up, and frames in the order of
//!   their positions: later frames overwrite earlier ones. That is right if no old bytes were copied into a new pack;
//! * files that were removed, and bytes that were truncated, come back if their packs still exist.
//!
//! Every pack is read from its first byte to its last by the headers of its frames, whether its index is sound or not:
//! a damaged frame hides no other. The index, if it can be read, shows which bytes of which file a damaged frame held.
//!
//! Memory is bounded whatever the size of the volume: numbers and lengths of its packs, 16 bytes each, the part of one
//! pack in flight, some 40 MiB, and an index. Frames are written to their files as they arrive.

mod folder;

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use forebay_fsck::{PackContent, PackReader, Progress, Stage};
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::Expected;
use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN};
use forebay_pack::{IndexEntry, object_name};
use forebay_types::{BLOCK_SIZE, Inode, PackId};
use object_store::ObjectStore;
use object_store::path::Path;

use folder::Folder;

/// A range of a pack that could not be salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsalvaged {
    /// The pack.
    pub pack: PackId,
    /// Its object below the volume's prefix.
    pub object: String,
    /// Offset of the first byte of the object that could not be read as frames.
    pub from: u64,
    /// One past the last.
    pub to: u64,
    /// The lost bytes, by the pack's index: files and ranges of them. If an older pack has bytes of these ranges, the
    /// files now hold those, and holes elsewhere.
    pub of: Vec<LostRange>,
    /// Whether the index could be read, so that `of` is complete.
    pub is_all: bool,
    /// The reason, if more is known than that the range is damaged.
    pub why: Option<String>,
}

/// Bytes of a file whose newest version is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The file.
    pub inode: Inode,
    /// Offset of the first byte.
    pub from: u64,
    /// One past the last.
    pub to: u64,
}

/// The outcome of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Packs that were read.
    pub packs: u64,
    /// Frames whose bytes were written.
    pub frames: u64,
    /// Bytes written from frames, including those that later frames overwrote.
    pub bytes: u64,
    /// Files that were made.
    pub files: u64,
    /// Ranges of packs that could not be salvaged.
    pub unsalvaged: u64,
}

/// Receives what could not be salvaged, when it is found.
pub trait SalvageObserver: Send {
    /// Receives a range of a pack.
    ///
    /// # Errors
    /// When it could not be recorded, which ends the salvage.
    fn lost(&mut self, unsalvaged: &Unsalvaged) -> std::io::Result<()>;
}

impl SalvageObserver for Vec<Unsalvaged> {
    fn lost(&mut self, unsalvaged: &Unsalvaged) -> std::io::Result<()> {
        self.push(unsalvaged.clone());
        Ok(())
    }
}

/// Why the salvage ended early. Files written by then stay. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The volume's descriptor is missing, damaged, or newer than this program. Without it, frames cannot be verified.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The bucket did not answer well.
    #[error(
        "the bucket could not be read: {0}; check the connection and the credentials, and salvage again into another folder"
    )]
    Bucket(String),
    /// The destination folder exists already.
    #[error("{0} exists already: name a new folder, because a salvage never overwrites files")]
    Exists(PathBuf),
    /// Something could not be written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The volume to salvage.
pub struct Salvage {
    /// The store that the volume is in.
    pub store: Arc<dyn ObjectStore>,
    /// The prefix below which it lies.
    pub root: Path,
    /// Whether it must be sealed, and what opens it then. Both the key ring and the descriptor are needed.
    pub expected: Expected,
}

/// Writes the content of a volume's packs as files into the new folder `to`: `<to>/files/<inode / 10000>/<inode>`, all
/// of them on stable storage when it returns. Changes nothing in the bucket, and reads nothing of `meta/`.
///
/// Dropping the future leaves the files written by then.
///
/// # Errors
/// When there is no descriptor, the folder exists, the bucket does not answer, or something cannot be written. Damage
/// is not an error: `observer` receives it.
pub async fn salvage(
    Salvage {
        store,
        root,
        expected,
    }: Salvage,
    to: &FilePath,
    progress: Arc<Progress>,
    observer: &mut dyn SalvageObserver,
) -> Result<Salvaged, SalvageError> {
    let bucket = PackReader::open(store, &root, &expected).await?;
    progress.begin(Stage::Bucket, 0);
    let packs = bucket.list().await.map_err(SalvageError::Bucket)?;
    let mut folder = Folder::make(to)?;
    let mut salvaged = Salvaged::default();
    let total = packs.iter().map(|(_, len)| len).sum();
    progress.begin(Stage::Data, total);
    for (pack, len) in packs {
        one(&bucket, (pack, len), &mut folder, observer, &mut salvaged).await?;
        salvaged.packs += 1;
        progress.add(len);
    }
    salvaged.files = folder.finish()?;
    Ok(salvaged)
}

/// Salvages one pack.
async fn one(
    bucket: &PackReader,
    (pack, len): (PackId, u64),
    folder: &mut Folder,
    observer: &mut dyn SalvageObserver,
    salvaged: &mut Salvaged,
) -> Result<(), SalvageError> {
    let mut gaps = Gaps::new(len);
    let mut failed = None;
    let walked = bucket.walk(pack, len, |found| match found {
        PackContent::Frame(entry, data) => {
            gaps.frame(&entry);
            salvaged.frames += 1;
            salvaged.bytes += data.len() as u64;
            write(folder, &entry, &data).map_err(|error| {
                let said = error.to_string();
                failed = Some(error);
                said
            })
        }
        PackContent::Refused { offset, why } => {
            gaps.refused(offset, why);
            Ok(())
        }
    });
    let walked = walked.await;
    if let Some(error) = failed {
        return Err(error);
    }
    walked.map_err(SalvageError::Bucket)?;
    if gaps.is_none() {
        return Ok(());
    }
    let index = bucket.index(pack, len).await;
    let index = index.map_err(SalvageError::Bucket)?;
    for (from, to, why) in gaps.finish(index.as_deref()) {
        let unsalvaged = Unsalvaged {
            pack,
            object: object_name(pack),
            from,
            to,
            of: index
                .as_deref()
                .map_or(Vec::new(), |index| lost(index, from, to)),
            is_all: index.is_some(),
            why,
        };
        salvaged.unsalvaged += 1;
        observer
            .lost(&unsalvaged)
            .map_err(|source| SalvageError::Io {
                path: folder.path().to_owned(),
                source,
            })?;
    }
    Ok(())
}

/// Offset of a frame's bytes in its file. Block indexes have 64 bits, but the offsets of a file have no more either.
fn offset(entry: &IndexEntry) -> u64 {
    let begins = entry.block.block.0.saturating_mul(BLOCK_SIZE);
    begins.saturating_add(u64::from(entry.frame.start))
}

fn write(folder: &mut Folder, entry: &IndexEntry, data: &Bytes) -> Result<(), SalvageError> {
    folder.write(entry.block.inode, offset(entry), data)
}

/// The entries of the index between two offsets of a pack, as ranges of files.
fn lost(index: &[IndexEntry], from: u64, to: u64) -> Vec<LostRange> {
    let within = index.iter().filter(|entry| {
        let stored = entry.frame.stored_range();
        stored.start < to && from < stored.end
    });
    let ranges = within.map(|entry| LostRange {
        inode: entry.block.inode,
        from: offset(entry),
        to: offset(entry).saturating_add(u64::from(entry.frame.raw_len)),
    });
    ranges.collect()
}

/// The ranges of a pack that could not be read as frames.
struct Gaps {
    /// End of the last frame.
    at: u64,
    len: u64,
    frames: u64,
    found: Vec<(u64, u64)>,
    refused: Vec<(u64, String)>,
}

impl Gaps {
    fn new(len: u64) -> Gaps {
        Gaps {
            at: PACK_HEADER_LEN as u64,
            len,
            frames: 0,
            found: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn frame(&mut self, entry: &IndexEntry) {
        let stored = entry.frame.stored_range();
        if self.at < stored.start {
            self.found.push((self.at, stored.start));
        }
        self.at = stored.end;
        self.frames += 1;
    }

    fn refused(&mut self, offset: u32, why: String) {
        self.refused.push((u64::from(offset), why));
    }

    /// Whether nothing is missing: the bytes behind the last frame are as many as an index of all frames found takes.
    fn is_none(&self) -> bool {
        let behind = self.len.saturating_sub(self.at);
        let index = self.frames * INDEX_ENTRY_LEN as u64 + INDEX_FOOTER_LEN as u64;
        self.found.is_empty() && self.refused.is_empty() && behind == index
    }

    /// Returns all of them, each with its reason if that is known.
    fn finish(mut self, index: Option<&[IndexEntry]>) -> Vec<(u64, u64, Option<String>)> {
        let frames_end = match index {
            Some(index) => index
                .last()
                .map_or(PACK_HEADER_LEN as u64, |last| last.frame.stored_range().end),
            None => self.len,
        };
        if self.at < frames_end {
            self.found.push((self.at, frames_end));
        }
        let refused = self.refused;
        let gaps = self.found.into_iter().map(|(from, to)| {
            let within = |(at, _): &&(u64, String)| from <= *at && *at < to;
            let why = refused.iter().find(within).map(|(_, why)| why.clone());
            (from, to, why)
        });
        gaps.collect()
    }
}
