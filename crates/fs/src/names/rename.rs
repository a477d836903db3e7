//! RENAME, which replaces what bears the new name in the same step.

use std::sync::Arc;

use forebay_meta::record::{InodeRecord, Kind, NameRecord};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{Change, Credentials, Error, Result, WccAttributes, permission};
use tokio::sync::MutexGuard;

use super::create::changeable;
use super::remove::drop_link;
use super::{check_name, count_in, count_out, delete_name, is_dot};
use crate::change::{NameChange, Refusal};
use crate::convert::{self, owned};
use crate::core::Core;
use crate::durability::Recorded;
use crate::node::{Locked, Node};

/// A place that a rename takes from or moves to.
struct Place<'a> {
    directory: Arc<Node>,
    name: &'a [u8],
}

/// An object and the name record that led to it.
struct Named {
    node: Arc<Node>,
    entry: NameRecord,
}

impl Core {
    pub(crate) async fn rename(
        &self,
        who: &Credentials,
        (from, old_name): (Inode, &[u8]),
        (to, new_name): (Inode, &[u8]),
    ) -> Result<Recorded<(Change, Change)>> {
        check_name(old_name)?;
        check_name(new_name)?;
        if is_dot(old_name) || is_dot(new_name) {
            return Err(Error::Invalid);
        }
        self.admit_names().await?;
        let from = Place {
            directory: self.directory(from).await?,
            name: old_name,
        };
        let to = Place {
            directory: self.directory(to).await?,
            name: new_name,
        };
        if from.directory.inode == to.directory.inode {
            let _names = from.directory.names.lock().await;
            return self.rename_locked(who, &from, &to).await;
        }
        let _moving = self.rename.lock().await;
        let _names = self.lock_both(&from.directory, &to.directory).await?;
        self.rename_locked(who, &from, &to).await
    }

