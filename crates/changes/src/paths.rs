//! Paths of directories in one moment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{InodeRecord, Kind, NameRecord, Record};
use forebay_meta::{Key, KeyRange, MetaStore, StoreError};
use forebay_types::Inode;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::pair::{Pages, SMALL_PAGE};

/// Directories whose names are remembered. More are forgotten before the next ones are looked up.
const REMEMBERED: usize = 131_072;
/// Deeper than any path of a client; a limit against cycles.
const DEPTH: usize = 4096;
/// Lookups that wait at the same time.
const PARALLEL: usize = 16;

/// A name: its directory, and its bytes there.
pub(crate) type Place = (Inode, Bytes);

/// The directories of one moment whose places are known.
pub(crate) struct Paths {
    store: Arc<dyn MetaStore>,
    known: HashMap<Inode, Place>,
}

impl Paths {
    pub(crate) fn new(store: Arc<dyn MetaStore>) -> Paths {
        Paths {
            store,
            known: HashMap::new(),
        }
    }

    /// Looks up everything that the paths of these directories need.
    pub(crate) async fn learn(&mut self, directories: BTreeSet<Inode>) -> Result<(), StoreError> {
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let mut wanted = directories;
        for _ in 0..DEPTH {
            wanted.retain(|inode| *inode != Inode::ROOT && !self.known.contains_key(inode));
            if wanted.is_empty() {
                return Ok(());
            }
            let parents = wanted.iter().map(|inode| parent(&self.store, *inode));
            let parents: Vec<_> = stream::iter(parents)
                .buffered(PARALLEL)
                .try_collect()
                .await?;
            let mut children: BTreeMap<Inode, BTreeSet<Inode>> = BTreeMap::new();
            for (inode, parent) in wanted.into_iter().zip(parents) {
                children.entry(parent).or_default().insert(inode);
            }
            wanted = children.keys().copied().collect();
            let found = children.into_iter();
            let found = found.map(|(parent, wanted)| names(&self.store, parent, wanted));
            let found: Vec<Vec<_>> = stream::iter(found).buffered(PARALLEL).try_collect().await?;
            self.known.extend(found.into_iter().flatten());
        }
        Err(unreachable())
    }

    /// The path of a name whose directory was learned.
    pub(crate) fn path(&self, place: &Place) -> Result<Vec<u8>, StoreError> {
        let (mut directory, name) = (place.0, &place.1);
        let mut names = vec![name];
        while directory != Inode::ROOT {
            let (parent, name) = self.known.get(&directory).ok_or_else(unreachable)?;
            names.push(name);
            directory = *parent;
            if names.len() > DEPTH {
                return Err(unreachable());
            }
        }
        let bytes = names.iter().map(|name| name.len() + 1).sum();
        let mut path = Vec::with_capacity(bytes);
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend(name);
        }
        Ok(path)
    }

    /// The place of a directory; `None` for the root.
    pub(crate) async fn place(&mut self, directory: Inode) -> Result<Option<Place>, StoreError> {
        self.learn(BTreeSet::from([directory])).await?;
        Ok(self.known.get(&directory).cloned())
    }
}

fn unreachable() -> StoreError {
    StoreError::Corrupt("a directory of the volume has no path; run `forebay fsck`".into())
}

/// The directory that has this one.
async fn parent(store: &Arc<dyn MetaStore>, directory: Inode) -> Result<Inode, StoreError> {
    let key = Key::Inode(directory).encode();
    let value = store.get(&key).await?.ok_or_else(unreachable)?;
    let record = InodeRecord::decode(&key, &value)?;
    let own = record.directory().ok_or_else(unreachable)?;
    Ok(own.parent)
}

/// The places of directories in `parent`.
async fn names(
    store: &Arc<dyn MetaStore>,
    parent: Inode,
    mut wanted: BTreeSet<Inode>,
) -> Result<Vec<(Inode, Place)>, StoreError> {
    let mut found = Vec::with_capacity(wanted.len());
    let mut pages = Pages::growing(store, &KeyRange::names(parent), SMALL_PAGE);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Err(unreachable());
        }
        for (key, value) in page {
            let record = NameRecord::decode(&key, &value)?;
            if record.kind != Kind::Directory || !wanted.remove(&record.inode) {
                continue;
            }
            if let Key::Name(_, name) = Key::decode(&key)? {
                found.push((record.inode, (parent, name)));
            }
        }
        if wanted.is_empty() {
            return Ok(found);
        }
    }
}
