//! Paths in the model.

use super::{Body, ROOT, State};

impl State {
    /// The object at a path from the root.
    pub(crate) fn at_path(&self, path: &[u8]) -> Option<u64> {
        let names = path.split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty());
        names.try_fold(ROOT, |directory, name| self.lookup(directory, name))
    }

    /// The path of a directory. The root's is empty.
    pub(crate) fn path_of(&self, directory: u64) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = directory;
        while at != ROOT {
            let Body::Directory { parent, .. } = &self.get(at)?.body else {
                return None;
            };
            names.push(self.names_in(*parent).find(|(_, inode)| *inode == at)?.0);
            at = *parent;
        }
        Some(joined(names.into_iter().rev()))
    }

    /// The path that an object in the trash had, with the directories above it as they are now; `None` if one of them
    /// is gone.
    pub(crate) fn path_in_trash(&self, inode: u64) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = inode;
        while let Some(trashed) = self.trashed(at) {
            names.push(&trashed.name[..]);
            at = trashed.directory;
        }
        let mut path = self.path_of(at)?;
        path.extend(joined(names.into_iter().rev()));
        Some(path)
    }

    /// The names in a directory and their objects, in the order of a listing.
    pub(crate) fn names_in(&self, directory: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let entries = match self.get(directory).map(|object| &object.body) {
            Some(Body::Directory { entries, .. }) => Some(entries),
            _ => None,
        };
        let entries = entries.into_iter().flat_map(|entries| entries.values());
        entries.map(|(name, inode)| (&name[..], *inode))
    }

    /// All names below an object: directory, name, object; those of a directory before those below it.
    pub(crate) fn names_below(&self, top: u64) -> Vec<(u64, &[u8], u64)> {
        let mut found = Vec::new();
        let mut rest = vec![top];
        while let Some(directory) = rest.pop() {
            for (name, inode) in self.names_in(directory) {
                found.push((directory, name, inode));
                rest.push(inode);
            }
        }
        found
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    names
        .flat_map(|name| [b"/", name])
        .collect::<Vec<_>>()
        .concat()
}
