//! The trash as clients see it: the files that they own, or all for root.
//!
//! A name has the number of its file, so a look-up reads one entry. A listing goes by numbers: through all entries for root, and
//! through the marks under the caller's user for everyone else. What it looks at is bounded in each call
//! ([`LOOKS`]): directories, under the export of a directory files that were in others, and the directories above all these.

use std::collections::HashMap;

use forebay_meta::record::TrashRecord;
use forebay_meta::{Key, KeyRange};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, Result, Trouble, permission,
    trash_name,
};
use forebay_view::convert::owned;
use forebay_waits::{For, waiting};

use super::entries::{Removed, shown};
use super::list::DEPTH;
use crate::files::Files;
use crate::files::durability::Recorded;
use crate::files::names::check_new_name;
use crate::state::{ListedPlace, Locked, NameChange, Refusal};

/// The most entries that are read at a time for a listing, and the least.
const STEP: usize = 1024;
const FIRST_STEP: usize = 16;

/// How many entries a call looks at before it answers with what it has found, or the client has to ask again.
const LOOKS: usize = 64 * STEP;

/// As how many of them a directory counts that has to be looked at to find out where an entry was. Entries are read many at a
/// time, and directories one after the other.
const DIRECTORY_LOOKS: usize = 64;

/// How many directories are kept while entries are listed.
const DIRECTORIES: usize = 16_384;

/// Which directories are or were below one, as far as it was found out.
struct Below {
    top: Inode,
    known: HashMap<Inode, bool>,
    /// The directories that were looked at.
    looked: usize,
}

impl Below {
    fn new(top: Inode) -> Below {
        Below {
            top,
            known: HashMap::new(),
            looked: 0,
        }
    }

    /// As how many entries they count.
    fn looks(&self) -> usize {
        self.looked * DIRECTORY_LOOKS
    }
}

impl Files {
    pub(crate) async fn getattr_removed(&self, inode: Inode) -> Result<Attributes> {
        let node = self.state.node(inode).await?;
        let state = node.lock_removed(&Credentials::ROOT)?;
        Ok(shown(node.attributes(&state)))
    }

