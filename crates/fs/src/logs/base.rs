//! The volume as the bucket has it, read without taking it over: names and bytes under what a log
//! has written.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_meta::record::{Content, InodeRecord, NameRecord};
use forebay_meta::volume::VolumeError;
use forebay_meta::{Catalog, Key, KeyRange, Overlay, SlateReader, StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_pack::PackKeys;
use forebay_types::{BlockIndex, BlockKey, ByteRange, Epoch, Inode, VolumeId};

use crate::checkpoint::epoch_of;
use crate::environment::META_PREFIX;
use crate::fetch::PackStore;

/// Entries that are read at a time.
const PAGE: usize = 1024;
/// How long one request for names may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Deeper than any path of a client; a limit against loops.
const DEPTH: usize = 512;

/// Why the bucket's volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The volume itself: not there, damaged, newer than this program.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Its metadata.
    #[error("the volume's metadata cannot be read: {0}; salvage without --store needs none")]
    Metadata(#[from] StoreError),
    /// Bytes of a file.
    #[error("{0}")]
    Bytes(String),
    /// What was read could not be written down.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A volume in its bucket, open for reading only.
pub struct Base {
    volume: VolumeId,
    catalog: Catalog,
    packs: PackStore,
}

impl Base {
    /// Opens the volume that is at `store`. Whoever writes it goes on.
    ///
    /// # Errors
    /// When there is no volume or its metadata cannot be read.
    pub async fn open(store: &Store) -> Result<Base, BaseError> {
        let descriptor = VolumeDescriptor::load(&store.store, &store.root)
            .await
            .map_err(|error| error.at(&store.url))?;
        let path = store.path(META_PREFIX);
        let meta = SlateReader::open(store.store.clone(), path, TIMEOUT).await?;
        let keys = PackKeys::new(descriptor.volume, &descriptor.hash_key);
        Ok(Base {
            volume: descriptor.volume,
            catalog: Catalog::new(Arc::new(Overlay::new()), Arc::new(meta)),
            packs: PackStore::new(
                store.store.clone(),
                store.root.clone(),
                keys,
                4,
                Arc::new(crate::environment::SystemRandomness),
            ),
        })
    }

    /// Which volume it is.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The attributes of an object, if it is still there.
    pub(super) async fn inode(&self, inode: Inode) -> Result<Option<InodeRecord>, BaseError> {
        Ok(self.catalog.inode(inode).await?)
    }

    /// A directory and a name for each object of `wanted` that has one; looks through all names of
    /// the volume.
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

    /// The names from the root down to a directory; `None` if it is not there any more.
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

    /// Gives all bytes of a file that are no holes, with their offsets; says what the highest epoch
    /// is that has written some of them.
    pub(super) async fn copy(
        &self,
        inode: Inode,
        mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<Epoch, BaseError> {
        let (mut from, mut newest) = (BlockIndex(0), Epoch(0));
        loop {
            let maps = self.catalog.block_maps(inode, from, PAGE).await?;
            let full = maps.len() == PAGE;
            for (block, map) in maps {
                from = BlockIndex(block.0 + 1);
                let key = BlockKey { inode, block };
                for extent in map.extents() {
                    newest = newest.max(epoch_of(extent.frame.pack));
                    let bytes = self.bytes(key, extent.range, extent).await?;
                    write(block.start() + extent.range.start, &bytes)?;
                }
            }
            if !full {
                return Ok(newest);
            }
        }
    }

    async fn bytes(
        &self,
        key: BlockKey,
        range: ByteRange,
        extent: &forebay_meta::record::Extent,
    ) -> Result<Vec<u8>, BaseError> {
        let failed = |why: String| {
            BaseError::Bytes(format!(
                "inode {}, bytes from {} on: {why}",
                key.inode,
                key.block.start() + range.start
            ))
        };
        // One at a time, in a program that has no block buffers.
        let frame = self.packs.fetch(key, &extent.frame, |_| None).await;
        let frame = frame.map_err(|error| failed(error.to_string()))?;
        let start = range.start.checked_sub(frame.range.start);
        let bytes = start.and_then(|start| {
            let start = start as usize;
            frame.data.get(start..start + range.len() as usize)
        });
        Ok(bytes
            .ok_or_else(|| failed(format!("pack {} holds less", extent.frame.pack)))?
            .to_vec())
    }
}
