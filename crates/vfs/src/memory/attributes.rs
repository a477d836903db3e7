//! GETATTR, SETATTR and READLINK.

use bytes::Bytes;
use forebay_types::Inode;

use super::node::{Content, State};
use super::{MemoryFileSystem, now};
use crate::{
    Attributes, Change, Credentials, Error, Result, SetAttributes, SetTime, Timestamp, permission,
};

/// Largest file: offsets fit a signed 64-bit `off_t`.
pub(super) const MAX_FILE_SIZE: u64 = i64::MAX as u64;

impl MemoryFileSystem {
    pub(super) fn attributes_of(&self, inode: Inode) -> Result<Attributes> {
        Ok(self.table.find(inode)?.lock()?.attributes)
    }

    pub(super) fn set_attributes(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Change> {
        let node = self.table.find(inode)?;
        let mut state = node.lock()?;
        let before = state.wcc();
        if guard.is_some_and(|guard| guard != before.ctime) {
            return Err(Error::NotSync);
        }
        let changed = changed(&state.attributes, caller, set, now())?;
        state.attributes = changed;
        if let Some(size) = set.size {
            self.cut(&mut state, size)?;
        }
        Ok(state.change_since(before))
    }

    /// Removes the bytes from `size` on from a file.
    fn cut(&self, state: &mut State, size: u64) -> Result<()> {
        let data = state.file_mut()?;
        let allocated = data.allocated();
        data.truncate(size);
        let left = data.allocated();
        state.attributes.used = left;
        self.space.give(allocated - left);
        Ok(())
    }

    pub(super) fn read_link(&self, inode: Inode) -> Result<(Bytes, Attributes)> {
        let node = self.table.find(inode)?;
        let state = node.lock()?;
        match &state.content {
            Content::Symlink(target) => Ok((target.clone(), state.attributes)),
            _ => Err(Error::Invalid),
        }
    }
}

/// Returns the attributes after a SETATTR by `caller`, or the reason for a refusal.
fn changed(
    old: &Attributes,
    caller: &Credentials,
    set: &SetAttributes,
    now: Timestamp,
) -> Result<Attributes> {
    let owned = permission::after_setattr(old.into(), caller, set)?;
    let mut new = Attributes {
        mode: owned.mode,
        uid: owned.uid,
        gid: owned.gid,
        ctime: now,
        ..*old
    };
    if let Some(size) = set.size {
        if size > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        (new.size, new.mtime) = (size, now);
    }
    for (time, set) in [(&mut new.atime, set.atime), (&mut new.mtime, set.mtime)] {
        match set {
            SetTime::Keep => {}
            SetTime::To(moment) => *time = moment,
            SetTime::Now => *time = now,
        }
    }
    Ok(new)
}
