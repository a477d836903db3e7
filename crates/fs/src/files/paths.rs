//! Paths of files, for operators, found by reading names, which are not indexed by the objects they name.

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::NameRecord;
use forebay_meta::{Key, KeyRange, Record};
use forebay_types::Inode;
use forebay_vfs::Result;

use super::Files;
use super::quota::QuotaError;

/// How many names are read at a time.
const NAMES_PER_SCAN: usize = 4096;

impl Files {
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
    async fn directory_path(&self, directory: Inode) -> Result<Option<Vec<u8>>> {
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
