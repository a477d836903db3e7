//! The object at a path.

use forebay_meta::Key;
use forebay_meta::record::Kind;
use forebay_types::Inode;

use super::PathError;
use super::reading::Reading;
use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::files::names::NAME_MAX;

/// Longest path, in bytes (PATH_MAX).
const PATH_MAX: usize = 4096;

/// An object with a name.
pub(crate) struct Found {
    pub(crate) inode: Inode,
    pub(crate) kind: Kind,
    /// Whether a name on the way to it is not published.
    pub(crate) is_unpublished: bool,
}

impl Files {
    /// The object at a path from the volume's root. Follows no symbolic link.
    pub(crate) async fn find(&self, path: &[u8]) -> Result<Found, PathError> {
        let mut found = Found {
            inode: Inode::ROOT,
            kind: Kind::Directory,
            is_unpublished: false,
        };
        let mut reading = Reading::new(&self.state);
        let mut so_far = Vec::new();
        for name in names(path)? {
            let shown = || DisplayPath(so_far.clone());
            match found.kind {
                Kind::Directory => {}
                Kind::Symlink => return Err(PathError::Link(shown())),
                _ => return Err(PathError::NotADirectory(shown())),
            }
            so_far.extend([b"/", name].concat());
            let shown = || DisplayPath(so_far.clone());
            let entry = self.name_at(found.inode, name);
            let Some(entry) = reading.read(entry).await else {
                return Err(PathError::Unreadable(shown(), reading.why()));
            };
            let entry = entry.ok_or_else(|| PathError::NotFound(shown()))?;
            let key = Key::Name(found.inode, name.to_vec().into()).encode();
            let is_new = self.state.catalog.overlay().get(&key).is_some();
            found = Found {
                inode: entry.inode,
                kind: entry.kind,
                is_unpublished: found.is_unpublished || is_new,
            };
        }
        Ok(found)
    }

    /// The entry of a name, without a request for it if the bucket cannot have one.
    async fn name_at(
        &self,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<forebay_meta::record::NameRecord>, forebay_meta::StoreError> {
        let may_be_published = || {
            let node = self.state.nodes.glance(directory);
            node.is_none_or(|node| node.lock().published)
        };
        let catalog = &self.state.catalog;
        let entry = catalog.name_if_published(directory, name, may_be_published);
        entry.await
    }
}

/// The names in a path from the volume's root; none for the root.
pub(crate) fn names(path: &[u8]) -> Result<Vec<&[u8]>, PathError> {
    let bad = |why| Err(PathError::Bad(DisplayPath(path.to_vec()), why));
    if path.is_empty() {
        return bad("it is empty; `/` is the root of the volume");
    }
    if path.len() > PATH_MAX {
        return Err(PathError::Bad(
            DisplayPath(path.iter().take(100).copied().collect()),
            "it has more than 4096 bytes",
        ));
    }
    if path.contains(&0) {
        return bad("it has a NUL byte");
    }
    let parts = path.split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = parts
        .filter(|name| !name.is_empty() && *name != b".")
        .collect();
    if names.contains(&b"..".as_slice()) {
        return bad("`..` is not resolved: give the path from the volume's root");
    }
    if names.iter().any(|name| name.len() > NAME_MAX) {
        return bad("a name in it has more than 255 bytes");
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_with_slashes_and_others_are_refused() {
        assert_eq!(names(b"/").unwrap(), [b""; 0]);
        assert_eq!(names(b"//a/./b\n/").unwrap(), [b"a".as_slice(), b"b\n"]);
        let long = [b'a'; 256];
        let deep = b"/a".repeat(2049);
        for path in [b"".as_slice(), b"/a/../b", b"a\0b", &long, &deep] {
            assert!(matches!(names(path), Err(PathError::Bad(..))), "{path:?}");
        }
    }
}