    pub(crate) async fn access_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let node = self.state.node(inode).await?;
        let state = node.lock_removed(&Credentials::ROOT)?;
        Ok((
            permission::access_removed(owned(&state.record), caller, wanted),
            shown(node.attributes(&state)),
        ))
    }

    pub(crate) async fn lookup_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        let (inode, removed) = self.removed_named(caller, below, name).await?;
        Ok(removed.attributes(inode))
    }

    /// The file with a name that the caller sees.
    async fn removed_named(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> Result<(Inode, Removed)> {
        let inode = trash_name::number(name).ok_or(Error::NotFound)?;
        let reading = self.in_trash(inode);
        let reading = self.state.troubles.during(Trouble::Bucket, reading);
        let removed = waiting(For::Bucket, reading).await?;
        let removed = removed.ok_or(Error::NotFound)?;
        let is_it = trash_name::of(&removed.entry.name, inode) == name;
        let mut below = Below::new(below);
        match is_it && self.is_shown(caller, &removed, &mut below).await? {
            true => Ok((inode, removed)),
            false => Err(Error::NotFound),
        }
    }

    async fn is_shown(
        &self,
        caller: &Credentials,
        removed: &Removed,
        below: &mut Below,
    ) -> Result<bool> {
        Ok(removed.is_file()
            && permission::may_see_removed(owned(&removed.record), caller).is_ok()
            && self.is_below(removed.entry.directory, below).await?)
    }

    /// Whether a directory, which may be in the trash, is or was below another one, or is that.
    async fn is_below(&self, directory: Inode, below: &mut Below) -> Result<bool> {
        let Below { top, known, looked } = below;
        // Everything is below it, also what was in directories that are gone.
        if *top == Inode::ROOT {
            return Ok(true);
        }
        let (mut passed, mut at) = (Vec::new(), directory);
        let is_below = loop {
            if at == *top {
                break true;
            }
            if at == Inode::ROOT || passed.len() == DEPTH {
                break false;
            }
            if let Some(is_below) = known.get(&at) {
                break *is_below;
            }
            passed.push(at);
            *looked += 1;
            match self.above(at).await? {
                Some(above) => at = above,
                None => break false,
            }
        };
        if known.len() + passed.len() > DIRECTORIES {
            known.clear();
        }
        known.extend(passed.into_iter().map(|inode| (inode, is_below)));
        Ok(is_below)
    }

    /// The directory above one that may be in the trash; `None` if it is gone, or cannot be read for damage, which is in the log.
    async fn above(&self, directory: Inode) -> Result<Option<Inode>> {
        let node = match self.state.node(directory).await {
            Err(Error::Stale | Error::Io) => return Ok(None),
            node => node?,
        };
        {
            let state = node.lock();
            if state.removed {
                return Ok(None);
            }
            if !state.is_in_trash() {
                return Ok(state.record.directory().map(|own| own.parent));
            }
        }
        let entry = self.state.catalog.record(&Key::Trash(directory)).await;
        let entry: Result<Option<TrashRecord>> =
            entry.map_err(|error| self.state.store_failed(error));
        match entry {
            Err(Error::Io) => Ok(None),
            entry => Ok(entry?.map(|entry| entry.directory)),
        }
    }

    /// See [`forebay_vfs::Trash::list_removed`].
    pub(crate) async fn list_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        after: Inode,
        max: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool)> {
        let reading = self.list_within(caller, (below, after), max, LOOKS);
        let reading = self.state.troubles.during(Trouble::Bucket, reading);
        waiting(For::Bucket, reading).await
    }

    /// The same, with another number for [`LOOKS`].
    pub(crate) async fn list_within(
        &self,
        caller: &Credentials,
        (below, after): (Inode, Inode),
        max: usize,
        looks: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool)> {
        let place = ListedPlace {
            client: caller.client,
            uid: caller.uid,
            below,
            after,
        };
        let mut at = self.state.trash.go_on(place).unwrap_or(after);
        let mut below = Below::new(below);
        let mut found = Vec::new();
        let mut step = max.saturating_add(1).clamp(FIRST_STEP, STEP);
        let mut entries = 0;
        loop {
            let step_now = step.min(looks - entries);
            let candidates = self.candidates(caller, at, step_now).await?;
            let mut is_last = candidates.len() < step_now;
            let all = self.all_in_trash(&candidates).await?;
            for inode in candidates {
                // One is looked at in any case: the next call goes on behind it.
                if entries + below.looks() >= looks {
                    is_last = false;
                    break;
                }
                entries += 1;
                if let Some(removed) = all.get(&inode)
                    && self.is_shown(caller, removed, &mut below).await?
                {
                    if found.len() >= max.max(1) {
                        return Ok((found, false));
                    }
                    found.push(DirectoryEntry {
                        cookie: inode.0,
                        inode,
                        name: trash_name::of(&removed.entry.name, inode),
                        attributes: Some(removed.attributes(inode)),
                    });
                }
                at = inode;
            }
            if is_last || !found.is_empty() {
                return Ok((found, is_last));
            }
            if entries + below.looks() >= looks {
                break;
            }
            step = STEP;
            tokio::task::yield_now().await;
        }
        self.state.trash.listed_nothing(place, at);
        Err(Error::Delay)
    }

    /// The next objects in the trash that the caller may see.
    async fn candidates(
        &self,
        caller: &Credentials,
        after: Inode,
        limit: usize,
    ) -> Result<Vec<Inode>> {
        let range = match caller.uid {
            0 => KeyRange::trash_between(after, Inode(u64::MAX)),
            uid => KeyRange::trash_of(uid, after),
        };
        let found = self.state.catalog.scan(&range, limit).await;
        let found = found.map_err(|error| self.state.store_failed(error))?;
        // The values are read with the objects, or have no meaning.
        let inodes = found.iter().filter_map(|(key, _)| match Key::decode(key) {
            Ok(Key::Trash(inode) | Key::TrashOwner(_, inode)) => Some(inode),
            _ => None,
        });
        Ok(inodes.collect())
    }

    /// Deletes a file for good.
    pub(crate) async fn delete_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> Result<Recorded<()>> {
        self.removed_named(caller, below, name).await?;
        self.state.admit_names(caller.client).await?;
        let _changing = self.changing_trash().await?;
        // Again: all of it may have changed meanwhile.
        let (inode, removed) = self.removed_named(caller, below, name).await?;
        let node = self.state.node(inode).await?;
        let delete = || {
            let mut locked = Locked::all(&[&node]);
            let state = locked.of(&node);
            if !state.is_in_trash() {
                return Err(Refusal::Error(Error::NotFound));
            }
            let record = state.record.clone();
            permission::may_see_removed(owned(&record), caller)?;
            let mut change = NameChange::default();
            change.leave_trash(inode, removed.entry.until, Some(&record));
            change.remove(&node);
            self.state.record_names(change, &mut locked)
        };
        let end: Lsn = self.state.retry(delete).await?;
        Ok(Recorded { end, reply: () })
    }

    /// Gives a file in the trash a name in a directory.
    pub(crate) async fn bring_back(
        &self,
        caller: &Credentials,
        (below, from): (Inode, &[u8]),
        (directory, name): (Inode, &[u8]),
    ) -> Result<Recorded<Change>> {
        check_new_name(name)?;
        self.removed_named(caller, below, from).await?;
        let directory = self.directory(directory).await?;
        // Before the lock: it may wait.
        self.state.admit_names(caller.client).await?;
        let _changing = self.changing_trash().await?;
        // Again: all of it may have changed meanwhile.
        let (inode, removed) = self.removed_named(caller, below, from).await?;
        let node = self.state.node(inode).await?;
        let to = (&directory, name);
        self.name_again(caller, to, &node, &removed.entry).await
    }

    /// The right to take something out of the trash, which clients do not wait for long.
    async fn changing_trash(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let changing = self.state.trash.changing.lock();
        let changing = tokio::time::timeout(self.state.config.room_wait, changing);
        waiting(For::DirectoryLock, changing)
            .await
            .map_err(|_| Error::Delay)
    }
}
