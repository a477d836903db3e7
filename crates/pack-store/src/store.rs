//! The packs of a volume in the bucket: put, check, read, list and delete them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_environment::Randomness;
use forebay_meta::FrameAddress;
use forebay_metrics::{Samples, Source, Value, table};
use forebay_object::{Fault, UnansweredTry};
use forebay_pack::header::FRAME_HEADER_LEN;
use forebay_pack::{
    Frame, FrameRef, PACK_PREFIX, PackKeys, object_name, open_frame, parse_object_name,
};
use forebay_types::{BlockKey, PackId, to_usize};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::disk_tier::{DiskCache, FrameKey};
use crate::fetched::FetchError;
use crate::places::Places;
use crate::runs::{Fetching, Stored};
use crate::tier::Tier;
use crate::window::Windows;

/// How often a frame that arrives damaged is fetched: bytes may be damaged on the way, but hardly this often. If the
/// bucket does not answer, the store itself repeats the request, as far as that makes sense; then the client is asked
/// to try again, because a call that waits for the bucket forever would block other calls of its connection.
pub(crate) const ATTEMPTS: u32 = 4;

/// Fetches that are reserved for waiting readers, and not available for reading ahead.
const READERS_OWN: usize = 4;

/// How many steps may wait to be fetched ahead of readers, of all files together: four windows of the largest size
/// and 20 streams that begin.
const MAX_WAITING: usize = 1024;

/// For how many streams block maps are looked up ahead at the same time.
const MAX_LOOK_UPS: usize = 2;

/// The packs of a volume in the bucket.
pub struct PackStore {
    pub(crate) store: Arc<dyn ObjectStore>,
    root: Path,
    pub(crate) keys: PackKeys,
    pub(crate) fetching: Mutex<Fetching>,
    pub(crate) windows: Windows,
    pub(crate) fetches: Places,
    pub(crate) puts: Places,
    /// Options for putting packs: storage class and tags.
    put_options: PutOptions,
    prefetches: Semaphore,
    /// Permits to wait for a turn to fetch ahead.
    waiting: Arc<Semaphore>,
    /// Permits to look block maps up ahead.
    look_ups: Arc<Semaphore>,
    pub(crate) random: Arc<dyn Randomness>,
    /// Tiers that are asked for frames before the bucket, the fastest first.
    pub(crate) tiers: Vec<Arc<dyn Tier>>,
    /// The tier on the local disk.
    disk: Option<Arc<DiskCache>>,
}

