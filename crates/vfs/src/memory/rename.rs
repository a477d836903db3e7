//! RENAME, which atomically replaces the object with the new name.

use std::sync::Arc;

use forebay_types::Inode;

use super::directory::check_old_name;
use super::names::{check_removable, count_in, count_out};
use super::node::{Node, State};
use super::{MemoryFileSystem, now};
use crate::{Change, Credentials, Error, Result, permission};

impl MemoryFileSystem {
    pub(super) fn move_name(
        &self,
        caller: &Credentials,
        (from, old_name): (Inode, &[u8]),
        (to, new_name): (Inode, &[u8]),
    ) -> Result<(Change, Change)> {
        check_old_name(old_name)?;
        check_old_name(new_name)?;
        let (from, to) = (self.table.find(from)?, self.table.find(to)?);
        let _naming = self.naming.lock();
        let moved = named(&from, caller, old_name)?.ok_or(Error::NotFound)?;
        let replaced = named(&to, caller, new_name)?;
        if replaced
            .as_ref()
            .is_some_and(|replaced| replaced.inode == moved.inode)
        {
            // Both are names of one object: POSIX keeps both.
            let unchanged = from.lock()?.no_change();
            return Ok((unchanged, to.lock()?.no_change()));
        }
        if self.is_below(&to, moved.inode)? {
            return Err(Error::Invalid);
        }
        // Checked before locking, because the same node would be locked twice.
        if replaced
            .as_ref()
            .is_some_and(|replaced| replaced.inode == from.inode)
        {
            let error = if moved.lock()?.is_directory() {
                Error::NotEmpty
            } else {
                Error::IsDirectory
            };
            return Err(error);
        }

        let mut source = from.lock()?;
        let mut target = if from.inode == to.inode {
            None
        } else {
            Some(to.lock()?)
        };
        let mut moved_state = moved.lock()?;
        let mut replaced_state = match &replaced {
            Some(replaced) => Some(replaced.lock()?),
            None => None,
        };
        {
            let target: &State = target.as_deref().unwrap_or(&source);
            check(
                caller,
                &source,
                target,
                &moved_state,
                replaced_state.as_deref(),
            )?;
        }

        let (now, kind) = (now(), moved_state.attributes.kind);
        let before_from = source.wcc();
        let before_to = target.as_deref().unwrap_or(&source).wcc();
        if let Some(target) = &mut target {
            // The only step that may still fail comes first.
            count_in(target, kind)?;
            count_out(&mut source, kind);
        }
        let cookie = source.directory_mut()?.remove(old_name);
        source.touch(now);
        // A rename within a directory keeps the cookie.
        let (target, cookie): (&mut State, _) = match &mut target {
            Some(target) => (target, None),
            None => (&mut source, cookie),
        };
        target
            .directory_mut()?
            .insert(new_name, moved.clone(), cookie);
        target.touch(now);
        if let (Some(state), Some(node)) = (&mut replaced_state, &replaced) {
            count_out(target, state.attributes.kind);
            let last = (to.inode, new_name);
            self.drop_name(node, state, now, (caller, last));
        }
        let change_to = target.change_since(before_to);
        if let Ok(directory) = moved_state.directory_mut() {
            directory.parent = to.inode;
        }
        moved_state.attributes.ctime = now;
        Ok((source.change_since(before_from), change_to))
    }

    /// Whether `node` is `ancestor` or lies below it. Holds as long as the `naming` lock is held.
    fn is_below(&self, node: &Arc<Node>, ancestor: Inode) -> Result<bool> {
        let mut node = node.clone();
        loop {
            if node.inode == ancestor {
                return Ok(true);
            }
            if node.inode == Inode::ROOT {
                return Ok(false);
            }
            let parent = node.lock()?.directory()?.parent;
            node = self.table.find(parent)?;
        }
    }
}

/// Returns the object with `name` in `directory`, if `caller` may search it.
fn named(directory: &Node, caller: &Credentials, name: &[u8]) -> Result<Option<Arc<Node>>> {
    let state = directory.lock()?;
    let names = state.directory()?;
    permission::may_search(state.owned(), caller)?;
    Ok(names.find(name).cloned())
}

/// Checks all that may forbid a rename: rights first, then kinds.
fn check(
    caller: &Credentials,
    source: &State,
    target: &State,
    moved: &State,
    replaced: Option<&State>,
) -> Result<()> {
    permission::may_unlink(source.owned(), moved.owned(), caller)?;
    let across = source.attributes.inode != target.attributes.inode;
    if across && moved.is_directory() {
        permission::may_rewrite_parent(moved.owned(), caller)?;
    }
    let Some(replaced) = replaced else {
        return permission::may_change_names(target.owned(), caller);
    };
    permission::may_unlink(target.owned(), replaced.owned(), caller)?;
    match (moved.is_directory(), replaced.is_directory()) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        (true, true) | (false, false) => check_removable(replaced),
    }
}
