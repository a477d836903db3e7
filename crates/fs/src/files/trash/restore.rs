//! Brings objects back from the trash.

use std::sync::Arc;

use forebay_meta::record::{InodeRecord, Kind, TrashRecord};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{Change, Credentials, Error, Result, Timestamp, permission};
use forebay_view::convert::{self, owned};
use tokio::sync::mpsc::Sender;

use super::entries::Removed;
use super::list::Paths;
use super::newest::{Newest, Removal};
use super::{TrashEntry, TrashError};
use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::files::durability::Recorded;
use crate::files::names::create::changeable;
use crate::files::names::{check_new_name, count_in, next_cookie};
use crate::files::quota::QuotaError;
use crate::state::{Locked, NameChange, Node, Refusal};

/// How many entries are read at a time while a path is looked for.
const STEP: usize = 1024;

/// How many objects below a path are brought back after one look at the trash; each takes 24 bytes of memory.
const AT_ONCE: usize = 1 << 18;

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
    /// Number of objects.
    pub(crate) objects: u64,
    /// Objects below a path that stay in the trash, because something else has their path.
    pub(crate) left: u64,
    /// The position that must be stable.
    pub(crate) end: Lsn,
    /// Why the rest stays in the trash, if it does not for another object of its path.
    pub(crate) stopped_by: Option<String>,
}

/// An object that is to be brought back, and when it was removed; `None`: whenever that was.
type Found = (Option<Timestamp>, Inode);

/// The goal of an undelete: the new path, and the receiver of restored objects.
#[derive(Clone, Copy)]
struct Goal<'a> {
    /// The path for the only one; its own if `None`.
    to: Option<&'a [u8]>,
    /// Whether there is only one.
    is_one: bool,
    /// Gets each that is back.
    back: &'a Sender<TrashEntry>,
}

impl Files {
    /// Brings back an object, or a directory with everything below it. Never replaces anything. Sends each object, with
    /// the path that it has now.
    pub(crate) async fn undelete(
        &self,
        wanted: &Wanted,
        to: Option<&[u8]>,
        back: &Sender<TrashEntry>,
    ) -> std::result::Result<Restored, TrashError> {
        self.undelete_some(wanted, to, back, AT_ONCE).await
    }

    /// The same, with another number for [`AT_ONCE`].
    pub(crate) async fn undelete_some(
        &self,
        wanted: &Wanted,
        to: Option<&[u8]>,
        back: &Sender<TrashEntry>,
        at_once: usize,
    ) -> std::result::Result<Restored, TrashError> {
        let mut restored = Restored::default();
        let mut paths = Paths::default();
        let mut goal = Goal {
            to,
            is_one: true,
            back,
        };
        let path = match wanted {
            Wanted::Id(inode) => {
                self.undelete_these(&[(None, *inode)], goal, &mut paths, &mut restored)
                    .await?;
                return match restored.objects {
                    0 => Err(TrashError::NoSuchId(*inode)),
                    _ => Ok(restored),
                };
            }
            Wanted::Path(path) => without_ends(path),
        };
        let mut newest = Newest::new(at_once);
        loop {
            let found = match self.at_or_below(&path, &mut newest, &mut paths).await {
                // What is back must be made stable.
                Err(error) if restored.objects > 0 => {
                    restored.stopped_by = Some(TrashError::from(error).to_string());
                    break;
                }
                found => found?,
            };
            goal.is_one &= newest.is_all() && found.len() == 1;
            if goal.to.is_some() && !goal.is_one && !found.is_empty() {
                return Err(TrashError::ToManyFiles);
            }
            self.undelete_these(&found, goal, &mut paths, &mut restored)
                .await?;
            if newest.is_all() || restored.stopped_by.is_some() {
                break;
            }
        }
        match (restored.objects, restored.left) {
            (0, 0) => Err(TrashError::NotFound(DisplayPath(path))),
            (0, 1..) => Err(TrashError::Exists(DisplayPath(path))),
            _ => Ok(restored),
        }
    }

    /// Brings back these objects, one after the other.
    async fn undelete_these(
        &self,
        found: &[Found],
        goal: Goal<'_>,
        paths: &mut Paths,
        restored: &mut Restored,
    ) -> std::result::Result<(), TrashError> {
        for one in found.iter().copied() {
            match self.undelete_one(one, goal.to, paths).await {
                Ok(Some((entry, end))) => {
                    restored.end = restored.end.max(end);
                    restored.objects += 1;
                    // The caller may be gone, or slow: nothing is locked here.
                    let _ = goal.back.send(entry).await;
                }
                // Its time was over, or a client has brought it back or deleted it. One that a client has removed again stays:
                // that was after the command began, and maybe elsewhere.
                Ok(None) => {}
                // A directory that is not empty, or an older file of the same path.
                Err(TrashError::Exists(_)) if !goal.is_one => restored.left += 1,
                Err(error) if restored.objects == 0 => return Err(error),
                Err(error) => {
                    restored.stopped_by = Some(error.to_string());
                    break;
                }
            }
        }
        Ok(())
    }

