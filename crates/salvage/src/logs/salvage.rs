//! Salvage: writes the unpublished changes of a log as files.
//!
//! ```text
//! <folder>/files/...                 by their paths in the volume
//! <folder>/unplaced/inode-<n>/...    below a directory without a known name
//! <folder>/unplaced/inode-<n>        a file without a known name
//! ```
//!
//! How much of a file is right depends on its origin. A file that was made, or truncated to nothing, in the
//! unpublished part is whole. Of any other the log has only the written ranges, and the rest comes from the [`View`]
//! if there is one: as the bucket has it now, which is as the log's gateway knew it unless later gateways have
//! written to the file too. Each file says which of these it is ([`Content`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use forebay_environment::archived_log::Published;
use forebay_meta::record::InodeRecord;
use forebay_types::{Epoch, Inode, Lsn};
use forebay_view::{View, ViewError};
use forebay_wal::{Ending, Gap, KeptLog, Label};

use super::LogsError;
use super::event::{EventReader, NameEvent, What};
use super::ranges::Ranges;
use super::tree::Tree;

/// The names of trees that a restore makes begin with this.
const STAGED_NAME: &[u8] = b".forebay-restore";

/// The longest path, in bytes, that is made below the folder.
const LONGEST_PATH: usize = 3072;

/// The result of a salvage: the salvaged files, and what could not be salvaged.
#[derive(Clone, Debug)]
pub struct Salvage {
    /// The log.
    pub label: Label,
    /// The published part of the log; `None` if that is not known: then the whole log was taken.
    pub published: Option<Published>,
    /// The end of the log.
    pub end: Lsn,
    /// How it ends.
    pub ending: Ending,
    /// The files that were written to or changed in size.
    pub files: Vec<SalvagedFile>,
    /// The changes of names and attributes, in their order.
    pub changes: Vec<NameChange>,
    /// Gaps in the unpublished part, which may have held more changes of any kind.
    pub gaps: Vec<Gap>,
    /// Files of the log that could not be read, and why.
    pub unusable: Vec<(String, String)>,
    /// Records that are intact, but that this program does not understand.
    pub not_understood: Vec<(Lsn, String)>,
}

/// A salvaged file.
#[derive(Clone, Debug)]
pub struct SalvagedFile {
    /// Its inode number in the volume.
    pub inode: Inode,
    /// Its path in the volume, as far as it is known.
    pub path: String,
    /// Its path below the folder; `None` if it was removed from the volume.
    pub file: Option<PathBuf>,
    /// Its size in bytes.
    pub size: u64,
    /// How much of it is right.
    pub content: Content,
    /// The ranges that the log has written: the first byte, and one past the last.
    pub ranges: Vec<(u64, u64)>,
    /// Its newest attributes, if the log or the base has them.
    pub attributes: Option<InodeRecord>,
}

/// How much of a salvaged file is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of it: the log has every byte.
    Whole,
    /// All of it: the rest is as the bucket has it, and no other gateway has written bytes to it since (it may have
    /// truncated it, which leaves no trace).
    Merged,
    /// The writes of the log over the content of the bucket, to which other gateways have written since.
    MergedWithLater,
    /// The writes of the log; everything else is zeros here, but was something else in the volume. Also of a file that a
    /// restore had begun to make out of a snapshot, of which the log has the size alone.
    RangesOnly,
    /// The writes of the log; the bytes below them could not be read.
    BaseFailed(String),
    /// The file was removed, and nothing of it is kept.
    Removed,
}

/// A change of names and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// The record that holds it.
    pub lsn: Lsn,
    /// What changed.
    pub event: NameEvent,
}

/// A file that is being made.
struct Making {
    target: PathBuf,
    path: String,
    size: u64,
    content: Content,
    ranges: Ranges,
    attributes: Option<InodeRecord>,
}

