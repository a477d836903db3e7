//! Finds the paths of the objects that findings are about.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{NameRecord, Record};
use forebay_meta::{InodeRecord, Key, KeyRange, StoreError};
use forebay_types::Inode;

use crate::finding::Nobody;
use crate::source::{Cursor, Source};

/// Most objects whose paths are looked up.
const OBJECTS: usize = 10_000;
/// Deeper than any path of a client; a limit against loops.
const DEPTH: usize = 512;

/// Position of an object: its directory and its name there.
type NamePosition = (Inode, Bytes);

/// Returns a path for each of these objects that has one, with every character escaped that is not plain.
pub(crate) async fn find(
    source: &Arc<dyn Source>,
    wanted: &BTreeSet<Inode>,
) -> Result<HashMap<Inode, String>, StoreError> {
    let mut places: HashMap<Inode, NamePosition> = HashMap::new();
    let mut others = BTreeSet::new();
    for inode in wanted.iter().take(OBJECTS) {
        if parent_of(source, *inode).await?.is_none() {
            others.insert(*inode);
        }
    }
    if !others.is_empty() {
        places_of(source, KeyRange::all_names(), &others, &mut places).await?;
    }
    let mut paths = HashMap::new();
    for inode in wanted.iter().take(OBJECTS) {
        if let Some(path) = path_of(source, *inode, &mut places).await? {
            paths.insert(*inode, path);
        }
    }
    Ok(paths)
}

async fn path_of(
    source: &Arc<dyn Source>,
    inode: Inode,
    places: &mut HashMap<Inode, NamePosition>,
) -> Result<Option<String>, StoreError> {
    let (mut at, mut names) = (inode, Vec::new());
    while at != Inode::ROOT {
        if names.len() == DEPTH {
            return Ok(None);
        }
        if !places.contains_key(&at) {
            let Some(parent) = parent_of(source, at).await? else {
                return Ok(None);
            };
            places_of(source, KeyRange::names(parent), &[at].into(), places).await?;
        }
        let Some((directory, name)) = places.get(&at) else {
            return Ok(None);
        };
        names.push(name.escape_ascii().to_string());
        at = *directory;
    }
    names.reverse();
    Ok(Some(format!("/{}", names.join("/"))))
}

/// The parent that a directory's record names.
async fn parent_of(source: &Arc<dyn Source>, inode: Inode) -> Result<Option<Inode>, StoreError> {
    let key = Key::Inode(inode).encode();
    let value = source.get(&key).await?;
    let record = value.and_then(|value| InodeRecord::decode(&key, &value).ok());
    Ok(record.and_then(|record| record.directory().map(|own| own.parent)))
}

/// Reads names until each of `wanted` has one.
async fn places_of(
    source: &Arc<dyn Source>,
    range: KeyRange,
    wanted: &BTreeSet<Inode>,
    places: &mut HashMap<Inode, NamePosition>,
) -> Result<(), StoreError> {
    let mut names = Cursor::new(source, range);
    let mut missing = wanted.len();
    while missing > 0 {
        let Some((key, record)) = names.record::<NameRecord>(&mut Nobody).await? else {
            break;
        };
        if let (Key::Name(directory, name), Some(record)) = (key, record)
            && wanted.contains(&record.inode)
            && !places.contains_key(&record.inode)
        {
            places.insert(record.inode, (directory, name));
            missing -= 1;
        }
    }
    Ok(())
}
