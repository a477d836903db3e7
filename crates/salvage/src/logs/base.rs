//! The volume in the bucket, read without a takeover: names and bytes below the writes of a log.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_environment::META_PREFIX;
use forebay_meta::record::{BlockMap, Content, Extent, FrameAddress, InodeRecord, NameRecord};
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{Catalog, Key, KeyRange, Overlay, SlateReader, StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::PackKeys;
use forebay_pack_store::{Fetched, PackStore, address_key};
use forebay_seal::DataKeys;
use forebay_types::{BlockIndex, BlockKey, Epoch, Inode, PackId, VolumeId};

/// How many entries are read at a time.
const PAGE: usize = 1024;
/// The limit of time for one request for names.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Deeper than any path of a client; a limit against cycles.
const DEPTH: usize = 512;

/// Why the bucket's volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The volume itself: it does not exist, is damaged, or is newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The metadata cannot be read.
    #[error("the volume's metadata cannot be read: {0}; salvage without --store needs none")]
    Metadata(#[from] StoreError),
    /// Bytes of a file cannot be read.
    #[error("{0}")]
    Bytes(String),
    /// The bytes could not be written locally.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The keys of sealed logs of the volume in `store`; `None` for a volume that is not sealed.
///
/// # Errors
/// When there is no volume, or it is not what is expected.
pub async fn log_keys(
    store: &Store,
    expected: &Expected,
) -> Result<Option<Arc<DataKeys>>, BaseError> {
    let at = |error: VolumeError| error.at(&store.url);
    let descriptor = VolumeDescriptor::load(&store.store, &store.root)
        .await
        .map_err(at)?;
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
        .await
        .map_err(at)?;
    Ok(keys.sealing().map(|sealing| sealing.keys))
}

/// A volume in its bucket, open for reading only.
pub struct Base {
    volume: VolumeId,
    log_keys: Option<Arc<DataKeys>>,
    catalog: Catalog,
    packs: PackStore,
}

impl Base {
    /// Opens the volume in `store`. A gateway that writes it is not affected.
    ///
    /// # Errors
    /// When there is no volume, it is not what is expected, or its metadata cannot be read.
    pub async fn open(store: &Store, expected: &Expected) -> Result<Base, BaseError> {
        let descriptor = VolumeDescriptor::load(&store.store, &store.root)
            .await
            .map_err(|error| error.at(&store.url))?;
        let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
            .await
            .map_err(|error| error.at(&store.url))?;
        let path = store.path(META_PREFIX);
        let meta =
            SlateReader::open_with(store.store.clone(), path, TIMEOUT, keys.sealing()).await?;
        let log_keys = keys.sealing().map(|sealing| sealing.keys);
        let keys = PackKeys::of(descriptor.volume, keys.secret(), keys.sealing());
        Ok(Base {
            volume: descriptor.volume,
            log_keys,
            catalog: Catalog::new(Arc::new(Overlay::new()), Arc::new(meta)),
            packs: PackStore::new(
                store.store.clone(),
                store.root.clone(),
                keys,
                4,
                1,
                Arc::new(forebay_environment::SystemRandomness),
            ),
        })
    }

    /// The keys of sealed logs of the volume; `None` for a volume that is not sealed.
    pub fn log_keys(&self) -> Option<Arc<DataKeys>> {
        self.log_keys.clone()
    }

    /// The identity of the volume.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The attributes of an object, if it still exists.
    pub(super) async fn inode(&self, inode: Inode) -> Result<Option<InodeRecord>, BaseError> {
        Ok(self.catalog.inode(inode).await?)
    }

    /// A directory and a name for each object of `wanted` that has one; reads all names of the volume.
    pub(super) async fn places(
        &self,
        wanted: &BTreeSet<Inode>,
    ) -> Result<HashMap<Inode, (Inode, Vec<u8>)>, BaseError> {
        let (mut places, mut range) = (HashMap::new(), KeyRange::all_names());
        while places.len() < wanted.len() {
            let found = self.catalog.records::<NameRecord>(&range, PAGE).await?;
            let full = found.len() == PAGE;
            if let Some((last, _)) = found.last() {
                range = range.after(&last.encode());
            }
            for (key, record) in found {
                if let Key::Name(directory, name) = key
                    && wanted.contains(&record.inode)
                {
                    places
                        .entry(record.inode)
                        .or_insert_with(|| (directory, name.to_vec()));
                }
            }
            if !full {
                break;
            }
        }
        Ok(places)
    }

    /// The names from the root down to a directory; `None` if it does not exist any more.
    pub(super) async fn path(&self, directory: Inode) -> Result<Option<Vec<Vec<u8>>>, BaseError> {
        let (mut at, mut names) = (directory, Vec::new());
        while at != Inode::ROOT {
            let record = self.catalog.inode(at).await?;
            let Some(Content::Directory(content)) = record.map(|record| record.content) else {
                return Ok(None);
            };
            let Some(name) = self.name_in(content.parent, at).await? else {
                return Ok(None);
            };
            names.push(name);
            at = content.parent;
            if names.len() > DEPTH {
                return Ok(None);
            }
        }
        names.reverse();
        Ok(Some(names))
    }

    async fn name_in(&self, directory: Inode, inode: Inode) -> Result<Option<Vec<u8>>, BaseError> {
        let mut range = KeyRange::names(directory);
        loop {
            let found = self.catalog.records::<NameRecord>(&range, PAGE).await?;
            let full = found.len() == PAGE;
            if let Some((last, _)) = found.last() {
                range = range.after(&last.encode());
            }
            let wanted = found.into_iter().find(|(_, record)| record.inode == inode);
            match wanted {
                Some((Key::Name(_, name), _)) => return Ok(Some(name.to_vec())),
                _ if full => {}
                _ => return Ok(None),
            }
        }
    }

    /// Yields all bytes of a file that are not holes, with their offsets; returns the highest epoch that has written
    /// some of them.
    pub(super) async fn copy(
        &self,
        inode: Inode,
        mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Epoch, BaseError> {
        let (mut from, mut newest) = (BlockIndex(0), Epoch(0));
        let record = self.catalog.inode(inode).await?;
        let truncated = record.map(|record| record.truncated).unwrap_or_default();
        loop {
            let maps = self.catalog.block_maps(inode, from, PAGE).await?;
            let full = maps.len() == PAGE;
            for (block, map) in maps {
                from = BlockIndex(block.0 + 1);
                if truncated.contains(block) {
                    continue;
                }
                let key = BlockKey { inode, block };
                let frames = self.frames(key, &map).await?;
                for Extent { range, frame } in map.extents() {
                    newest = newest.max(frame.pack.epoch());
                    let found = frames.get(&address_key(frame));
                    let bytes = found.and_then(|found| found.part(frame, *range));
                    let bytes = bytes.ok_or_else(|| {
                        let why = format!("pack {} holds less", frame.pack);
                        BaseError::Bytes(lost(key, range.start, &why))
                    })?;
                    write(block.start() + range.start, bytes)?;
                }
            }
            if !full {
                return Ok(newest);
            }
        }
    }

    /// The frames of a block, each once.
    async fn frames(
        &self,
        key: BlockKey,
        map: &BlockMap,
    ) -> Result<HashMap<(PackId, u32), Arc<Fetched>>, BaseError> {
        let mut seen = HashSet::new();
        let addresses = map.extents().iter().map(|extent| extent.frame);
        let addresses: Vec<FrameAddress> = addresses
            .filter(|address| seen.insert(address_key(address)))
            .collect();
        let mut frames = HashMap::with_capacity(addresses.len());
        for share in self.packs.share(key, &addresses) {
            // Their memory is not counted: the program has no block buffers.
            for (index, outcome) in share.fetch(|_| None).await {
                let address = &addresses[index];
                let frame = outcome.map_err(|error| {
                    let from = u64::from(address.raw_start);
                    BaseError::Bytes(lost(key, from, &error.to_string()))
                })?;
                frames.insert(address_key(address), frame);
            }
        }
        Ok(frames)
    }
}

fn lost(key: BlockKey, from: u64, why: &str) -> String {
    let from = key.block.start() + from;
    format!("inode {}, bytes from {from} on: {why}", key.inode)
}