    /// Brings back one object: to its place, or to the path `to`. Returns it with the path that it has now; `None` if it is not in
    /// the trash by the removal that was found.
    async fn undelete_one(
        &self,
        (removal, inode): Found,
        to: Option<&[u8]>,
        paths: &mut Paths,
    ) -> std::result::Result<Option<(TrashEntry, Lsn)>, TrashError> {
        // For one object at a time: clients and the task that empties the trash come between.
        let _changing = self.state.trash.changing.lock().await;
        let removed = self.in_trash(inode).await?;
        let is_it = |now: &Removed| {
            let when = convert::timestamp(now.entry.removed);
            removal.is_none_or(|removal| removal == when)
        };
        let Some(removed) = removed.filter(is_it) else {
            return Ok(None);
        };
        let mut entry = self.trash_entry(inode, removed, paths).await?;
        let end = match to {
            Some(to) => self.restore_to(&mut entry, &without_ends(to)).await?,
            None => self.restore_entry(&entry).await?,
        };
        Ok(Some((entry, end)))
    }

    /// What was at a path, the newest of several, or what was there or below, the newest first: as many as `newest` takes.
    async fn at_or_below(
        &self,
        path: &[u8],
        newest: &mut Newest,
        paths: &mut Paths,
    ) -> Result<Vec<Found>> {
        // The newest with just this path, and whether it is a directory.
        let mut exact: Option<(Removal, bool)> = None;
        let mut after = None;
        newest.begin();
        loop {
            let page = self.trash_page(after, STEP, paths).await?;
            for entry in &page.entries {
                let own = entry.path.as_deref();
                let Some(rest) = own.and_then(|own| own.strip_prefix(path)) else {
                    continue;
                };
                if !matches!(rest.first(), None | Some(b'/')) {
                    continue;
                }
                let removal = (entry.removed, entry.inode);
                if rest.is_empty() {
                    exact = exact.max(Some((removal, entry.is_directory)));
                }
                newest.add(removal);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let found = match exact {
            Some((file, false)) => {
                newest.no_more();
                vec![file]
            }
            _ => newest.take(),
        };
        let found = found.into_iter().map(|(when, inode)| (Some(when), inode));
        Ok(found.collect())
    }

    /// Brings back one file under another path.
    async fn restore_to(
        &self,
        entry: &mut TrashEntry,
        to: &[u8],
    ) -> std::result::Result<Lsn, TrashError> {
        let shown = || DisplayPath(to.to_vec());
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
        let removed = self.in_trash(entry.inode).await?;
        let removed = removed.ok_or(TrashError::NoSuchId(entry.inode))?;
        let node = self.state.node(entry.inode).await?;
        let (to_name, entry_there) = ((&directory, name), &removed.entry);
        self.state.admit_names(Credentials::ROOT.client).await?;
        let end = match self
            .name_again(&Credentials::ROOT, to_name, &node, entry_there)
            .await
        {
            Err(Error::Exists) => return Err(TrashError::Exists(shown())),
            again => again?.end,
        };
        entry.path = Some(to.to_vec());
        Ok(end)
    }

    /// Brings an object back to its place. Directories above it that are in the trash come back as well.
    async fn restore_entry(&self, entry: &TrashEntry) -> std::result::Result<Lsn, TrashError> {
        let shown = || {
            let name = entry.path.clone().unwrap_or_else(|| entry.name.to_vec());
            DisplayPath(name)
        };
        let mut missing = Vec::new();
        let mut inode = entry.inode;
        // Up to the nearest directory that has a name.
        let mut directory = loop {
            match self.in_trash(inode).await? {
                Some(Removed { entry, .. }) => {
                    let above = entry.directory;
                    missing.push((self.state.node(inode).await?, entry));
                    inode = above;
                }
                None => match self.state.node(inode).await {
                    Ok(node) if !node.lock().has_no_name() => break node,
                    Ok(_) | Err(Error::Stale) => return Err(TrashError::NoPath(shown())),
                    Err(error) => return Err(error.into()),
                },
            }
        };
        let mut end = Lsn::ZERO;
        while let Some((node, record)) = missing.pop() {
            let to = (&directory, &record.name[..]);
            self.state.admit_names(Credentials::ROOT.client).await?;
            match self
                .name_again(&Credentials::ROOT, to, &node, &record)
                .await
            {
                Ok(named) => {
                    end = named.end;
                    directory = node;
                }
                // A directory that was made since takes the place of one above.
                Err(Error::Exists) if !missing.is_empty() => {
                    directory = match self.directory_in(&directory, &record.name).await? {
                        Some(made) => made,
                        None => return Err(TrashError::Exists(shown())),
                    };
                }
                Err(Error::Exists) => return Err(TrashError::Exists(shown())),
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

    /// Gives an object in the trash a name, which is free, in a directory where the caller may make names. It counts in
    /// the tree of the directory again. Others have their turn before that: there may be many. The caller has called
    /// `admit_names`.
    pub(super) async fn name_again(
        &self,
        caller: &Credentials,
        (directory, name): (&Arc<Node>, &[u8]),
        node: &Arc<Node>,
        entry: &TrashRecord,
    ) -> Result<Recorded<Change>> {
        check_new_name(name)?;
        tokio::task::yield_now().await;
        let _names = directory.lock_names().await;
        permission::may_search(owned(&directory.lock_directory()?.record), caller)?;
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
                let state = changeable(locked.of(directory), caller)?;
                let before = directory.wcc(state);
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
                change.leave_trash(node.inode, entry.until, Some(&record));
                change.set(node, record);
                let end = self.state.record_names(change, &mut locked)?;
                drop(reserved);
                node.seen(directory.inode, cookie);
                let after = directory.attributes(locked.of(directory));
                let reply = Change {
                    before: Some(before),
                    after: Some(after),
                };
                Ok(Recorded { end, reply })
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
