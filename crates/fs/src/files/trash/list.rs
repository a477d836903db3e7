//! Lists the trash.

use std::collections::HashMap;

use bytes::Bytes;
use forebay_meta::record::{Kind, TrashRecord, TrashUntil};
use forebay_meta::{Key, KeyRange};
use forebay_types::Inode;
use forebay_vfs::{Error, Result, Timestamp};
use forebay_view::convert;

use super::entries::Removed;
use crate::files::Files;

/// The most directories above an object: as many as PATH_MAX (4096 bytes) allows.
pub(super) const DEPTH: usize = 2048;
/// How many entries are read at a time.
const STEP: usize = 1024;
/// Bytes of paths after which a page ends, and what an entry counts beside its path. A path has half a MiB at most.
const PAGE_BYTES: usize = 4 << 20;
const ENTRY_MEMORY: usize = 256;
/// How many paths of directories are kept while entries are listed.
const PATHS: usize = 4096;
/// Bytes of these paths.
const PATHS_BYTES: usize = 16 << 20;

/// A file or directory in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashEntry {
    /// Its number, which it keeps.
    pub inode: Inode,
    /// Its path from the volume's root, as that is now; `None` if the directory that it was in is gone.
    pub path: Option<Vec<u8>>,
    /// Its last name.
    pub name: Bytes,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Size in bytes.
    pub size: u64,
    /// When it was removed or replaced.
    pub removed: Timestamp,
    /// When it will be deleted, in seconds since 1970, if no room is needed before.
    pub until: u64,
    /// The user that removed or replaced it.
    pub by: u32,
}

/// A part of the trash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrashPage {
    /// Those that end first come first.
    pub entries: Vec<TrashEntry>,
    /// The end and the number of the last one that was looked at, behind which the list goes on; `None` at its end.
    pub next: Option<(u64, Inode)>,
}

/// Paths of directories that were found.
#[derive(Default)]
pub(super) struct Paths {
    known: HashMap<Inode, Option<Vec<u8>>>,
    bytes: usize,
}

impl Paths {
    fn add(&mut self, directory: Inode, path: Option<Vec<u8>>) {
        if self.known.len() >= PATHS || self.bytes >= PATHS_BYTES {
            *self = Paths::default();
        }
        self.bytes += path.as_ref().map_or(0, Vec::len);
        self.known.insert(directory, path);
    }
}

impl Files {
    /// The next entries behind the one that ends at a time and has a number, those that end first; `limit` at most, and fewer
    /// where paths are long.
    pub(crate) async fn trash_after(
        &self,
        after: Option<(u64, Inode)>,
        limit: usize,
    ) -> Result<TrashPage> {
        self.trash_page(after, limit, &mut Paths::default()).await
    }

    /// The same, with the paths of directories that earlier pages have found.
    pub(super) async fn trash_page(
        &self,
        after: Option<(u64, Inode)>,
        limit: usize,
        paths: &mut Paths,
    ) -> Result<TrashPage> {
        let mut range = KeyRange::trash_order();
        if let Some((until, inode)) = after {
            range = range.after(&Key::TrashUntil(until, inode).encode());
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut last = after;
        while entries.len() < limit {
            let wanted = (limit - entries.len()).min(STEP);
            let found = self.state.catalog.records::<TrashUntil>(&range, wanted);
            let found = found
                .await
                .map_err(|error| self.state.store_failed(error))?;
            let is_last = found.len() < wanted;
            let marks = found.into_iter().filter_map(|(key, _)| match key {
                Key::TrashUntil(until, inode) => Some((until, inode)),
                _ => None,
            });
            let marks: Vec<(u64, Inode)> = marks.collect();
            let inodes: Vec<Inode> = marks.iter().map(|(_, inode)| *inode).collect();
            let mut all = self.all_in_trash(&inodes).await?;
            for (until, inode) in marks {
                range = range.after(&Key::TrashUntil(until, inode).encode());
                if let Some(removed) = all.remove(&inode) {
                    let entry = self.trash_entry(inode, removed, paths).await?;
                    bytes += entry.path.as_ref().map_or(0, Vec::len) + ENTRY_MEMORY;
                    entries.push(entry);
                }
                if bytes >= PAGE_BYTES {
                    let next = Some((until, inode));
                    return Ok(TrashPage { entries, next });
                }
                last = Some((until, inode));
            }
            if is_last {
                last = None;
                break;
            }
        }
        Ok(TrashPage {
            entries,
            next: last,
        })
    }

    pub(super) async fn trash_entry(
        &self,
        inode: Inode,
        Removed { record, entry, .. }: Removed,
        paths: &mut Paths,
    ) -> Result<TrashEntry> {
        Ok(TrashEntry {
            inode,
            path: self.path_in_trash(&entry, paths).await?,
            name: entry.name,
            is_directory: record.kind() == Kind::Directory,
            size: record.size,
            removed: convert::timestamp(entry.removed),
            until: entry.until,
            by: entry.by,
        })
    }

    async fn path_in_trash(
        &self,
        entry: &TrashRecord,
        paths: &mut Paths,
    ) -> Result<Option<Vec<u8>>> {
        let above = self.path_above(entry.directory, paths).await?;
        Ok(above.map(|mut path| {
            path.push(b'/');
            path.extend_from_slice(&entry.name);
            path
        }))
    }

    /// The path of a directory that may be in the trash; `None` if it is gone, or one above it cannot be read for damage, which is
    /// in the log.
    async fn path_above(&self, directory: Inode, paths: &mut Paths) -> Result<Option<Vec<u8>>> {
        let mut below: Vec<(Inode, Bytes)> = Vec::new();
        let mut inode = directory;
        let mut path = loop {
            if let Some(path) = paths.known.get(&inode) {
                break path.clone();
            }
            let removed = match self.in_trash(inode).await {
                Err(Error::Io) => break None,
                removed => removed?,
            };
            let Some(Removed { entry, .. }) = removed else {
                break match self.path_of_live(inode).await {
                    Err(Error::Io) => None,
                    path => path?,
                };
            };
            if below.len() == DEPTH {
                break None;
            }
            below.push((inode, entry.name));
            inode = entry.directory;
        };
        paths.add(inode, path.clone());
        for (inode, name) in below.into_iter().rev() {
            if let Some(path) = &mut path {
                path.push(b'/');
                path.extend_from_slice(&name);
            }
            paths.add(inode, path.clone());
        }
        Ok(path)
    }

    async fn path_of_live(&self, directory: Inode) -> Result<Option<Vec<u8>>> {
        match self.state.node(directory).await {
            Err(Error::Stale) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => match self.seen_path(directory).await {
                Some(path) => Ok(Some(path)),
                None => self.directory_path(directory).await,
            },
        }
    }
}
