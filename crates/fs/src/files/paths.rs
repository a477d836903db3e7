//! Paths of files, for operators. Names are not indexed by the objects they name, so a path is found by reading names,
//! or with the place where a name of the object was [seen](crate::state::Node::seen) last.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, NameRecord};
use forebay_meta::{Key, KeyRange, Record};
use forebay_types::Inode;
use forebay_vfs::Result;

use super::Files;
use super::quota::QuotaError;
use crate::state::Node;

/// How many names are read at a time.
const NAMES_PER_SCAN: usize = 4096;

/// How many names of a directory are read to find one of its directories that was not seen yet.
const NAMES_TO_LOOK_AT: usize = 1024;

/// The most directories above an object: as many as PATH_MAX (4096 bytes) allows.
const DEPTH: usize = 2048;

impl Files {
    /// A path from the volume's root for an object that clients use; empty for the root. `None` if no name of it was
    /// seen since it came into memory, if the name that was seen last is gone, and while directories are moved. Every
    /// name of the path is read in its directory, so none is wrong; names that are changed at the same time may be of
    /// different moments.
    ///
    /// Reads one entry for each level, from memory as a rule.
    pub(crate) async fn seen_path(&self, inode: Inode) -> Option<Vec<u8>> {
        let moves = self.state.moves.lock().count;
        let mut names = Vec::new();
        // Only what is in memory is in use.
        let mut node = self.state.nodes.peek(inode)?;
        while node.inode != Inode::ROOT {
            if names.len() == DEPTH {
                return None;
            }
            let parent = node
                .lock_live()
                .ok()?
                .record
                .directory()
                .map(|own| own.parent);
            let (parent, name) = match self.seen_name(&node).await {
                Some((directory, name)) if parent.is_none_or(|parent| parent == directory) => {
                    (directory, name)
                }
                _ => {
                    let parent = parent?;
                    (parent, self.directory_name(parent, &node).await?)
                }
            };
            names.push(name);
            node = self.state.node(parent).await.ok()?;
        }
        let path = names.iter().rev().flat_map(|name| [b"/", name.as_ref()]);
        let path = path.collect::<Vec<_>>().concat();
        (self.state.moves.lock().count == moves).then_some(path)
    }

    /// The name under which an object was seen last, and its directory, if it still has that name.
    async fn seen_name(&self, node: &Node) -> Option<(Inode, Bytes)> {
        let (directory, cookie) = node.last_seen()?;
        let key = Key::Cookie(directory, cookie);
        let entry: CookieRecord = self.state.catalog.record(&key).await.ok()??;
        (entry.inode == node.inode).then_some((directory, entry.name))
    }

    /// The name of a directory in its parent, if it is among the first there.
    async fn directory_name(&self, parent: Inode, node: &Node) -> Option<Bytes> {
        let names = self
            .state
            .catalog
            .cookies_after(parent, 0, NAMES_TO_LOOK_AT);
        let names = names.await.ok()?;
        let is_it = |(_, entry): &(u64, CookieRecord)| entry.inode == node.inode;
        let (cookie, entry) = names.into_iter().find(is_it)?;
        node.seen(parent, cookie);
        Some(entry.name)
    }

    /// A path from the volume's root for each of the objects that has one. Reads the names of the volume until all
    /// are found; skips names that cannot be read.
    pub(crate) async fn paths_of(&self, inodes: &[Inode]) -> Result<BTreeMap<Inode, Vec<u8>>> {
        let mut wanted: BTreeSet<Inode> = inodes.iter().copied().collect();
        let mut paths = BTreeMap::new();
        let mut rest = KeyRange::all_names();
        while !wanted.is_empty() {
            let found = self.state.catalog.scan(&rest, NAMES_PER_SCAN).await;
            let found = found.map_err(|error| self.state.store_failed(error))?;
            for (key, value) in &found {
                let (Ok(Key::Name(directory, name)), Ok(record)) =
                    (Key::decode(key), NameRecord::decode(key, value))
                else {
                    continue;
                };
                if !wanted.contains(&record.inode) {
                    continue;
                }
                if let Some(mut path) = self.directory_path(directory).await? {
                    path.push(b'/');
                    path.extend_from_slice(&name);
                    paths.insert(record.inode, path);
                    wanted.remove(&record.inode);
                }
            }
            match found.last() {
                Some((last, _)) if found.len() == NAMES_PER_SCAN => rest = rest.after(last),
                _ => break,
            }
        }
        Ok(paths)
    }

    /// The path of a directory, empty for the root; `None` if it was removed, or is being moved.
    pub(super) async fn directory_path(&self, directory: Inode) -> Result<Option<Vec<u8>>> {
        match self.state.node(directory).await {
            Err(forebay_vfs::Error::Stale) => Ok(None),
            Err(error) => Err(error),
            Ok(node) => match self.path_of(&node).await {
                Ok(path) => Ok(path),
                Err(QuotaError::Volume(error)) => Err(error),
                Err(_) => Ok(None),
            },
        }
    }
}
