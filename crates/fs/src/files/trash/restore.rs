//! Brings objects back from the trash.

use std::sync::Arc;

use forebay_meta::record::{InodeRecord, Kind, TrashRecord};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{ClientId, Error, Result};
use forebay_view::convert;

use super::{TrashEntry, TrashError};
use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::files::names::{check_new_name, count_in, next_cookie};
use crate::files::quota::QuotaError;
use crate::state::{Locked, NameChange, Node, Refusal};

/// How many entries are read at a time while a path is looked for.
const STEP: usize = 1024;

/// What is to be brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The object with this number, alone.
    Id(Inode),
    /// The newest object that had this path; of a directory also everything below it, the newest of each path.
    Path(Vec<u8>),
}

/// What was brought back.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// With the paths that they have now.
    pub(crate) entries: Vec<TrashEntry>,
    /// Objects below a path that stay in the trash, because something else has their path.
    pub(crate) left: u64,
    /// The position that must be stable.
    pub(crate) end: Lsn,
    /// Why the rest stays in the trash, if it does not for another object of its path.
    pub(crate) stopped_by: Option<String>,
}

impl Files {
    /// Brings back an object, or a directory with everything below it. Never replaces anything.
    pub(crate) async fn undelete(
        &self,
        wanted: &Wanted,
        to: Option<&[u8]>,
    ) -> std::result::Result<Restored, TrashError> {
        let _changing = self.state.trash.changing.lock().await;
        let found = match wanted {
            Wanted::Id(inode) => self.with_id(*inode).await?,
            Wanted::Path(path) => self.at_or_below(&without_ends(path)).await?,
        };
        if let Some(to) = to {
            return self.restore_to(found, &without_ends(to)).await;
        }
        let is_one = found.len() == 1;
        let mut restored = Restored::default();
        for mut entry in found {
            match self.restore_entry(&mut entry).await {
                Ok(end) => {
                    restored.end = restored.end.max(end);
                    restored.entries.push(entry);
                }
                // A directory that is not empty, or an older file of the same path.
                Err(TrashError::Exists(_)) if !is_one => restored.left += 1,
                Err(error) if restored.entries.is_empty() => return Err(error),
                Err(error) => {
                    restored.stopped_by = Some(error.to_string());
                    break;
                }
            }
        }
        if let (true, Wanted::Path(path)) = (restored.entries.is_empty(), wanted) {
            return Err(TrashError::Exists(DisplayPath(path.clone())));
        }
        Ok(restored)
    }

    async fn with_id(&self, inode: Inode) -> std::result::Result<Vec<TrashEntry>, TrashError> {
        let (_, entry) = self
            .in_trash(inode)
            .await?
            .ok_or(TrashError::NoSuchId(inode))?;
        let before = inode
            .0
            .checked_sub(1)
            .map(|number| (entry.until, Inode(number)));
        let mut found = self.trash_after(before, 1).await?;
        found.retain(|found| found.inode == inode);
        match found.is_empty() {
            true => Err(TrashError::NoSuchId(inode)),
            false => Ok(found),
        }
    }

    /// What was at a path, the newest of several, or everything that was there or below, the newest first.
    async fn at_or_below(&self, path: &[u8]) -> std::result::Result<Vec<TrashEntry>, TrashError> {
        let mut found: Vec<TrashEntry> = Vec::new();
        let mut after = None;
        loop {
            let some = self.trash_after(after, STEP).await?;
            let is_last = some.len() < STEP;
            after = some.last().map(|entry| (entry.until, entry.inode));
            found.extend(some.into_iter().filter(|entry| {
                let own = entry.path.as_deref();
                let rest = own.and_then(|own| own.strip_prefix(path));
                rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
            }));
            if is_last {
                break;
            }
        }
        found.sort_by_key(|entry| std::cmp::Reverse((entry.removed, entry.inode)));
        let newest = found
            .iter()
            .find(|entry| entry.path.as_deref() == Some(path));
        if let Some(file) = newest.filter(|entry| !entry.is_directory) {
            return Ok(vec![file.clone()]);
        }
        match found.is_empty() {
            true => Err(TrashError::NotFound(DisplayPath(path.to_vec()))),
            false => Ok(found),
        }
    }

    /// Brings back one file under another path.
    async fn restore_to(
        &self,
        found: Vec<TrashEntry>,
        to: &[u8],
    ) -> std::result::Result<Restored, TrashError> {
        let shown = || DisplayPath(to.to_vec());
        let mut found = found.into_iter();
        let (Some(mut entry), None) = (found.next(), found.next()) else {
            return Err(TrashError::ToManyFiles);
        };
        let split = to.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match split {
            Some(at) => (&to[..at], &to[at + 1..]),
            None => return Err(TrashError::NoDirectory(shown())),
        };
        let directory = match self.directory_at(above).await {
            Ok(directory) => directory,
            Err(QuotaError::Volume(error)) => return Err(error.into()),
            Err(_) => return Err(TrashError::NoDirectory(shown())),
        };
        let (node, record) = self.entry_in_trash(entry.inode).await?;
        let end = match self.name_again(&directory, name, &node, &record).await {
            Err(Error::Exists) => return Err(TrashError::Exists(shown())),
            end => end?,
        };
        entry.path = Some(to.to_vec());
        Ok(Restored {
            entries: vec![entry],
            left: 0,
            end,
            stopped_by: None,
        })
    }

