//! The names of one writer: its own directory with everything below it, and its names in the shared one.

use std::collections::BTreeMap;

use crate::history::State;

/// Number of an object in the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The writer's own directory.
pub const OWN: NodeId = NodeId(0);
/// The directory that all writers share.
pub const SHARED: NodeId = NodeId(1);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The directory.
    pub directory: NodeId,
    /// The name.
    pub name: String,
}

/// Kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Symlink(String),
}

/// An operation on names.
#[derive(Clone, Debug)]
pub enum NameOp {
    /// CREATE, MKDIR or SYMLINK.
    Make {
        /// The name.
        place: Place,
        /// The object.
        node: NodeId,
        /// Its kind.
        kind: Kind,
    },
    /// LINK.
    Link {
        /// The new name.
        place: Place,
        /// The object that gets it.
        node: NodeId,
    },
    /// RENAME, which replaces any object under the new name.
    Rename {
        /// The old name.
        from: Place,
        /// The new one.
        to: Place,
    },
    /// REMOVE or RMDIR.
    Remove {
        /// The name.
        place: Place,
    },
}

impl NameOp {
    /// The names that the operation changes.
    pub fn places(&self) -> Vec<&Place> {
        match self {
            NameOp::Make { place, .. } | NameOp::Link { place, .. } | NameOp::Remove { place } => {
                vec![place]
            }
            NameOp::Rename { from, to } => vec![from, to],
        }
    }
}

/// All names, and the objects that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Every name.
    pub names: BTreeMap<Place, NodeId>,
    /// Every object that has a name.
    pub kinds: BTreeMap<NodeId, Kind>,
}

impl Tree {
    /// Number of names of an object.
    pub fn links(&self, node: NodeId) -> usize {
        self.names.values().filter(|named| **named == node).count()
    }

    /// Whether a directory has no names.
    pub fn is_empty(&self, directory: NodeId) -> bool {
        !self.names.keys().any(|place| place.directory == directory)
    }

    /// Every name with the path to it, from `own` or `shared`.
    pub fn paths(&self) -> BTreeMap<String, (Place, NodeId)> {
        let mut paths = BTreeMap::new();
        let mut below = vec![(OWN, "own".to_owned()), (SHARED, "shared".to_owned())];
        while let Some((directory, path)) = below.pop() {
            for (place, node) in &self.names {
                if place.directory != directory {
                    continue;
                }
                let path = format!("{path}/{}", place.name);
                if self.kinds.get(node) == Some(&Kind::Directory) {
                    below.push((*node, path.clone()));
                }
                paths.insert(path, (place.clone(), *node));
            }
        }
        paths
    }

    /// The link count that NFS must report: number of names, or for a directory 2 and the number of its subdirectories.
    pub fn nlink(&self, node: NodeId) -> usize {
        if self.kinds.get(&node) != Some(&Kind::Directory) {
            return self.links(node);
        }
        let inside = self
            .names
            .iter()
            .filter(|(place, _)| place.directory == node);
        2 + inside
            .filter(|(_, node)| self.kinds.get(node) == Some(&Kind::Directory))
            .count()
    }

    fn unname(&mut self, place: &Place) {
        if let Some(node) = self.names.remove(place)
            && self.links(node) == 0
        {
            self.kinds.remove(&node);
        }
    }
}

impl State for Tree {
    type Op = NameOp;

    fn apply(&mut self, op: &NameOp) {
        match op {
            NameOp::Make { place, node, kind } => {
                self.names.insert(place.clone(), *node);
                self.kinds.insert(*node, kind.clone());
            }
            NameOp::Link { place, node } => {
                self.names.insert(place.clone(), *node);
            }
            NameOp::Rename { from, to } => {
                let (Some(moved), replaced) = (self.names.get(from), self.names.get(to)) else {
                    return;
                };
                let moved = *moved;
                // Both names belong to one object: RENAME does nothing.
                if Some(&moved) == replaced {
                    return;
                }
                self.unname(to);
                self.names.remove(from);
                self.names.insert(to.clone(), moved);
            }
            NameOp::Remove { place } => self.unname(place),
        }
    }
}
