//! Answers that are truncated and report the shorter length consistently: as if the object were shorter. A single one
//! is requested again; an object that is truncated each time counts as damaged.

#![allow(missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::volume::keys::{self, StoredRing, Unlock};
use forebay_meta::volume::{Protection, VolumeError};
use forebay_meta::{
    Batch, MetaStore, Sealing, SlateSettings, SlateStore, StoreError, VolumeDescriptor,
};
use forebay_seal::key_ring::KEY_RING_NAME;
use forebay_seal::{DataKeyId, DataKeys, KeyFile, RingError, Secret, SystemEntropy};
use forebay_types::{BLOCK_SIZE, VolumeId};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Truncates the next bodies of objects whose names end like this.
#[derive(Debug)]
struct Cutting {
    inner: InMemory,
    ending: &'static str,
    left: AtomicU64,
    cut: AtomicU64,
}

impl Cutting {
    fn new(ending: &'static str) -> Arc<Cutting> {
        Arc::new(Cutting {
            inner: InMemory::new(),
            ending,
            left: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        })
    }

    fn cut(&self, bodies: u64) {
        self.left.store(bodies, Ordering::SeqCst);
        self.cut.store(0, Ordering::SeqCst);
    }

    fn is_cut(&self, location: &Path) -> bool {
        let less = |left: u64| left.checked_sub(1);
        let is_one = location.as_ref().ends_with(self.ending);
        let is_cut = is_one
            && (self.left)
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok();
        self.cut.fetch_add(u64::from(is_cut), Ordering::SeqCst);
        is_cut
    }
}

impl fmt::Display for Cutting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cutting")
    }
}

#[async_trait]
impl ObjectStore for Cutting {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let found = self.inner.get_opts(location, options).await?;
        if is_head || !self.is_cut(location) {
            return Ok(found);
        }
        let (mut meta, mut range) = (found.meta.clone(), found.range.clone());
        let (attributes, extensions) = (found.attributes.clone(), found.extensions.clone());
        let bytes = found.bytes().await?;
        let bytes = bytes.slice(..bytes.len() / 2);
        range.end = range.start + bytes.len() as u64;
        meta.size = range.end;
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
            meta,
            range,
            attributes,
            extensions,
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_descriptor_that_arrives_cut_once_is_asked_for_again() {
    let cutting = Cutting::new("forebay.volume");
    let store: Arc<dyn ObjectStore> = cutting.clone();
    let root = Path::from("volume");
    let descriptor = VolumeDescriptor {
        volume: VolumeId([7; 16]),
        created: 1_700_000_000,
        block_size: BLOCK_SIZE,
        protection: Protection::None { hash_key: [3; 32] },
        origin: None,
    };
    let created = VolumeDescriptor::create(&store, &root, &descriptor);
    created.await.unwrap();
    cutting.cut(1);
    assert_eq!(
        VolumeDescriptor::load(&store, &root).await.unwrap(),
        descriptor
    );
    assert_eq!(cutting.cut.load(Ordering::SeqCst), 1);
    cutting.cut(u64::MAX);
    let damaged = VolumeDescriptor::load(&store, &root).await;
    assert!(
        matches!(damaged, Err(VolumeError::Damaged { .. })),
        "{damaged:?}"
    );
    assert_eq!(cutting.cut.load(Ordering::SeqCst), 2, "not again and again");
}

#[tokio::test]
async fn a_key_ring_that_arrives_cut_once_is_asked_for_again() {
    let cutting = Cutting::new(KEY_RING_NAME);
    let store: Arc<dyn ObjectStore> = cutting.clone();
    let root = Path::from("volume");
    let content = vec![7; KeyFile::MIN_LEN].into();
    let unlock = Arc::new(Unlock::KeyFile(KeyFile::new(content).unwrap()));
    let ring = keys::make(VolumeId([7; 16]), 1, &unlock).await.unwrap();
    keys::create(&store, &root, ring).await.unwrap();
    let whole = StoredRing::load(&store, &root).await.unwrap();
    cutting.cut(1);
    let again = StoredRing::load(&store, &root).await.unwrap();
    assert_eq!(cutting.cut.load(Ordering::SeqCst), 1);
    assert_eq!(again.ring.slots().count(), whole.ring.slots().count());
    cutting.cut(u64::MAX);
    let damaged = StoredRing::load(&store, &root).await.err();
    assert!(
        matches!(
            damaged,
            Some(VolumeError::KeyRing(RingError::Damaged { .. }))
        ),
        "{damaged:?}"
    );
    assert_eq!(cutting.cut.load(Ordering::SeqCst), 2, "not again and again");
}

async fn open(cutting: &Arc<Cutting>, sealing: &Option<Sealing>) -> SlateStore {
    let settings = SlateSettings::default();
    let path = Path::from("volume/meta");
    let opened = SlateStore::open_with(cutting.clone(), path, settings, sealing.clone(), |store| {
        store
    });
    opened.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_arrives_cut_once_is_asked_for_again() {
    table_is_asked_for_again(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_table_that_arrives_cut_once_is_asked_for_again() {
    let current = (DataKeyId(1), Secret::draw(&SystemEntropy));
    let sealing = Sealing {
        keys: Arc::new(DataKeys::new(VolumeId([1; 16]), current, [])),
        entropy: Arc::new(SystemEntropy),
    };
    table_is_asked_for_again(Some(sealing)).await;
}

async fn table_is_asked_for_again(sealing: Option<Sealing>) {
    let cutting = Cutting::new(".sst");
    {
        let store = open(&cutting, &sealing).await;
        let mut batch = Batch::new();
        batch.put_encoded("key".into(), "value".into());
        store.commit(&batch).await.unwrap();
        store.close().await.unwrap();
    }
    let store = open(&cutting, &sealing).await;
    cutting.cut(1);
    let found = store.get(b"key").await.unwrap();
    assert_eq!(found, Some(Bytes::from("value")));
    assert_eq!(cutting.cut.load(Ordering::SeqCst), 1);
    store.close().await.unwrap();

    let store = open(&cutting, &sealing).await;
    cutting.cut(u64::MAX);
    let damaged = store.get(b"key").await;
    assert!(
        matches!(damaged, Err(StoreError::Corrupt(_))),
        "{damaged:?}"
    );
    cutting.cut(0);
    store.close().await.unwrap();
}
