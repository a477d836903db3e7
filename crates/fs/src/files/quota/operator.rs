//! Operators' requests: to set, remove and list quotas.

use std::sync::Arc;

use forebay_meta::record::{QuotaRecord, Recount};
use forebay_meta::{Key, KeyRange};
use forebay_quota::{Amount, LEAVING, UNLIMITED};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{ClientId, Error};

use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::state::{Locked, NameChange, Node, Refusal};

/// How many names of a directory are read at a time when a path is looked up.
const NAMES_PER_SCAN: usize = 1024;
/// The deepest directory whose path is looked up. A cycle, which cannot exist, would end here.
const DEPTH: usize = 4096;

/// A quota and the usage of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Path of the tree's root within the volume, with a slash in front.
    pub path: Vec<u8>,
    /// Inode of the tree's root.
    pub inode: Inode,
    /// Bytes that files may use; `None` for no limit.
    pub limit_bytes: Option<u64>,
    /// The most objects, the root among them; `None` for no limit.
    pub limit_files: Option<u64>,
    /// Bytes that files use.
    pub used_bytes: u64,
    /// Number of objects, the root among them.
    pub used_files: u64,
    /// Whether objects that were there before the quota was set (or removed) are still being counted.
    pub counting: bool,
}

/// The change of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitChange {
    /// The limit stays as it is.
    #[default]
    Keep,
    /// The limit is removed.
    Unlimited,
    /// The limit becomes this number.
    To(u64),
}

impl LimitChange {
    fn applied_to(self, old: u64) -> u64 {
        match self {
            LimitChange::Keep => old,
            LimitChange::Unlimited => UNLIMITED,
            LimitChange::To(limit) => limit,
        }
    }
}

/// Why an operator's request fails. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// There is no object of that name.
    #[error(
        "there is no {0} in the volume; paths begin at the volume's root, not at a mount point"
    )]
    NotFound(DisplayPath),
    /// It is a file, a link or another object.
    #[error("{0} is not a directory: a quota is of a directory and everything below it")]
    NotADirectory(DisplayPath),
    /// The root directory.
    #[error("the root directory cannot have a quota: set volume_limit to limit the whole volume")]
    Root,
    /// The directory has no quota.
    #[error("{0} has no quota; `forebay quota list` prints all quotas")]
    None(DisplayPath),
    /// No limit was given.
    #[error("no limit is given: give a number of bytes or files for {0}, or remove its quota")]
    NoLimit(DisplayPath),
    /// The volume could not do it.
    #[error("the volume cannot do it now: {0}; see `forebay status` and the gateway's messages")]
    Volume(#[from] Error),
}

impl Files {
    /// Sets limits of the tree below `path`, which becomes one if it is none. Returns the position that must be
    /// stable.
    pub(crate) async fn set_quota(
        &self,
        path: &[u8],
        bytes: LimitChange,
        files: LimitChange,
    ) -> Result<(Inode, Lsn), QuotaError> {
        self.state.admit_names(ClientId::default()).await?;
        let _changing = self.state.accounts.changing.lock().await;
        let node = self.directory_at(path).await?;
        if node.inode == Inode::ROOT {
            return Err(QuotaError::Root);
        }
        let old = self.quota_of(node.inode).await?;
        let old = old.filter(|quota| quota.recount != Recount::Leaving);
        let before = old.unwrap_or(QuotaRecord {
            limit_bytes: UNLIMITED,
            limit_files: UNLIMITED,
            recount: Recount::Joining,
        });
        let limits = QuotaRecord {
            limit_bytes: bytes.applied_to(before.limit_bytes),
            limit_files: files.applied_to(before.limit_files),
            ..before
        };
        if (limits.limit_bytes, limits.limit_files) == (UNLIMITED, UNLIMITED) {
            return Err(QuotaError::NoLimit(DisplayPath(path.to_vec())));
        }
        let (end, quota) = self
            .state
            .retry(|| {
                let mut locked = Locked::all(&[&node]);
                let state = locked.of(&node);
                if state.has_no_name() {
                    return Err(Refusal::Error(Error::Stale));
                }
                let mut quota = limits;
                // Objects that are made from now on count at once, and there are no others.
                let is_empty = state.record.directory().is_some_and(|own| own.entries == 0);
                if is_empty {
                    quota.recount = Recount::Done;
                }
                let mut record = state.record.clone();
                record.tree = Some(node.inode);
                let mut change = NameChange::default();
                change.set(&node, record);
                change.names.put(&Key::Quota(node.inode), &quota);
                let end = self.state.record_names(change, &mut locked)?;
                Ok((end, quota))
            })
            .await?;
        self.state.accounts.set(node.inode, &quota);
        Ok((node.inode, end))
    }

