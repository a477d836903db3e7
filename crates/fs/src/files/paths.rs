//! What a file is called: asked by operators, and answered by reading names, which are not indexed by what they are of.

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::NameRecord;
use forebay_meta::{Key, KeyRange, Record};
use forebay_types::Inode;
use forebay_vfs::Result;

use super::Files;
use super::quota::QuotaError;

/// Names that are read at a time.
const NAMES_PER_SCAN: usize = 4096;

impl Files {
    /// A path for each of the objects, from the volume's root, as far as they have one. Reads the names of the volume
    /// until all are found; names that cannot be read are passed over.
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

    /// The path of a directory, empty for the root; none if it is gone, or moves at this moment.
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
