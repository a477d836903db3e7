//! Detaches a clone: copies what lies at its sources.
//!
//! ```text
//!   tables that the newest state and the snapshots of the clone need   \  each one that is not at the clone,
//!   packs of its accounts, and those that its snapshots hold           /  in any order
//!   -> all are there, with their lengths
//!   -> the descriptor without sources, by a conditional PUT: now it is a volume of its own
//!   -> the notes at the sources are removed
//! ```
//!
//! A crash leaves a clone, or a volume of its own; the next run goes on. A note that is left over holds nothing, since the
//! clone's descriptor does not name the source any more. A gateway may serve the clone meanwhile: what it needs of the
//! sources only becomes less.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_environment::META_PREFIX;
use forebay_meta::record::{DeadPack, HeldPack, PackRecord};
use forebay_meta::volume::keys::Expected;
use forebay_meta::volume::notes;
use forebay_meta::volume::origin::Origin;
use forebay_meta::{Key, KeyRange, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::object_name;
use forebay_types::PackId;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutOptions};

use crate::CloneError;
use crate::layers::{Layer, Sources};
use crate::states::{Slate, States};
use crate::volume::Volume;

/// Objects that are copied concurrently.
const AT_ONCE: usize = 4;

/// How much was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Detaches the clone in `store`. `progress` receives the number of objects copied, and of all that are to be copied.
///
/// # Errors
/// When it is no clone, something is missing at a source, or the bucket fails. Then it still is a clone, or is detached and
/// notes are left over, which hold nothing.
pub async fn detach(
    store: &Store,
    expected: &Expected,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Detached, CloneError> {
    detach_in(&Slate, store, expected, progress).await
}

/// Like [`detach`], with metadata that are kept elsewhere.
///
/// # Errors
/// As in [`detach`].
pub async fn detach_in(
    states: &dyn States,
    store: &Store,
    expected: &Expected,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Detached, CloneError> {
    let clone = Volume::open(states, store, expected).await?;
    let sources = Sources::of(store, &clone.descriptor)?;
    let Some(origin) = clone
        .descriptor
        .origin
        .clone()
        .filter(|_| !sources.is_empty())
    else {
        return Err(CloneError::NoClone(store.url.clone()));
    };
    let missing = missing(store, &clone, &sources).await?;
    let all = missing.len();
    progress(0, all);
    let copies = missing
        .iter()
        .map(|(name, size)| copy(store, &sources, name, *size));
    let mut copies = futures_util::stream::iter(copies).buffer_unordered(AT_ONCE);
    let mut copied = Detached::default();
    let mut done = 0;
    while let Some(bytes) = copies.try_next().await? {
        done += 1;
        copied.objects += u64::from(bytes > 0);
        copied.bytes += bytes;
        progress(done, all);
    }
    drop(copies);
    let left = self::missing(store, &clone, &sources).await?;
    if let Some((name, _)) = left.first_key_value() {
        return Err(CloneError::Missing(name.clone()));
    }
    let alone = VolumeDescriptor {
        origin: Some(Origin {
            sources: Vec::new(),
            ..origin.clone()
        }),
        ..clone.descriptor.clone()
    };
    if !clone
        .descriptor
        .replace(&store.store, &store.root, &alone)
        .await?
    {
        return Err(CloneError::Overtaken);
    }
    for source in &origin.sources {
        let place = store.beside(&source.at)?;
        for stored in notes::list(&place.store, &place.root).await? {
            let Ok(note) = stored.note else { continue };
            if note.clone == clone.descriptor.volume {
                note.remove(&place.store, &place.root).await?;
            }
        }
    }
    Ok(copied)
}

/// The objects that the clone needs and does not have: their names, and the lengths of packs.
async fn missing(
    store: &Store,
    clone: &Volume<'_>,
    sources: &Sources,
) -> Result<BTreeMap<String, Option<u64>>, CloneError> {
    let moment = clone.newest().await?;
    let mut needed = BTreeMap::new();
    for (key, record) in moment.all::<PackRecord>(KeyRange::packs()).await? {
        if let Key::Pack(pack) = key {
            needed.insert(pack, record.bytes);
        }
    }
    for (key, record) in moment
        .all::<HeldPack>(KeyRange::held_packs_from(PackId(0)))
        .await?
    {
        if let Key::HeldPack(pack) = key {
            needed.insert(pack, record.life.bytes);
        }
    }
    // A dead pack may yet be held by a snapshot of the clone.
    for (key, record) in moment.all::<DeadPack>(KeyRange::dead_packs()).await? {
        if let (Key::DeadPack(pack), Some(life)) = (key, record.life) {
            needed.insert(pack, life.bytes);
        }
    }
    let is_elsewhere = |pack: PackId| sources.of_pack(pack).is_some();
    let needed = needed.into_iter().filter(|(pack, _)| is_elsewhere(*pack));
    let mut missing: BTreeMap<String, Option<u64>> = needed
        .map(|(pack, bytes)| (object_name(pack), Some(bytes)))
        .collect();
    let tables = clone.states.tables(&clone.place).await?.into_iter();
    missing.extend(tables.map(|table| (format!("{META_PREFIX}/{table}"), None)));
    for folder in [forebay_pack::PACK_PREFIX, META_PREFIX] {
        for (name, size) in list(store, folder).await? {
            let is_whole = |wanted: &Option<u64>| wanted.is_none_or(|wanted| wanted == size);
            if missing.get(&name).is_some_and(is_whole) {
                missing.remove(&name);
            }
        }
    }
    Ok(missing)
}

async fn list(store: &Store, folder: &str) -> Result<BTreeSet<(String, u64)>, Error> {
    let listed: Vec<_> = store
        .store
        .list(Some(&store.path(folder)))
        .try_collect()
        .await?;
    let named = listed.into_iter().filter_map(|object| {
        let name: Path = object.location.prefix_match(&store.root)?.collect();
        Some((name.to_string(), object.size))
    });
    Ok(named.collect())
}

/// Copies an object from the source that has it. Returns its bytes; 0 if no source has it.
async fn copy(
    store: &Store,
    sources: &Sources,
    name: &str,
    size: Option<u64>,
) -> Result<u64, CloneError> {
    for layer in sources.newest_first() {
        let Some(bytes) = read(layer, name).await? else {
            continue;
        };
        let len = bytes.len() as u64;
        if size.is_some_and(|size| size != len) {
            continue;
        }
        let options = match name.starts_with(forebay_pack::PACK_PREFIX) {
            true => store.data_options.clone(),
            false => PutOptions::default(),
        };
        store
            .store
            .put_opts(&store.path(name), bytes.into(), options)
            .await?;
        return Ok(len);
    }
    Ok(0)
}

async fn read(layer: &Layer, name: &str) -> Result<Option<Bytes>, Error> {
    match layer.store.get(&layer.path(name)).await {
        Ok(found) => Ok(Some(found.bytes().await?)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
