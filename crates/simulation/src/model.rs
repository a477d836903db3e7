//! The reference model: the content that a file system must have after these operations, written as plainly as possible
//! and independently of the product's code.
//!
//! A [`State`] is the whole file system at one position of the log; states share their common parts, so that one can be
//! kept for every record.

mod apply;
mod content;
mod object;
mod paths;
mod restore;
mod trash;

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_vfs::{Attributes, FileKind, Timestamp};

pub use content::{Content, HIGH, LOW};
pub use object::{Body, Object};
pub(crate) use restore::Stage;
pub use trash::{Keep, Trashed};

/// Inode of the root directory.
pub const ROOT: u64 = 1;

/// A file system at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    objects: BTreeMap<u64, Arc<Object>>,
    /// The snapshots that were made, by name, each with its own state; also those that were deleted since.
    snapshots: BTreeMap<String, Arc<State>>,
    /// The objects in the trash.
    trash: BTreeMap<u64, Arc<Trashed>>,
    keep: Keep,
}

impl State {
    /// A newly formatted volume, with a trash as `keep` says.
    pub fn formatted(now: Timestamp, keep: Keep) -> State {
        let root = Object::new(
            Body::Directory {
                parent: ROOT,
                next_cookie: 3,
                entries: BTreeMap::new(),
            },
            0o755,
            now,
        );
        State {
            objects: BTreeMap::from([(ROOT, Arc::new(root))]),
            snapshots: BTreeMap::new(),
            trash: BTreeMap::new(),
            keep,
        }
    }

    /// The object with this inode.
    pub fn get(&self, inode: u64) -> Option<&Object> {
        self.objects.get(&inode).map(Arc::as_ref)
    }

    /// The object with this inode, shared with every state in which it is the same.
    pub fn shared(&self, inode: u64) -> Option<&Arc<Object>> {
        self.objects.get(&inode)
    }

    /// The snapshots that were made before, by name; also those that were deleted since.
    pub(crate) fn snapshots(&self) -> &BTreeMap<String, Arc<State>> {
        &self.snapshots
    }

    /// All objects by inode.
    pub fn objects(&self) -> impl Iterator<Item = (u64, &Object)> {
        self.objects
            .iter()
            .map(|(inode, object)| (*inode, object.as_ref()))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object, not even a root.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Inodes of one kind.
    pub fn of_kind(&self, kind: FileKind) -> Vec<u64> {
        let objects = self.objects();
        objects
            .filter(|(_, object)| object.kind() == kind)
            .map(|(inode, _)| inode)
            .collect()
    }

    /// The inode that a name stands for.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Option<u64> {
        let Body::Directory { entries, .. } = &self.get(directory)?.body else {
            return None;
        };
        let found = entries.values().find(|(own, _)| own == name);
        found.map(|(_, inode)| *inode)
    }

    /// The attributes of an object, except the used space (0).
    pub fn attributes(&self, inode: u64) -> Option<Attributes> {
        Some(self.get(inode)?.attributes(inode))
    }

    /// The bytes that READ must return, and whether they reach the end.
    pub fn read(&self, inode: u64, offset: u64, count: u32) -> Option<(Vec<u8>, bool)> {
        match &self.get(inode)?.body {
            Body::Regular(content) => Some(content.read(offset, count)),
            _ => None,
        }
    }

    /// This state with one snapshot more, of the state itself.
    pub(crate) fn with_snapshot(&self, name: &str) -> State {
        let kept = State {
            snapshots: BTreeMap::new(),
            ..self.clone()
        };
        let mut state = self.clone();
        state.snapshots.insert(name.to_owned(), Arc::new(kept));
        state
    }

    /// The state of the volume after it went back to `then`: it keeps its snapshots.
    pub(crate) fn back_to(&self, then: &State) -> State {
        State {
            snapshots: self.snapshots.clone(),
            ..then.clone()
        }
    }

    fn change(&mut self, inode: u64) -> Option<&mut Object> {
        self.objects.get_mut(&inode).map(Arc::make_mut)
    }
}