impl PackStore {
    /// At most `parallel` frames are fetched at the same time ahead of readers, and some more for readers that wait;
    /// at most `uploads` packs are in flight to the bucket.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        root: Path,
        keys: PackKeys,
        parallel: usize,
        uploads: usize,
        random: Arc<dyn Randomness>,
    ) -> PackStore {
        PackStore {
            store,
            root,
            keys,
            fetching: Mutex::default(),
            windows: Windows::default(),
            fetches: Places::new(parallel.max(1) + READERS_OWN),
            puts: Places::new(uploads.max(1)),
            put_options: PutOptions::default(),
            prefetches: Semaphore::new(parallel.max(1)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            look_ups: Arc::new(Semaphore::new(MAX_LOOK_UPS)),
            random,
            tiers: Vec::new(),
            disk: None,
        }
    }

    /// Adds a disk cache, which is asked for frames before they are fetched, and keeps them after that.
    pub fn with_disk_cache(self, disk: Option<DiskCache>) -> PackStore {
        let disk = disk.map(Arc::new);
        let mut tiers = self.tiers;
        tiers.extend(disk.clone().map(|disk| disk as Arc<dyn Tier>));
        PackStore {
            tiers,
            disk,
            ..self
        }
    }

    /// The tier on the local disk; `None` if there is none.
    pub fn disk(&self) -> Option<&DiskCache> {
        self.disk.as_deref()
    }

    /// Whether the frame at `address` is on the local disk.
    pub fn is_on_disk(&self, address: &FrameAddress) -> bool {
        let key = FrameKey {
            pack: address.pack,
            offset: address.offset,
        };
        self.disk.as_ref().is_some_and(|disk| disk.has(key))
    }

    /// Sets the options for putting packs.
    pub fn with_put_options(self, put_options: PutOptions) -> PackStore {
        PackStore {
            put_options,
            ..self
        }
    }

    /// The keys with which packs are verified and opened.
    pub fn keys(&self) -> &PackKeys {
        &self.keys
    }

    /// The memory of the frame at `address` while it is fetched.
    pub fn memory_of(&self, address: &FrameAddress) -> u64 {
        self.memory(address.stored_len, address.raw_len)
    }

    pub(crate) fn memory_of_frame(&self, frame: &FrameRef) -> u64 {
        self.memory(frame.stored_len, frame.raw_len)
    }

    /// The stored bytes, and the opened ones if the frame is compressed, or if it is sealed: the stored bytes are
    /// shared with other readers, so it is opened in a copy.
    fn memory(&self, stored_len: u32, raw_len: u32) -> u64 {
        let (stored, raw) = (u64::from(stored_len), u64::from(raw_len));
        let is_compressed = stored < raw + FRAME_HEADER_LEN as u64;
        match is_compressed || self.keys.is_sealed() {
            true => stored + raw,
            false => stored,
        }
    }

    pub(crate) fn location(&self, pack: PackId) -> Path {
        object_name(pack)
            .split('/')
            .fold(self.root.clone(), |path, part| path.join(part))
    }

    /// A slot among the prefetches that wait for their permit; `None` while too many wait.
    pub fn prefetch_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.waiting.clone().try_acquire_owned().ok()
    }

    /// A permit to look block maps up ahead; `None` while there are enough.
    pub fn look_up_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.look_ups.clone().try_acquire_owned().ok()
    }

    /// Waits for the permit to fetch ahead.
    pub async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.prefetches.acquire().await.ok()
    }

    /// Puts a pack into the bucket, when it is its turn. Returns whether an attempt that was never answered may put
    /// it there again later; an attempt that ends with an error may do so too.
    pub async fn put(&self, pack: PackId, bytes: Bytes) -> object_store::Result<bool> {
        let _place = self.puts.take().await;
        let payload = PutPayload::from_bytes(bytes);
        let put = self
            .store
            .put_opts(&self.location(pack), payload, self.put_options.clone())
            .await?;
        Ok(put.extensions.get::<UnansweredTry>().is_some())
    }

    /// Whether a pack is in the bucket.
    pub async fn has(&self, pack: PackId) -> object_store::Result<bool> {
        match self.store.head(&self.location(pack)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Bytes of a pack in the bucket, not verified.
    pub async fn bytes(&self, pack: PackId, range: Range<u64>) -> Result<Bytes, FetchError> {
        self.part_of_object(&self.location(pack), range).await
    }

    /// Bytes of the pack at `location`, fewer than requested if it ends before.
    pub(crate) async fn part_of_object(
        &self,
        location: &Path,
        range: Range<u64>,
    ) -> Result<Bytes, FetchError> {
        let mut got = self.store.get_range(location, range.clone()).await;
        if matches!(&got, Err(error) if Fault::of(error) == Fault::OutOfRange) {
            // The answer may have been cut.
            got = self.store.get_range(location, range).await;
        }
        got.map_err(|error| match Fault::of(&error) {
            Fault::NotFound => FetchError::Damaged(format!("pack {location} is gone: {error}")),
            // If treated as an unreachable store, it would be waited for forever.
            Fault::OutOfRange => FetchError::Damaged(format!("pack {location} was cut: {error}")),
            _ => FetchError::Unavailable(error.to_string()),
        })
    }

    /// Opens the frame at `address`, given bytes of its pack that begin at `start`.
    pub fn open(
        &self,
        block: BlockKey,
        address: &FrameAddress,
        start: u64,
        bytes: &Bytes,
    ) -> Result<Frame, FetchError> {
        let from = to_usize(u64::from(address.offset).saturating_sub(start));
        let end = bytes
            .len()
            .min(from.saturating_add(address.stored_len as usize));
        let stored = bytes.slice(end.min(from)..end);
        let frame = Stored::new(block, address);
        open_frame(stored, &frame.reference, frame.block, &self.keys).map_err(|error| {
            let why = format!("{}: {error}", self.location(address.pack));
            match error.is_worth_another_fetch() {
                true => FetchError::Unavailable(why),
                false => FetchError::Damaged(why),
            }
        })
    }

    /// Every pack in the bucket, in no particular order.
    pub fn list(&self) -> BoxStream<'_, object_store::Result<(PackId, ObjectMeta)>> {
        let objects = self.store.list(Some(&self.root.clone().join(PACK_PREFIX)));
        let packs = objects.filter_map(|object| async {
            let object = match object {
                Ok(object) => object,
                Err(error) => return Some(Err(error)),
            };
            let parts = object.location.prefix_match(&self.root)?;
            let name: Path = parts.collect();
            Some(Ok((parse_object_name(name.as_ref())?, object)))
        });
        packs.boxed()
    }

    /// Deletes a pack; succeeds if there is none.
    pub async fn delete(&self, pack: PackId) -> object_store::Result<()> {
        match self.store.delete(&self.location(pack)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            result => result,
        }
    }
}