struct Salvager<'a> {
    folder: &'a Path,
    /// The newest epoch of the log.
    epoch: Epoch,
    files: BTreeMap<Inode, Making>,
    /// The file that was written last, open.
    opened: Option<(Inode, File)>,
}

pub(super) async fn salvage(
    log: &KeptLog,
    published: Option<Published>,
    to: &Path,
    base: Option<&View>,
) -> Result<Salvage, LogsError> {
    let tree = Tree::of(log, published);
    let places = match base {
        Some(base) => places(&tree, base).await?,
        None => HashMap::new(),
    };
    let made = DirBuilder::new().mode(0o700).create(to);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => LogsError::Exists {
            folder: to.to_owned(),
        },
        _ => LogsError::io(to)(error),
    })?;
    let mut salvager = Salvager {
        folder: to,
        epoch: log.epochs().map_or(Epoch(0), |(_, newest)| newest),
        files: BTreeMap::new(),
        opened: None,
    };
    let mut removed = Vec::new();
    for (inode, _) in tree.touched() {
        if tree.is_removed(inode) {
            removed.push(SalvagedFile {
                inode,
                path: tree.describe(inode),
                file: None,
                size: 0,
                content: Content::Removed,
                ranges: Vec::new(),
                attributes: tree.record(inode).cloned(),
            });
            continue;
        }
        let (path, target) = match places.get(&inode) {
            Some(names) => (describe(names), target(Inode::ROOT, names, inode)),
            None => {
                let (begins, names) = tree.path(inode);
                (tree.describe(inode), target(begins, &names, inode))
            }
        };
        salvager.begin(inode, &tree, path, target, base).await?;
    }
    let from = published.map_or(Lsn::ZERO, |published| published.lsn);
    let found = salvager.replay(EventReader::new(log.read_from(from)))?;
    let mut files = salvager.finish()?;
    files.extend(removed);
    files.sort_by_key(|file| file.inode);
    let summary = log.summarize();
    Ok(Salvage {
        label: log.label().clone(),
        published,
        end: summary.end,
        ending: summary.ending,
        files,
        changes: found.changes,
        gaps: found.gaps,
        unusable: log.unusable().to_vec(),
        not_understood: found.not_understood,
    })
}

/// The names from the root down to each file whose place the log alone does not show, if the bucket knows them.
async fn places(tree: &Tree, base: &View) -> Result<HashMap<Inode, Vec<Vec<u8>>>, ViewError> {
    let mut unplaced = Vec::new();
    let mut nameless = BTreeSet::new();
    for (inode, _) in tree.touched() {
        let (begins, names) = tree.path(inode);
        if tree.is_removed(inode) || (begins == Inode::ROOT && !names.is_empty()) {
            continue;
        }
        if names.is_empty() && tree.is_new(inode) == Some(false) {
            nameless.insert(inode);
        }
        unplaced.push((inode, begins, names));
    }
    let found = if nameless.is_empty() {
        HashMap::new()
    } else {
        base.places(&nameless).await?
    };
    let mut places = HashMap::new();
    for (inode, mut begins, mut names) in unplaced {
        if names.is_empty() {
            let Some((directory, name)) = found.get(&inode) else {
                continue;
            };
            (begins, names) = (*directory, vec![name.clone()]);
        } else if tree.is_new(begins) != Some(false) {
            // In the bucket, its number may belong to another object.
            continue;
        }
        if let Some(mut path) = base.path(begins).await? {
            path.extend(names);
            places.insert(inode, path);
        }
    }
    Ok(places)
}

fn describe(names: &[Vec<u8>]) -> String {
    let parts = names.iter().map(|name| String::from_utf8_lossy(name));
    parts.fold(String::new(), |path, name| path + "/" + &name)
}

/// Whether a file belongs to a tree that a restore out of a snapshot has begun to make: nothing has the name that was asked
/// for before the bucket has its content.
fn is_of_a_restore(target: &Path) -> bool {
    let mut names = target.iter().map(OsStr::as_bytes);
    names.any(|name| name.starts_with(STAGED_NAME))
}

