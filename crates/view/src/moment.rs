//! One published moment: names, records and bytes, out of the bucket alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_clones::layers;
use forebay_environment::{META_PREFIX, SystemRandomness};
use forebay_meta::record::{
    BlockMap, Content, Extent, FrameAddress, InodeRecord, NameRecord, VolumeState,
};
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{
    Catalog, Key, KeyRange, MetaStore, Overlay, SlateReader, StoreError, VolumeDescriptor,
};
use forebay_object::Store;
use forebay_pack::PackKeys;
use forebay_pack_store::{FetchError, Fetched, PackStore, address_key};
use forebay_seal::DataKeys;
use forebay_types::{
    BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, Epoch, Inode, VolumeId, to_usize,
};

use crate::frames::{FrameKey, KeptFrames};
use crate::published::SnapshotAway;

/// How many entries are read at a time.
pub(crate) const PAGE: usize = 1024;
/// The limit of time for one request for names.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Deeper than any path of a client; a limit against cycles.
const DEPTH: usize = 512;
/// Frames that are fetched at the same time.
const PARALLEL: usize = 4;

/// Frames of a block, by pack and offset.
type Frames = HashMap<FrameKey, Arc<Fetched>>;

/// Why the bucket's volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The volume itself: it does not exist, is damaged, or is newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The metadata cannot be read.
    #[error("the volume's metadata cannot be read: {0}")]
    Metadata(#[from] StoreError),
    /// The bucket does not answer for bytes of a file; it may later.
    #[error("{0}")]
    Unavailable(String),
    /// Bytes of a file are damaged or gone.
    #[error("{0}")]
    Bytes(String),
    /// The bucket does not have the snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotAway),
    /// The bytes could not be written locally.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The keys that data of the volume in `store` are sealed with; `None` for a volume that is not sealed.
///
/// # Errors
/// When there is no volume, or it is not what is expected.
pub async fn data_keys(
    store: &Store,
    expected: &Expected,
) -> Result<Option<Arc<DataKeys>>, ViewError> {
    let at = |error: VolumeError| error.at(&store.url);
    let descriptor = VolumeDescriptor::load(&store.store, &store.root)
        .await
        .map_err(at)?;
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
        .await
        .map_err(at)?;
    Ok(keys.sealing().map(|sealing| sealing.keys))
}

/// A volume as its bucket has it at one moment, open for reading only. A gateway that writes the volume is not affected:
/// the view stays as it is while the volume changes, and keeps no object in the bucket. A pack or table that the gateway
/// deletes, because nothing refers to it any more, makes reads of it fail: open the view again.
pub struct View {
    volume: VolumeId,
    data_keys: Option<Arc<DataKeys>>,
    catalog: Catalog,
    packs: Arc<PackStore>,
    kept: KeptFrames,
}

impl View {
    /// Opens the newest moment of the volume in `store`.
    ///
    /// # Errors
    /// When there is no volume, it is not what is expected, or its metadata cannot be read.
    pub async fn open(store: &Store, expected: &Expected) -> Result<View, ViewError> {
        let at = |error: VolumeError| error.at(&store.url);
        let (descriptor, whole) = layers::load(store).await.map_err(at)?;
        let store = &whole;
        let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
            .await
            .map_err(|error| error.at(&store.url))?;
        let path = store.path(META_PREFIX);
        let meta =
            SlateReader::open_with(store.store.clone(), path, TIMEOUT, keys.sealing()).await?;
        let data_keys = keys.sealing().map(|sealing| sealing.keys);
        let packs = packs(store, descriptor.content(), &keys);
        Ok(View::of(
            descriptor.volume,
            data_keys,
            Arc::new(meta),
            packs,
        ))
    }

    /// A moment whose metadata are open, such as a snapshot of a volume that a gateway serves.
    pub fn of(
        volume: VolumeId,
        data_keys: Option<Arc<DataKeys>>,
        meta: Arc<dyn MetaStore>,
        packs: Arc<PackStore>,
    ) -> View {
        View {
            volume,
            data_keys,
            catalog: Catalog::new(Arc::new(Overlay::new()), meta),
            packs,
            kept: KeptFrames::default(),
        }
    }

    /// The keys that data of the volume are sealed with; `None` for a volume that is not sealed.
    pub fn data_keys(&self) -> Option<Arc<DataKeys>> {
        self.data_keys.clone()
    }

    /// The identity of the volume.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The metadata of the moment.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The state of the volume at this moment.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn state(&self) -> Result<Option<VolumeState>, ViewError> {
        Ok(self.catalog.volume_state().await?)
    }

    /// The record of an object, if it exists at this moment.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn record(&self, inode: Inode) -> Result<Option<InodeRecord>, ViewError> {
        Ok(self.catalog.inode(inode).await?)
    }

    /// A directory and a name for each object of `wanted` that has one; reads all names of the volume.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn places(
        &self,
        wanted: &BTreeSet<Inode>,
    ) -> Result<HashMap<Inode, (Inode, Vec<u8>)>, ViewError> {
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

    /// The names from the root down to a directory; `None` if it does not exist.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn path(&self, directory: Inode) -> Result<Option<Vec<Vec<u8>>>, ViewError> {
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

    async fn name_in(&self, directory: Inode, inode: Inode) -> Result<Option<Vec<u8>>, ViewError> {
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

    /// The valid maps of the blocks of a file with this record from `from` on, `limit` blocks at most, each without bytes
    /// behind the file's end; and the block from which the next ones are read, if there may be any.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn block_maps(
        &self,
        inode: Inode,
        record: &InodeRecord,
        from: BlockIndex,
        limit: usize,
    ) -> Result<(Vec<(BlockIndex, BlockMap)>, Option<BlockIndex>), ViewError> {
        let mut maps = self.catalog.block_maps(inode, from, limit).await?;
        let full = maps.last().filter(|_| maps.len() == limit);
        let next = full.map(|(last, _)| BlockIndex(last.0 + 1));
        maps.retain_mut(|(block, map)| {
            map.truncate(record.size.saturating_sub(block.start()));
            !map.is_empty() && !record.truncated.contains(*block)
        });
        Ok((maps, next))
    }

    /// Yields all bytes of a file that are not holes, with their offsets; returns the highest epoch that has written
    /// some of them.
    ///
    /// # Errors
    /// When metadata or bytes cannot be read, and the errors of `write`.
    pub async fn copy(
        &self,
        inode: Inode,
        mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Epoch, ViewError> {
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
                let frames = self.frames(key, &map, whole_block()).await?;
                for Extent { range, frame } in map.extents() {
                    newest = newest.max(frame.pack.epoch());
                    let bytes = bytes_of(&frames, key, frame, *range)?;
                    write(block.start() + range.start, bytes)?;
                }
            }
            if !full {
                return Ok(newest);
            }
        }
    }

    /// Bytes of a file with this record; holes are zeros. `range` ends at the file's end at the latest.
    ///
    /// # Errors
    /// When metadata or bytes cannot be read.
    pub async fn read_range(
        &self,
        inode: Inode,
        record: &InodeRecord,
        range: ByteRange,
    ) -> Result<Vec<u8>, ViewError> {
        let mut data = vec![0; to_usize(range.len())];
        for (block, part) in BlockIndex::split(range) {
            if record.truncated.contains(block) {
                continue;
            }
            let Some(map) = self.catalog.block_map(inode, block).await? else {
                continue;
            };
            let key = BlockKey { inode, block };
            let frames = self.frames(key, &map, part).await?;
            for Extent {
                range: extent,
                frame,
            } in map.extents()
            {
                let wanted = extent.intersect(part);
                if wanted.is_empty() {
                    continue;
                }
                let bytes = bytes_of(&frames, key, frame, wanted)?;
                let at = to_usize(block.start() + wanted.start - range.start);
                data[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(data)
    }

    /// The frames of a block that hold something of `range`, each once.
    async fn frames(
        &self,
        key: BlockKey,
        map: &BlockMap,
        range: ByteRange,
    ) -> Result<Frames, ViewError> {
        let mut seen = HashSet::new();
        let extents = map.extents().iter();
        let addresses = extents
            .filter(|extent| !extent.range.intersect(range).is_empty())
            .map(|extent| extent.frame);
        let addresses: Vec<FrameAddress> = addresses
            .filter(|address| seen.insert(address_key(address)))
            .collect();
        let mut frames = HashMap::with_capacity(addresses.len());
        let mut missing = Vec::new();
        for address in addresses {
            let name = address_key(&address);
            match self.kept.get(name) {
                Some(frame) => drop(frames.insert(name, frame)),
                None => missing.push(address),
            }
        }
        for waiter in self.packs.join_fetches(key, &missing) {
            // Their memory is not counted: the program has no block buffers.
            for (index, outcome) in waiter.fetch(|_| None).await {
                let address = &missing[index];
                let frame = outcome.map_err(|error| {
                    let why = lost(key, u64::from(address.raw_start), &error.to_string());
                    match error {
                        FetchError::Unavailable(_) => ViewError::Unavailable(why),
                        FetchError::Damaged(_) => ViewError::Bytes(why),
                    }
                })?;
                self.kept.put(address_key(address), &frame);
                frames.insert(address_key(address), frame);
            }
        }
        Ok(frames)
    }
}

/// The packs of a volume, for reading. They have the identity `content`.
pub(crate) fn packs(store: &Store, content: VolumeId, keys: &VolumeKeys) -> Arc<PackStore> {
    Arc::new(PackStore::new(
        store.store.clone(),
        store.root.clone(),
        PackKeys::of(content, keys.secret(), keys.sealing()),
        PARALLEL,
        1,
        Arc::new(SystemRandomness),
    ))
}

/// The bytes of `range` of a block, from the frame of its map that has them.
fn bytes_of<'a>(
    frames: &'a Frames,
    key: BlockKey,
    frame: &FrameAddress,
    range: ByteRange,
) -> Result<&'a [u8], ViewError> {
    let found = frames.get(&address_key(frame));
    let bytes = found.and_then(|found| found.part(frame, range));
    bytes.ok_or_else(|| {
        let why = format!("pack {} holds less", frame.pack);
        ViewError::Bytes(lost(key, range.start, &why))
    })
}

/// Every byte of a block, counted within it.
fn whole_block() -> ByteRange {
    ByteRange::new(0, BLOCK_SIZE)
}

fn lost(key: BlockKey, from: u64, why: &str) -> String {
    let from = key.block.start() + from;
    format!("inode {}, bytes from {from} on: {why}", key.inode)
}
