//! Judges restores from snapshots and from the trash.

use forebay_fs::{
    PathError, RestoreError, RestoreRequest, Restored, SnapshotError, TrashEntry, TrashError,
    Wanted,
};
use forebay_vfs::{Error, FileKind};

use super::Case;
use crate::model::State;
use crate::operation::{Operation, Reply};

/// The place of a restored tree.
pub(crate) struct Placed {
    /// Its directory.
    pub(crate) directory: u64,
    /// Number of its objects.
    pub(crate) objects: u64,
    /// The name that the object has now that was there.
    pub(crate) aside: Option<Vec<u8>>,
}

/// The directory and the name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/');
    at.map_or((b"", path), |at| (&path[..at], &path[at + 1..]))
}

/// The path that the object gets.
fn target(request: &RestoreRequest) -> &[u8] {
    request.to.as_ref().unwrap_or(&request.path)
}

fn is_directory(state: &State, inode: u64) -> bool {
    state
        .get(inode)
        .is_some_and(|object| object.kind() == FileKind::Directory)
}

impl Case<'_> {
    /// Judges the reply to an operation with many records.
    pub(super) fn judge_many(&self, reply: &Reply) -> Result<(), String> {
        let is_right = match (self.operation, reply) {
            (_, Reply::Failed(Error::Delay | Error::Io) | Reply::Stopped(_)) => self.troubled,
            (Operation::Restore(request), Reply::Restored(restored)) => {
                self.restored(request, restored)
            }
            (Operation::Restore(request), Reply::NotRestored(error)) => {
                self.not_restored(request, error)
            }
            (Operation::Undelete { .. }, Reply::Undeleted(entries)) => self.undeleted(entries),
            (Operation::Undelete { wanted, to }, Reply::NotUndeleted(error)) => {
                self.not_undeleted(wanted, to.as_deref(), error)
            }
            // The directory, or an object, went meanwhile.
            (Operation::Undelete { .. }, Reply::Failed(Error::Stale | Error::NotFound)) => {
                self.states.len() > 1
            }
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("the model does not allow {reply:?}")),
        }
    }

    fn restored(&self, request: &RestoreRequest, restored: &Restored) -> bool {
        let Some(placed) = &self.placed else {
            return false;
        };
        let path = target(request);
        let (above, name) = split(path);
        let aside = restored.moved_aside.as_deref().map(|path| split(path).1);
        let was_there = |state: &State| state.at_path(above) == Some(placed.directory);
        restored.path == path
            && restored.objects == placed.objects
            && aside == placed.aside.as_deref()
            && aside.is_none_or(|aside| request.replace && aside.starts_with(name))
            && self.some(was_there).is_some()
    }

    fn not_restored(&self, request: &RestoreRequest, error: &RestoreError) -> bool {
        let some = |fits: &dyn Fn(&State) -> bool| self.some(fits).is_some();
        let (above, name) = split(target(request));
        let is_going = self.deleting.contains(&request.snapshot);
        let then = self
            .states
            .first()
            .and_then(|state| state.snapshots().get(&request.snapshot));
        match error {
            RestoreError::Busy => self.is_second,
            RestoreError::Snapshot(SnapshotError::NotPublished(_)) => then.is_some(),
            RestoreError::Snapshot(SnapshotError::NotFound(_)) => is_going || then.is_none(),
            RestoreError::Snapshot(SnapshotError::Gone(_)) => is_going,
            // The bucket does not answer, or has no such state any more.
            RestoreError::Snapshot(SnapshotError::Store(_)) => self.troubled || is_going,
            RestoreError::Unreadable(_) => is_going || self.troubled,
            RestoreError::NotInSnapshot { .. } => {
                then.is_some_and(|then| then.at_path(&request.path).is_none())
            }
            RestoreError::Path(PathError::NotFound(_)) => {
                some(&|state| state.at_path(above).is_none())
            }
            RestoreError::Path(PathError::NotADirectory(_) | PathError::Link(_)) => {
                some(&|state| {
                    !state
                        .at_path(above)
                        .is_some_and(|at| is_directory(state, at))
                })
            }
            RestoreError::Path(PathError::Unreadable(..)) => self.troubled,
            RestoreError::Path(PathError::Volume(Error::Stale)) => self.states.len() > 1,
            RestoreError::Exists(_) => {
                !request.replace
                    && some(&|state| {
                        state
                            .of_kind(FileKind::Directory)
                            .iter()
                            .any(|directory| state.lookup(*directory, name).is_some())
                    })
            }
            RestoreError::Volume(Error::Io | Error::Delay) => self.troubled,
            // The directory was removed meanwhile, or is one no more.
            RestoreError::Volume(Error::Stale | Error::NotFound | Error::NotDirectory) => {
                self.states.len() > 1
            }
            // A client may have given the name to something else before it could be given back.
            RestoreError::LeftAside(_) => {
                self.troubled || some(&|state| state.at_path(target(request)).is_some())
            }
            RestoreError::Flush(_) | RestoreError::Away(_) => self.troubled,
            _ => false,
        }
    }

    fn undeleted(&self, entries: &[TrashEntry]) -> bool {
        let has_name = |entry: &TrashEntry| {
            self.some(|state| state.get(entry.inode.0).is_some())
                .is_some()
        };
        !entries.is_empty() && entries.iter().all(has_name) && !self.back.is_empty()
    }

    fn not_undeleted(&self, wanted: &Wanted, to: Option<&[u8]>, error: &TrashError) -> bool {
        let some = |fits: &dyn Fn(&State) -> bool| self.some(fits).is_some();
        let below = |state: &State, path: &[u8]| {
            let paths = state
                .trash()
                .filter_map(|(inode, _)| state.path_in_trash(inode));
            paths
                .filter_map(|own| own.strip_prefix(path).map(<[u8]>::to_vec))
                .filter(|rest| matches!(rest.first(), None | Some(b'/')))
                .count()
        };
        match (error, wanted) {
            (TrashError::NoSuchId(_), Wanted::Id(inode)) => {
                some(&|state| state.trashed(inode.0).is_none())
            }
            // A directory may have been renamed while its entries were read.
            (TrashError::NotFound(_), Wanted::Path(path)) => {
                self.states.len() > 1 || some(&|state| below(state, path) == 0)
            }
            (TrashError::ToManyFiles, Wanted::Path(path)) => {
                to.is_some() && some(&|state| below(state, path) > 1)
            }
            (TrashError::NoDirectory(_), _) => to.is_some_and(|to| {
                some(&|state| {
                    let above = state.at_path(split(to).0);
                    !above.is_some_and(|at| is_directory(state, at))
                })
            }),
            (TrashError::Exists(_), _) => match to {
                Some(to) => some(&|state| {
                    state
                        .of_kind(FileKind::Directory)
                        .iter()
                        .any(|directory| state.lookup(*directory, split(to).1).is_some())
                }),
                None => some(&|state| {
                    state.trash().any(|(_, trashed)| {
                        state
                            .of_kind(FileKind::Directory)
                            .iter()
                            .any(|directory| state.lookup(*directory, &trashed.name).is_some())
                    })
                }),
            },
            (TrashError::NoPath(_), _) => {
                to.is_none()
                    && some(&|state| {
                        state
                            .trash()
                            .any(|(inode, _)| state.path_in_trash(inode).is_none())
                    })
            }
            (TrashError::Partly { .. }, _) => self.troubled || self.states.len() > 1,
            _ => false,
        }
    }
}