/// The path of a salvaged file, below the folder.
fn target(begins: Inode, names: &[Vec<u8>], inode: Inode) -> PathBuf {
    let mut path = match begins {
        Inode::ROOT if !names.is_empty() => PathBuf::from("files"),
        _ if names.is_empty() => return unplaced(inode),
        _ => unplaced(begins),
    };
    for name in names {
        let part = Path::new(OsStr::from_bytes(name));
        // A damaged log must not lead out of the folder.
        let mut components = part.components();
        let is_plain = matches!(components.next(), Some(Component::Normal(part)) if part.len() == name.len())
            && components.next().is_none();
        if !is_plain || name.len() > 255 || name.contains(&0) {
            return unplaced(inode);
        }
        path.push(part);
    }
    if path.as_os_str().len() > LONGEST_PATH {
        return unplaced(inode);
    }
    path
}

fn unplaced(inode: Inode) -> PathBuf {
    Path::new("unplaced").join(format!("inode-{inode}"))
}

/// Findings beside file contents.
#[derive(Default)]
struct Found {
    changes: Vec<NameChange>,
    gaps: Vec<Gap>,
    not_understood: Vec<(Lsn, String)>,
}

impl Salvager<'_> {
    /// Makes a file and copies the base's bytes of it.
    async fn begin(
        &mut self,
        inode: Inode,
        tree: &Tree,
        path: String,
        target: PathBuf,
        base: Option<&View>,
    ) -> Result<(), LogsError> {
        let (target, file) = self.create(target, inode)?;
        let mut making = Making {
            target,
            path,
            size: 0,
            content: Content::RangesOnly,
            ranges: Ranges::default(),
            attributes: tree.record(inode).cloned(),
        };
        match (tree.is_new(inode), base) {
            // The log has the sizes of its files alone.
            (Some(true), _) if is_of_a_restore(&making.target) => {}
            (Some(true), _) => making.content = Content::Whole,
            (Some(false), Some(base)) => {
                let below = base.record(inode).await?;
                if let Some(record) = below {
                    making.size = record.size;
                    let copied = base
                        .copy(inode, |offset, bytes| file.write_all_at(bytes, offset))
                        .await;
                    making.content = match copied {
                        Ok(newest) if newest <= self.epoch => Content::Merged,
                        Ok(_) => Content::MergedWithLater,
                        Err(ViewError::Io(error)) => {
                            return Err(LogsError::io(&self.folder.join(&making.target))(error));
                        }
                        Err(error) => Content::BaseFailed(error.to_string()),
                    };
                    making.attributes.get_or_insert(record);
                }
            }
            // The published part is not known, so it is not known either whether the bucket's file is this one.
            _ => {}
        }
        self.files.insert(inode, making);
        self.opened = Some((inode, file));
        Ok(())
    }

    fn create(&self, target: PathBuf, inode: Inode) -> Result<(PathBuf, File), LogsError> {
        let make = |target: &Path| {
            let path = self.folder.join(target);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
        };
        match make(&target) {
            Ok(file) => Ok((target, file)),
            Err(error) if is_about_the_name(&error) && target != unplaced(inode) => {
                let target = unplaced(inode);
                let file = make(&target).map_err(LogsError::io(&self.folder.join(&target)))?;
                Ok((target, file))
            }
            Err(error) => Err(LogsError::io(&self.folder.join(&target))(error)),
        }
    }

    /// Applies the records of the log to the files.
    fn replay(&mut self, mut events: EventReader) -> Result<Found, LogsError> {
        let mut found = Found::default();
        while let Some(event) = events.next() {
            let lsn = event.lsn;
            match event.what {
                What::Write {
                    inode,
                    offset,
                    data,
                    ..
                } => self.write(inode, offset, data)?,
                What::Truncate { inode, record } => self.truncate(inode, record.size)?,
                What::Names(changes) => {
                    let changes = changes.into_iter();
                    found
                        .changes
                        .extend(changes.map(|event| NameChange { lsn, event }));
                }
                // A log with sealed records is not salvaged.
                What::Mark | What::Snapshot { .. } | What::Locked { .. } => {}
                What::Unknown(why) => found.not_understood.push((lsn, why)),
                What::Gap(why) => found.gaps.push(Gap {
                    from: lsn,
                    to: event.end,
                    why,
                }),
            }
        }
        Ok(found)
    }

    fn write(&mut self, inode: Inode, offset: u64, data: &[u8]) -> Result<(), LogsError> {
        let end = offset.saturating_add(data.len() as u64);
        self.with_file(inode, |file| file.write_all_at(data, offset))?;
        if let Some(making) = self.files.get_mut(&inode) {
            making.size = making.size.max(end);
            making.ranges.add(offset, end);
        }
        Ok(())
    }

    fn truncate(&mut self, inode: Inode, size: u64) -> Result<(), LogsError> {
        self.with_file(inode, |file| file.set_len(size))?;
        if let Some(making) = self.files.get_mut(&inode) {
            making.size = size;
            making.ranges.truncate(size);
            if size == 0 {
                // From here on the log has every byte.
                making.content = Content::Whole;
            }
        }
        Ok(())
    }

    /// Changes a file; does nothing if it was removed later.
    fn with_file(
        &mut self,
        inode: Inode,
        act: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), LogsError> {
        let Some(making) = self.files.get(&inode) else {
            return Ok(());
        };
        let path = self.folder.join(&making.target);
        let file = match self.opened.take() {
            Some((opened, file)) if opened == inode => file,
            _ => OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(LogsError::io(&path))?,
        };
        act(&file).map_err(LogsError::io(&path))?;
        self.opened = Some((inode, file));
        Ok(())
    }

    /// Gives every file its size and flushes everything to stable storage: after this the log may be deleted.
    fn finish(mut self) -> Result<Vec<SalvagedFile>, LogsError> {
        let inodes: Vec<(Inode, u64)> = self
            .files
            .iter()
            .map(|(inode, making)| (*inode, making.size))
            .collect();
        for (inode, size) in inodes {
            self.with_file(inode, |file| {
                file.set_len(size)?;
                file.sync_all()
            })?;
        }
        sync_folders(self.folder).map_err(LogsError::io(self.folder))?;
        let files = self.files.into_iter();
        Ok(files
            .map(|(inode, making)| SalvagedFile {
                inode,
                path: making.path,
                file: Some(making.target),
                size: making.size,
                content: making.content,
                ranges: making.ranges.into_vec(),
                attributes: making.attributes,
            })
            .collect())
    }
}

/// Whether the file may be made under another name if the system refused this one.
fn is_about_the_name(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
    )
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let plain = |names: &[&[u8]]| {
            let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
            target(Inode::ROOT, &names, Inode(9))
        };
        assert_eq!(plain(&[b"a", b"b"]), Path::new("files/a/b"));
        assert_eq!(plain(&[b"..a", b".b"]), Path::new("files/..a/.b"));
        for bad in [
            &b".."[..],
            b".",
            b"",
            b"/etc",
            b"a/b",
            b"a/",
            b"a\0b",
            &[b'x'; 256],
        ] {
            assert_eq!(
                plain(&[b"a", bad]),
                Path::new("unplaced/inode-9"),
                "{bad:?}"
            );
        }
        let deep: Vec<&[u8]> = vec![&[b'd'; 200]; 20];
        assert_eq!(plain(&deep), Path::new("unplaced/inode-9"));
        assert_eq!(
            target(Inode(4), &[b"x".to_vec()], Inode(9)),
            Path::new("unplaced/inode-4/x")
        );
    }
}