    async fn entry_in_trash(
        &self,
        inode: Inode,
    ) -> std::result::Result<(Arc<Node>, TrashRecord), TrashError> {
        let (_, record) = self
            .in_trash(inode)
            .await?
            .ok_or(TrashError::NoSuchId(inode))?;
        Ok((self.state.node(inode).await?, record))
    }

    /// Brings an object back to its place. Directories above it that are in the trash come back as well.
    async fn restore_entry(&self, entry: &mut TrashEntry) -> std::result::Result<Lsn, TrashError> {
        let shown = |entry: &TrashEntry| {
            let name = entry.path.clone().unwrap_or_else(|| entry.name.to_vec());
            DisplayPath(name)
        };
        let mut missing = Vec::new();
        let mut inode = entry.inode;
        // Up to the nearest directory that has a name.
        let mut directory = loop {
            match self.in_trash(inode).await? {
                Some((_, record)) => {
                    let above = record.directory;
                    missing.push((self.state.node(inode).await?, record));
                    inode = above;
                }
                None if missing.is_empty() => {
                    // A file of this request was below it.
                    let node = self.state.node(inode).await?;
                    let end = node.lock_live()?.last_lsn;
                    return Ok(end);
                }
                None => match self.state.node(inode).await {
                    Ok(node) if !node.lock().has_no_name() => break node,
                    Ok(_) | Err(Error::Stale) => return Err(TrashError::NoPath(shown(entry))),
                    Err(error) => return Err(error.into()),
                },
            }
        };
        let mut end = Lsn::ZERO;
        while let Some((node, record)) = missing.pop() {
            match self
                .name_again(&directory, &record.name, &node, &record)
                .await
            {
                Ok(position) => {
                    end = position;
                    directory = node;
                }
                // A directory that was made since takes the place of one above.
                Err(Error::Exists) if !missing.is_empty() => {
                    directory = match self.directory_in(&directory, &record.name).await? {
                        Some(made) => made,
                        None => return Err(TrashError::Exists(shown(entry))),
                    };
                }
                Err(Error::Exists) => return Err(TrashError::Exists(shown(entry))),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(end)
    }

    async fn directory_in(&self, directory: &Node, name: &[u8]) -> Result<Option<Arc<Node>>> {
        let found = self.state.catalog.name(directory.inode, name).await;
        let found = found.map_err(|error| self.state.store_failed(error))?;
        let Some(found) = found.filter(|found| found.kind == Kind::Directory) else {
            return Ok(None);
        };
        self.state.node(found.inode).await.map(Some)
    }

    /// Gives an object in the trash a name, which is free. It counts in the tree of the directory again. Others have
    /// their turn before that: there may be many.
    async fn name_again(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        node: &Arc<Node>,
        entry: &TrashRecord,
    ) -> Result<Lsn> {
        check_new_name(name)?;
        tokio::task::yield_now().await;
        self.state.admit_names(ClientId::default()).await?;
        let _names = directory.lock_names().await;
        if self.entry(directory, name).await?.is_some() {
            return Err(Error::Exists);
        }
        self.state
            .retry(|| {
                let mut locked = Locked::all(&[directory, node]);
                let now = self.state.now();
                let state = locked.of(node);
                if !state.is_in_trash() {
                    return Err(Refusal::Error(Error::NotFound));
                }
                let (amount, mut record) = (state.charge.amount(), state.record.clone());
                let state = locked.of(directory);
                if state.has_no_name() {
                    return Err(Refusal::Error(Error::Stale));
                }
                // Given back when the object counts there itself.
                let reserved = state.charge.of_child().reserve(amount)?;
                let mut parent = state.record.clone();
                let kind = record.kind();
                count_in(&mut parent, kind, now)?;
                let cookie = next_cookie(&mut parent)?;
                record = InodeRecord {
                    nlink: 1 + u32::from(kind == Kind::Directory),
                    tree: parent.tree,
                    ctime: convert::record_time(now),
                    ..record
                };
                if let Some(own) = record.directory_mut() {
                    own.parent = directory.inode;
                }
                let mut change = NameChange::default();
                change.enter(directory, name, cookie, node.inode, kind);
                change.set(directory, parent);
                change.set(node, record);
                change.leave_trash(node.inode, entry.until);
                let end = self.state.record_names(change, &mut locked)?;
                drop(reserved);
                node.seen(directory.inode, cookie);
                Ok(end)
            })
            .await
    }
}

/// A path with one slash in front and none at its end.
fn without_ends(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names
        .flat_map(|name| [b"/", name])
        .collect::<Vec<_>>()
        .concat()
}
