//! RENAME, which replaces an object under the new name in the same step.
//!
//! A listing in progress must end, even if a program renames each name that it receives. So a name gets a new cookie,
//! behind all others, only if it comes from another directory and replaces none:
//!
//! | a name | its cookie |
//! |---|---|
//! | that replaces another | is that one's |
//! | that is changed within its directory | stays |
//! | that comes from another directory | is new |
//!
//! There is one exception. While a quota spreads over a directory ([`crate::files::quota`]), a walk goes through it
//! by cookies, and a name ahead of the walk must not move behind it. Names that the walk has passed count in another
//! tree than names ahead of it: so no name takes the cookie of one that counts in another tree.

use std::sync::Arc;

use forebay_meta::record::{InodeRecord, Kind, NameRecord};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{Change, Credentials, Error, Result, WccAttributes, permission};
use forebay_view::convert::{self, owned};
use tokio::sync::MutexGuard;

use super::create::changeable;
use super::remove::{LastName, drop_link};
use super::{check_name, count_in, count_out, delete_name, is_dot, next_cookie};
use crate::files::Files;
use crate::files::durability::Recorded;
use crate::state::{Ancestors, Locked, NameChange, Node, Refusal};

/// The source or the target of a rename.
struct RenameEnd<'a> {
    directory: Arc<Node>,
    name: &'a [u8],
}

/// An object and the name record that led to it.
struct Named {
    node: Arc<Node>,
    entry: NameRecord,
}

/// What a rename may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// Whatever has the new name.
    Anything,
    /// This object alone; `None`: nothing.
    Only(Option<Inode>),
}

/// The result of an attempt.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart as soon as it is returned"
)]
enum Attempt {
    Done(Recorded<(Change, Change)>),
    /// A directory must be moved, and the ancestors of its new place are not known, or not any more.
    NeedsAncestors,
}

/// How often a rename of a directory walks over the ancestors of its new place, if one of them is moved meanwhile.
const LOOKS: usize = 8;

