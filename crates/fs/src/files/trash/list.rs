//! Lists the trash.

use std::collections::HashMap;

use bytes::Bytes;
use forebay_meta::record::{InodeRecord, Kind, TrashRecord, TrashUntil};
use forebay_meta::{Key, KeyRange};
use forebay_types::Inode;
use forebay_vfs::{Error, Result, Timestamp};
use forebay_view::convert;

use crate::files::Files;

/// The most directories above an object: as many as PATH_MAX (4096 bytes) allows.
const DEPTH: usize = 2048;
/// How many paths of directories are kept while entries are listed.
const PATHS: usize = 4096;

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

/// Paths of directories that were found.
#[derive(Default)]
pub(super) struct Paths(HashMap<Inode, Option<Vec<u8>>>);

impl Files {
    /// The next entries behind the one that ends at a time and has a number, those that end first; `limit` at most. Less
    /// than that means that there are no more.
    pub(crate) async fn trash_after(
        &self,
        after: Option<(u64, Inode)>,
        limit: usize,
    ) -> Result<Vec<TrashEntry>> {
        let mut range = KeyRange::trash_order();
        if let Some((until, inode)) = after {
            range = range.after(&Key::TrashUntil(until, inode).encode());
        }
        let mut paths = Paths::default();
        let mut listed = Vec::new();
        while listed.len() < limit {
            let wanted = limit - listed.len();
            let found = self.state.catalog.records::<TrashUntil>(&range, wanted);
            let found = found
                .await
                .map_err(|error| self.state.store_failed(error))?;
            let is_last = found.len() < wanted;
            for (key, _) in found {
                range = range.after(&key.encode());
                if let Key::TrashUntil(_, inode) = key
                    && let Some((record, entry)) = self.in_trash(inode).await?
                {
                    let path = self.path_in_trash(&entry, &mut paths).await?;
                    listed.push(TrashEntry {
                        inode,
                        path,
                        name: entry.name,
                        is_directory: record.kind() == Kind::Directory,
                        size: record.size,
                        removed: convert::timestamp(entry.removed),
                        until: entry.until,
                        by: entry.by,
                    });
                }
            }
            if is_last {
                break;
            }
        }
        Ok(listed)
    }

    /// An object in the trash and its entry; `None` if it is not there.
    pub(super) async fn in_trash(
        &self,
        inode: Inode,
    ) -> Result<Option<(InodeRecord, TrashRecord)>> {
        let record = match self.state.nodes.peek(inode) {
            Some(node) => {
                let state = node.lock();
                state.is_in_trash().then(|| state.record.clone())
            }
            // Nothing of it is unpublished.
            None => {
                let record = self.state.catalog.inode(inode).await;
                let record = record.map_err(|error| self.state.store_failed(error))?;
                record.filter(InodeRecord::is_in_trash)
            }
        };
        let entry = self.state.catalog.record(&Key::Trash(inode)).await;
        let entry: Option<TrashRecord> = entry.map_err(|error| self.state.store_failed(error))?;
        Ok(record.zip(entry))
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

    /// The path of a directory that may be in the trash; `None` if it is gone.
    async fn path_above(&self, directory: Inode, paths: &mut Paths) -> Result<Option<Vec<u8>>> {
        let Paths(known) = paths;
        let mut below: Vec<(Inode, Bytes)> = Vec::new();
        let mut inode = directory;
        let mut path = loop {
            if let Some(path) = known.get(&inode) {
                break path.clone();
            }
            let Some((_, entry)) = self.in_trash(inode).await? else {
                break self.path_of_live(inode).await?;
            };
            if below.len() == DEPTH {
                break None;
            }
            below.push((inode, entry.name));
            inode = entry.directory;
        };
        if known.len() + below.len() >= PATHS {
            known.clear();
        }
        known.insert(inode, path.clone());
        for (inode, name) in below.into_iter().rev() {
            if let Some(path) = &mut path {
                path.push(b'/');
                path.extend_from_slice(&name);
            }
            known.insert(inode, path.clone());
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
