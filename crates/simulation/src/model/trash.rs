//! The trash of the model: what lost its last name, until its time is over or room is needed.

use std::sync::Arc;

use forebay_vfs::{FileKind, Timestamp};

use super::{Body, Object, State};
use crate::operation::Operation;

/// What an entry takes of the trash's room, beside its bytes.
const ENTRY: u64 = 4096;

/// The rules of a volume's trash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// How long everything stays; 0 if there is no trash.
    pub seconds: u32,
    /// The most bytes that it may take.
    pub limit: u64,
}

/// An object in the trash.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as in `forebay_fs::TrashEntry`")]
pub struct Trashed {
    pub object: Arc<Object>,
    /// The directory that it was in.
    pub directory: u64,
    pub name: Vec<u8>,
    pub removed: Timestamp,
    pub until: u64,
}

impl State {
    /// The objects in the trash, by inode.
    pub(crate) fn trash(&self) -> impl Iterator<Item = (u64, &Trashed)> {
        self.trash
            .iter()
            .map(|(inode, trashed)| (*inode, trashed.as_ref()))
    }

    /// The object in the trash with this inode.
    pub(crate) fn trashed(&self, inode: u64) -> Option<&Trashed> {
        self.trash.get(&inode).map(Arc::as_ref)
    }

    /// Moves an object that has lost its last name to the trash, if it is kept.
    pub(super) fn lose(&mut self, inode: u64, (directory, name): (u64, &[u8]), now: Timestamp) {
        let Some(object) = self.objects.remove(&inode) else {
            return;
        };
        let is_kept = matches!(object.kind(), FileKind::Regular | FileKind::Directory);
        if self.keep.seconds == 0 || !is_kept {
            return;
        }
        let until = now.seconds.cast_unsigned() + u64::from(self.keep.seconds);
        let trashed = Trashed {
            object: Arc::new(Object {
                nlink: 0,
                ctime: now,
                ..object.as_ref().clone()
            }),
            directory,
            name: name.to_vec(),
            removed: now,
            until,
        };
        self.trash.insert(inode, Arc::new(trashed));
    }

    /// The state after an operation of the gateway's own, which puts nothing into the trash.
    pub(crate) fn apply_past_trash(
        &self,
        operation: &Operation,
        now: Timestamp,
        new: u64,
    ) -> Option<State> {
        let past = State {
            keep: Keep {
                seconds: 0,
                ..self.keep
            },
            ..self.clone()
        };
        let applied = past.apply(operation, now, new).ok().flatten()?;
        Some(State {
            keep: self.keep,
            ..applied
        })
    }

    /// This state with an object of the trash under a name.
    pub(crate) fn brought_back(
        &self,
        inode: u64,
        (directory, name): (u64, &[u8]),
        now: Timestamp,
    ) -> Option<State> {
        let mut state = self.clone();
        let trashed = state.trash.remove(&inode)?;
        let mut object = trashed.object.as_ref().clone();
        let kind = object.kind();
        object.nlink = 1 + u32::from(kind == FileKind::Directory);
        object.ctime = now;
        if let Body::Directory { parent, .. } = &mut object.body {
            *parent = directory;
        }
        state.count_in(directory, name, inode, kind, None, now);
        state.objects.insert(inode, Arc::new(object));
        Some(state)
    }

    /// This state after the task that empties the trash has left `left` objects in it: those that end last.
    ///
    /// # Errors
    ///
    /// If an object that has left should have stayed.
    pub(crate) fn emptied(&self, left: u64, now: Timestamp) -> Result<State, String> {
        let mut order: Vec<(u64, u64)> = self
            .trash()
            .map(|(inode, trashed)| (trashed.until, inode))
            .collect();
        order.sort_unstable();
        let gone = (order.len() as u64).checked_sub(left);
        let gone = gone.filter(|gone| *gone > 0).ok_or_else(|| {
            format!("a task recorded a change: {left} objects in the trash, and it had {order:?}")
        })?;
        let mut state = self.clone();
        for (until, inode) in order.into_iter().take(gone as usize) {
            let is_over = until <= now.seconds.cast_unsigned();
            if !is_over && state.trash_at_most() <= self.keep.limit {
                return Err(format!(
                    "object {inode} left the trash at {}, before its time {until}, and there was room",
                    now.seconds
                ));
            }
            state.trash.remove(&inode);
        }
        Ok(state)
    }

    /// Whether everything in the trash stays until then: nothing ends, and no room is needed.
    pub(crate) fn trash_rests_until(&self, seconds: u64) -> bool {
        self.trash_at_most() <= self.keep.limit
            && self.trash().all(|(_, trashed)| trashed.until > seconds)
    }

    /// The most bytes that the trash may take: files may have fewer bytes in the bucket.
    fn trash_at_most(&self) -> u64 {
        let bytes = |object: &Object| match &object.body {
            Body::Regular(content) => content.written_at_most().next_multiple_of(ENTRY),
            _ => 0,
        };
        self.trash()
            .map(|(_, trashed)| ENTRY + bytes(&trashed.object))
            .sum()
    }
}