impl Files {
    pub(crate) async fn rename(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> Result<Recorded<(Change, Change)>> {
        self.rename_onto(caller, from, to, Onto::Anything).await
    }

    /// The same, if the new name leads to what is expected; [`Error::Exists`] if not.
    pub(crate) async fn rename_onto(
        &self,
        caller: &Credentials,
        (from, old_name): (Inode, &[u8]),
        (to, new_name): (Inode, &[u8]),
        onto: Onto,
    ) -> Result<Recorded<(Change, Change)>> {
        check_name(old_name)?;
        check_name(new_name)?;
        if is_dot(old_name) || is_dot(new_name) {
            return Err(Error::Invalid);
        }
        self.state.admit_names(caller.client).await?;
        let from = RenameEnd {
            directory: self.directory(from).await?,
            name: old_name,
        };
        let to = RenameEnd {
            directory: self.directory(to).await?,
            name: new_name,
        };
        let mut above = None;
        for _ in 0..=LOOKS {
            let attempt = {
                let _names = lock_names(&from.directory, &to.directory).await;
                self.rename_locked(caller, &from, (&to, onto), above.as_ref())
                    .await?
            };
            match attempt {
                Attempt::Done(renamed) => return Ok(renamed),
                // Without the `names` locks: a walk over many levels must not stop other calls on these directories.
                Attempt::NeedsAncestors => match self.ancestors(&to.directory).await {
                    // Moved away and removed during the walk; the last attempt says whether it is the new place
                    // itself.
                    Err(Error::Stale) => above = None,
                    found => above = Some(found?),
                },
            }
        }
        Err(Error::Delay)
    }

    async fn rename_locked(
        &self,
        caller: &Credentials,
        from: &RenameEnd<'_>,
        (to, onto): (&RenameEnd<'_>, Onto),
        above: Option<&Ancestors>,
    ) -> Result<Attempt> {
        permission::may_search(owned(&from.directory.lock_directory()?.record), caller)?;
        permission::may_search(owned(&to.directory.lock_directory()?.record), caller)?;
        let entry = self
            .entry(&from.directory, from.name)
            .await?
            .ok_or(Error::NotFound)?;
        let moved = Named {
            node: self.state.node(entry.inode).await?,
            entry,
        };
        let replaced = match self.entry(&to.directory, to.name).await? {
            Some(entry) => Some(Named {
                node: self.state.node(entry.inode).await?,
                entry,
            }),
            None => None,
        };
        if let Onto::Only(expected) = onto
            && replaced.as_ref().map(|named| named.node.inode) != expected
        {
            return Err(Error::Exists);
        }
        if let Some(replaced) = &replaced
            && replaced.node.inode == moved.node.inode
        {
            // Two names of one object: POSIX requires that both stay.
            return Ok(Attempt::Done(Recorded {
                end: self.last_lsn(&moved.node),
                reply: unchanged(from, to),
            }));
        }
        self.state
            .retry(|| self.rename_once(caller, from, to, &moved, replaced.as_ref(), above))
            .await
    }

    fn last_lsn(&self, node: &Node) -> Lsn {
        node.lock().last_lsn
    }

    fn rename_once(
        &self,
        caller: &Credentials,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        moved: &Named,
        replaced: Option<&Named>,
        above: Option<&Ancestors>,
    ) -> std::result::Result<Attempt, Refusal> {
        let mut nodes = vec![&from.directory, &to.directory, &moved.node];
        nodes.extend(replaced.map(|replaced| &replaced.node));
        let mut locked = Locked::all(&nodes);
        let now = self.state.now();
        let across = from.directory.inode != to.directory.inode;
        let kind = moved.entry.kind;

        check_rights(caller, from, to, moved, replaced, &mut locked)?;
        // Held until the move is made: no other one comes between.
        let mut moves = (across && kind == Kind::Directory).then(|| self.state.moves.lock());
        if let Some(moves) = &moves {
            if moved.node.inode == to.directory.inode {
                return Err(Refusal::Error(Error::Invalid));
            }
            match above.filter(|above| above.hold(moves)) {
                None => return Ok(Attempt::NeedsAncestors),
                Some(above) if above.contain(moved.node.inode) => {
                    return Err(Refusal::Error(Error::Invalid));
                }
                Some(_) => {}
            }
        }
        let mut record = locked.of(&moved.node).record.clone();
        let mut source = locked.of(&from.directory).record.clone();
        let before_from = from.directory.wcc(locked.of(&from.directory));
        let mut target = locked.of(&to.directory).record.clone();
        let before_to = to.directory.wcc(locked.of(&to.directory));
        // The root of a tree moves with its tree.
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
        // One record for both places if they are the same directory.
        let target_record = if across { &mut target } else { &mut source };
        if !across {
            count_out(target_record, kind, now)?;
        }
        if let Some(replaced) = replaced {
            delete_name(
                &mut change.names,
                to.directory.inode,
                to.name,
                replaced.entry.cookie,
            );
            count_out(target_record, replaced.entry.kind, now)?;
        }
        count_in(target_record, kind, now)?;
        let taken = replaced
            .filter(|_| old.as_ref().is_some_and(|old| old.tree == record.tree))
            .or((!across).then_some(moved))
            .map(|named| named.entry.cookie);
        let cookie = match taken {
            Some(cookie) => cookie,
            None => next_cookie(target_record)?,
        };
        change.enter(&to.directory, to.name, cookie, moved.node.inode, kind);
        if across || cookie != moved.entry.cookie {
            change.leave(&from.directory, moved.entry.cookie);
        }
        if let Some(replaced) = replaced
            && cookie != replaced.entry.cookie
        {
            change.leave(&to.directory, replaced.entry.cookie);
        }
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
            let last = LastName {
                directory: to.directory.inode,
                name: to.name,
                caller,
                bytes: locked.of(&replaced.node).space(),
                room: self.state.config.trash_limit,
            };
            drop_link(&mut change, &replaced.node, old, (&last, now));
        }
        let end = self.state.record_names(change, &mut locked)?;
        moved.node.seen(to.directory.inode, cookie);
        if let Some(moves) = &mut moves {
            moves.add(moved.node.inode);
        }
        drop(moves);
        let mut seen = |directory: &Node, before: WccAttributes| Change {
            before: Some(before),
            after: Some(directory.attributes(locked.of(directory))),
        };
        let reply = (
            seen(&from.directory, before_from),
            seen(&to.directory, before_to),
        );
        Ok(Attempt::Done(Recorded { end, reply }))
    }
}

/// Locks the names of two directories, which may be the same, in the order that all tasks keep.
async fn lock_names<'a>(
    one: &'a Node,
    other: &'a Node,
) -> (MutexGuard<'a, ()>, Option<MutexGuard<'a, ()>>) {
    let (first, second) = if one.inode <= other.inode {
        (one, other)
    } else {
        (other, one)
    };
    let first_names = first.lock_names().await;
    if first.inode == second.inode {
        return (first_names, None);
    }
    (first_names, Some(second.lock_names().await))
}

/// Whether `caller` may remove the old name and make the new one, in place of the object that has it.
fn check_rights(
    caller: &Credentials,
    from: &RenameEnd<'_>,
    to: &RenameEnd<'_>,
    moved: &Named,
    replaced: Option<&Named>,
    locked: &mut Locked<'_>,
) -> std::result::Result<(), Refusal> {
    let source = owned(&changeable(locked.of(&from.directory), caller)?.record);
    let target = owned(&changeable(locked.of(&to.directory), caller)?.record);
    let object = owned(&locked.of(&moved.node).record);
    permission::may_unlink(source, object, caller)?;
    if let Some(replaced) = replaced {
        permission::may_unlink(target, owned(&locked.of(&replaced.node).record), caller)?;
    }
    if moved.entry.kind == Kind::Directory && from.directory.inode != to.directory.inode {
        // Its `..` is rewritten.
        permission::may_rewrite_parent(object, caller)?;
    }
    Ok(())
}

/// Whether an object of this kind may replace `old`.
fn check_kinds(kind: Kind, old: &InodeRecord) -> Result<()> {
    match (kind == Kind::Directory, old.directory()) {
        (true, None) => Err(Error::NotDirectory),
        (false, Some(_)) => Err(Error::IsDirectory),
        (true, Some(own)) if own.entries > 0 => Err(Error::NotEmpty),
        (true, Some(_)) | (false, None) => Ok(()),
    }
}

/// The changes of two directories that stay as they are.
fn unchanged(from: &RenameEnd<'_>, to: &RenameEnd<'_>) -> (Change, Change) {
    let seen = |place: &RenameEnd<'_>| {
        let state = place.directory.lock();
        Change {
            before: Some(place.directory.wcc(&state)),
            after: Some(place.directory.attributes(&state)),
        }
    };
    (seen(from), seen(to))
}