    /// Removes the quota of `path`. Objects that count in its tree will count in the surrounding one after a walk
    /// over them. Returns the position that must be stable.
    pub(crate) async fn remove_quota(&self, path: &[u8]) -> Result<Lsn, QuotaError> {
        self.state.admit_names(ClientId::default()).await?;
        let _changing = self.state.accounts.changing.lock().await;
        let node = self.directory_at(path).await?;
        if self.quota_of(node.inode).await?.is_none() {
            return Err(QuotaError::None(DisplayPath(path.to_vec())));
        }
        let end = self
            .state
            .retry(|| {
                let mut locked = Locked::all(&[&node]);
                let state = locked.of(&node);
                if state.has_no_name() {
                    return Err(Refusal::Error(Error::Stale));
                }
                let mut change = NameChange::default();
                change.set(&node, state.record.clone());
                change.names.put(&Key::Quota(node.inode), &LEAVING);
                self.state.record_names(change, &mut locked)
            })
            .await?;
        self.state.accounts.set(node.inode, &LEAVING);
        Ok(end)
    }

    /// All quotas, by path.
    pub(crate) async fn quotas(&self) -> Result<Vec<Quota>, QuotaError> {
        let found =
            forebay_quota::scan_all::<QuotaRecord>(&self.state.catalog, KeyRange::quotas()).await;
        let found = found.map_err(|error| self.state.store_failed(error))?;
        let mut quotas = Vec::new();
        for (key, record) in found {
            if let Key::Quota(root) = key
                && let Some(quota) = self.quota(root, record).await?
            {
                quotas.push(quota);
            }
        }
        quotas.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(quotas)
    }

    /// The quota in which the directory `path` counts.
    pub(crate) async fn quota_at(&self, path: &[u8]) -> Result<Quota, QuotaError> {
        let node = self.directory_at(path).await?;
        let none = || QuotaError::None(DisplayPath(path.to_vec()));
        let root = node.lock_directory()?.record.tree.ok_or_else(none)?;
        let record = self.quota_of(root).await?.ok_or_else(none)?;
        self.quota(root, record).await?.ok_or_else(none)
    }

    /// `None` if the root of the tree was removed.
    pub(crate) async fn quota(
        &self,
        root: Inode,
        record: QuotaRecord,
    ) -> Result<Option<Quota>, QuotaError> {
        let node = match self.state.node(root).await {
            Err(Error::Stale) => return Ok(None),
            node => node?,
        };
        let Some(path) = self.path_of(&node).await? else {
            return Ok(None);
        };
        let Amount { bytes, files } = self.state.accounts.tree(root).used();
        let limit = |limit| Some(limit).filter(|limit| *limit != UNLIMITED);
        Ok(Some(Quota {
            path,
            inode: root,
            limit_bytes: limit(record.limit_bytes),
            limit_files: limit(record.limit_files),
            used_bytes: bytes,
            used_files: files,
            counting: record.recount != Recount::Done,
        }))
    }

    /// The directory at a path of the volume. Does not follow symbolic links.
    pub(crate) async fn directory_at(&self, path: &[u8]) -> Result<Arc<Node>, QuotaError> {
        let shown = || DisplayPath(path.to_vec());
        let mut node = self.state.node(Inode::ROOT).await?;
        for name in path.split(|byte| *byte == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            let entry = self.state.catalog.name(node.inode, name).await;
            let entry = entry.map_err(|error| self.state.store_failed(error))?;
            let entry = entry.ok_or_else(|| QuotaError::NotFound(shown()))?;
            node = match self.state.node(entry.inode).await {
                Err(Error::Stale) => return Err(QuotaError::NotFound(shown())),
                node => node?,
            };
            if node.lock().record.directory().is_none() {
                return Err(QuotaError::NotADirectory(shown()));
            }
        }
        Ok(node)
    }

    /// The path of a directory; `None` if it was removed, or is being moved.
    pub(crate) async fn path_of(&self, node: &Arc<Node>) -> Result<Option<Vec<u8>>, QuotaError> {
        let mut names = Vec::new();
        let mut inode = node.inode;
        while inode != Inode::ROOT {
            if names.len() == DEPTH {
                return Ok(None);
            }
            let parent = match self.state.node(inode).await {
                Err(Error::Stale) => None,
                node => {
                    let node = node?;
                    let state = node.lock();
                    let own = state.record.directory().filter(|_| !state.has_no_name());
                    own.map(|own| own.parent)
                }
            };
            let Some(parent) = parent else {
                return Ok(None);
            };
            let Some(name) = self.name_in(parent, inode).await? else {
                return Ok(None);
            };
            names.push(name);
            inode = parent;
        }
        let path = names.iter().rev().flat_map(|name| [b"/", name.as_ref()]);
        Ok(Some(path.collect::<Vec<_>>().concat()))
    }

    /// The name of `inode` in a directory. Directories are not indexed by the objects in them: this reads all names
    /// up to it.
    async fn name_in(
        &self,
        directory: Inode,
        inode: Inode,
    ) -> Result<Option<bytes::Bytes>, QuotaError> {
        let mut cookie = 0;
        loop {
            let found = self
                .state
                .catalog
                .cookies_after(directory, cookie, NAMES_PER_SCAN)
                .await
                .map_err(|error| self.state.store_failed(error))?;
            if let Some((_, entry)) = found.iter().find(|(_, entry)| entry.inode == inode) {
                return Ok(Some(entry.name.clone()));
            }
            match found.last() {
                Some((last, _)) if found.len() == NAMES_PER_SCAN => cookie = *last,
                _ => return Ok(None),
            }
        }
    }
}