impl Source for PackStore {
    fn collect(&self, samples: &mut Samples) {
        let prefetches = MAX_WAITING.saturating_sub(self.waiting.available_permits());
        for (queue, length) in [
            ("uploads", self.puts.waiting()),
            ("fetches", self.fetches.waiting()),
            ("prefetches", prefetches as u64),
        ] {
            let length = Value::Gauge(length as f64);
            samples.add(&table::QUEUE, [queue.into()], length);
        }
        if let Some(disk) = &self.disk {
            disk.collect(samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_pack::{Compression, PackWriter};
    use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, VolumeId};

    use super::*;
    use forebay_environment::SystemRandomness;

    use crate::disk_tier::MIN_DISK_CACHE;

    /// The cached bytes need not be those of the frame.
    #[tokio::test]
    async fn another_frame_under_its_name_in_the_disk_cache_is_never_served_and_replaced() {
        let keys = PackKeys::new(VolumeId([1; 16]), &[2; 32]);
        let pack = PackId(7);
        let block = BlockKey {
            inode: Inode(9),
            block: BlockIndex(0),
        };
        let mut writer = PackWriter::new(pack, &keys, Compression::Off);
        for (start, byte) in [(0, 1), (4096, 2)] {
            let range = ByteRange::at(start, 4096);
            writer.push(block, range, std::iter::once(&[byte; 4096][..]));
        }
        let finished = writer.finish();
        let frame = finished.frames[1].frame;
        let other = finished.frames[0].frame.stored_range();

        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(folder.path(), MIN_DISK_CACHE, Arc::new(SystemRandomness))
            .await
            .unwrap();
        let key = FrameKey {
            pack,
            offset: frame.offset,
        };
        let range = other.start as usize..other.end as usize;
        disk.put(key, finished.bytes.slice(range));
        disk.close().await;
        let disk = DiskCache::open(folder.path(), MIN_DISK_CACHE, Arc::new(SystemRandomness))
            .await
            .unwrap();
        assert!(disk.get(key).await.is_some());

        let store = Arc::new(object_store::memory::InMemory::new());
        let packs = PackStore::new(
            store,
            Path::default(),
            keys,
            2,
            2,
            Arc::new(SystemRandomness),
        )
        .with_disk_cache(Some(disk));
        packs.put(pack, finished.bytes).await.unwrap();
        let address = FrameAddress {
            pack,
            offset: frame.offset,
            stored_len: frame.stored_len,
            raw_start: frame.start,
            raw_len: frame.raw_len,
            crc32: frame.crc32,
            origin: None,
        };
        let waiters = packs.join_fetches(block, &[address]);
        let outcomes = waiters[0].fetch(|_| None).await;
        assert_eq!(outcomes[0].1.as_ref().unwrap().data, [2; 4096][..]);
        drop(waiters);
        let disk = packs.disk().unwrap();
        assert_eq!((disk.status().damaged, disk.status().hits), (1, 0));
    }
}