    /// Locks the names of two directories in the order that everybody keeps.
    async fn lock_both<'a>(
        &self,
        one: &'a Arc<Node>,
        other: &'a Arc<Node>,
    ) -> Result<(MutexGuard<'a, ()>, MutexGuard<'a, ()>)> {
        let other_first = if self.is_below(one, other.inode).await? {
            true
        } else if self.is_below(other, one.inode).await? {
            false
        } else {
            other.inode < one.inode
        };
        let (first, second) = if other_first {
            (other, one)
        } else {
            (one, other)
        };
        let first = first.names.lock().await;
        Ok((first, second.names.lock().await))
    }

    /// Whether `node` is `ancestor` or lies below it. Stable while the rename lock is held.
    async fn is_below(&self, node: &Arc<Node>, ancestor: Inode) -> Result<bool> {
        let mut inode = node.inode;
        loop {
            if inode == ancestor {
                return Ok(true);
            }
            if inode == Inode::ROOT {
                return Ok(false);
            }
            let node = self.node(inode).await?;
            let parent = node
                .lock_directory()?
                .record
                .directory()
                .map(|own| own.parent);
            inode = parent.ok_or(Error::NotDirectory)?;
        }
    }

    async fn rename_locked(
        &self,
        who: &Credentials,
        from: &Place<'_>,
        to: &Place<'_>,
    ) -> Result<Recorded<(Change, Change)>> {
        permission::may_search(owned(&from.directory.lock_directory()?.record), who)?;
        permission::may_search(owned(&to.directory.lock_directory()?.record), who)?;
        let entry = self
            .entry(&from.directory, from.name)
            .await?
            .ok_or(Error::NotFound)?;
        let moved = Named {
            node: self.node(entry.inode).await?,
            entry,
        };
        let replaced = match self.entry(&to.directory, to.name).await? {
            Some(entry) => Some(Named {
                node: self.node(entry.inode).await?,
                entry,
            }),
            None => None,
        };
        let across = from.directory.inode != to.directory.inode;
        let is_directory = moved.entry.kind == Kind::Directory;
        if is_directory && across && self.is_below(&to.directory, moved.node.inode).await? {
            return Err(Error::Invalid);
        }
        let mut replaced_names = None;
        if let Some(replaced) = &replaced {
            if replaced.node.inode == moved.node.inode {
                // Two names of one object: POSIX has both stay.
                return Ok(Recorded {
                    end: self.last_lsn(&moved.node),
                    reply: unchanged(from, to),
                });
            }
            if is_directory && replaced.entry.kind == Kind::Directory {
                // What lies above the directory that is moved out of cannot be empty; and to lock
                // it after the one below it would be against the order of locks.
                if across && self.is_below(&from.directory, replaced.node.inode).await? {
                    return Err(Error::NotEmpty);
                }
                replaced_names = Some(replaced.node.names.lock().await);
            }
        }
        let renamed = self
            .retry(|| self.rename_once(who, from, to, &moved, replaced.as_ref()))
            .await;
        drop(replaced_names);
        renamed
    }

    fn last_lsn(&self, node: &Node) -> Lsn {
        node.lock().last_lsn
    }

    fn rename_once(
        &self,
        who: &Credentials,
        from: &Place<'_>,
        to: &Place<'_>,
        moved: &Named,
        replaced: Option<&Named>,
    ) -> std::result::Result<Recorded<(Change, Change)>, Refusal> {
        let mut nodes = vec![&from.directory, &to.directory, &moved.node];
        nodes.extend(replaced.map(|replaced| &replaced.node));
        let mut locked = Locked::all(&nodes);
        let now = self.now();
        let across = from.directory.inode != to.directory.inode;
        let kind = moved.entry.kind;

        check_rights(who, from, to, moved, replaced, &mut locked)?;
        let mut record = locked.of(&moved.node).record.clone();
        let mut source = locked.of(&from.directory).record.clone();
        let before_from = from.directory.wcc(locked.of(&from.directory));
        let mut target = locked.of(&to.directory).record.clone();
        let before_to = to.directory.wcc(locked.of(&to.directory));
        // The root of a tree takes its tree along.
        let is_root = record.tree == Some(moved.node.inode);
        if across && record.tree != target.tree && !is_root {
            return Err(Refusal::Error(Error::CrossDevice));
        }
        let old = replaced.map(|replaced| locked.of(&replaced.node).record.clone());
        if let Some(old) = &old {
            check_kinds(kind, old)?;
        }

        let mut change = NameChange::default();
        delete_name(
            &mut change.names,
            from.directory.inode,
            from.name,
            moved.entry.cookie,
        );
        // One record for both places when they are the same directory.
        let cookie = {
            let target = if across { &mut target } else { &mut source };
            if !across {
                count_out(target, kind, now)?;
            }
            if let Some(replaced) = replaced {
                delete_name(
                    &mut change.names,
                    to.directory.inode,
                    to.name,
                    replaced.entry.cookie,
                );
                count_out(target, replaced.entry.kind, now)?;
            }
            count_in(target, kind, now)?
        };
        change.enter(&to.directory, to.name, cookie, moved.node.inode, kind);
        if across {
            count_out(&mut source, kind, now)?;
            change.set(&to.directory, target);
            if let Some(own) = record.directory_mut() {
                own.parent = to.directory.inode;
            }
        }
        change.set(&from.directory, source);
        record.ctime = convert::record_time(now);
        change.set(&moved.node, record);
        if let (Some(replaced), Some(old)) = (replaced, old) {
            drop_link(&mut change, &replaced.node, old, now);
        }
        let end = self.record_names(change, &mut locked)?;
        let mut seen = |directory: &Node, before: WccAttributes| Change {
            before: Some(before),
            after: Some(directory.attributes(locked.of(directory))),
        };
        let reply = (
            seen(&from.directory, before_from),
            seen(&to.directory, before_to),
        );
        Ok(Recorded { end, reply })
    }
}

/// Whether `who` may take the one name away and make the other, in place of what bears it.
fn check_rights(
    who: &Credentials,
    from: &Place<'_>,
    to: &Place<'_>,
    moved: &Named,
    replaced: Option<&Named>,
    locked: &mut Locked<'_>,
) -> std::result::Result<(), Refusal> {
    let source = owned(&changeable(locked.of(&from.directory), who)?.record);
    let target = owned(&changeable(locked.of(&to.directory), who)?.record);
    let object = owned(&locked.of(&moved.node).record);
    permission::may_unlink(source, object, who)?;
    if let Some(replaced) = replaced {
        permission::may_unlink(target, owned(&locked.of(&replaced.node).record), who)?;
    }
    if moved.entry.kind == Kind::Directory && from.directory.inode != to.directory.inode {
        // Its `..` is rewritten.
        permission::may_rewrite_parent(object, who)?;
    }
    Ok(())
}

/// Whether an object of this kind may take the place of `old`.
fn check_kinds(kind: Kind, old: &InodeRecord) -> Result<()> {
    match (kind == Kind::Directory, old.directory()) {
        (true, None) => Err(Error::NotDirectory),
        (false, Some(_)) => Err(Error::IsDirectory),
        (true, Some(own)) if own.entries > 0 => Err(Error::NotEmpty),
        (true, Some(_)) | (false, None) => Ok(()),
    }
}

/// Nothing happened to either directory.
fn unchanged(from: &Place<'_>, to: &Place<'_>) -> (Change, Change) {
    let seen = |place: &Place<'_>| {
        let state = place.directory.lock();
        Change {
            before: Some(place.directory.wcc(&state)),
            after: Some(place.directory.attributes(&state)),
        }
    };
    (seen(from), seen(to))
}
