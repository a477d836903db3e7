//! An opening for writing that follows a look at the state: what it asks the bucket for, and that it fences as ever.

#![allow(missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_meta::{Batch, MetaStore, Seen, SlateReader, SlateSettings, SlateStore, StoreError};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// Notes the requests.
#[derive(Debug, Default)]
struct Noting {
    inner: InMemory,
    requests: Mutex<Vec<String>>,
}

impl Noting {
    fn note(&self, what: &str, location: &str) {
        self.requests.lock().push(format!("{what} {location}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock())
    }
}

impl fmt::Display for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Noting")
    }
}

#[async_trait]
impl ObjectStore for Noting {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.note("PUT", location.as_ref());
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.note("PUT", location.as_ref());
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.note("GET", location.as_ref());
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.note("LIST", prefix.map_or("", |prefix| prefix.as_ref()));
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.note("LIST", prefix.map_or("", |prefix| prefix.as_ref()));
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

const KEY: &[u8] = b"latest";

fn batch(value: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put_encoded(KEY.to_vec().into(), value.to_owned().into());
    batch
}

async fn open(bucket: &Arc<Noting>, seen: Option<Seen>) -> Result<SlateStore, StoreError> {
    let settings = SlateSettings::default();
    let path = Path::from("meta");
    SlateStore::open_after(bucket.clone(), path, settings, None, |store| store, seen).await
}

/// Looks at the state, as a gateway does before it opens the store.
async fn look(bucket: &Arc<Noting>) -> (String, Seen) {
    let (path, timeout) = (Path::from("meta"), Duration::from_secs(10));
    let found = SlateReader::find_first(bucket.clone(), path, timeout, None).await;
    let (reader, seen) = found.unwrap().unwrap();
    let value = latest(&reader).await;
    reader.close().await.unwrap();
    (value, seen)
}

async fn latest(store: &dyn MetaStore) -> String {
    let value = store.get(KEY).await.unwrap().unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

async fn volume() -> Arc<Noting> {
    let bucket = Arc::new(Noting::default());
    let store = open(&bucket, None).await.unwrap();
    store.commit(&batch("first")).await.unwrap();
    store.close().await.unwrap();
    bucket
}

#[tokio::test]
async fn what_was_looked_at_is_not_asked_for_again() {
    let bucket = volume().await;
    let (value, seen) = look(&bucket).await;
    assert_eq!(value, "first");
    bucket.take();
    let store = open(&bucket, Some(seen)).await.unwrap();
    assert_eq!(latest(&store).await, "first");
    let requests = bucket.take();
    // The fence, and then the look whether it is the newest.
    assert_eq!(requests.len(), 3, "{requests:#?}");
    assert!(
        requests[0].starts_with("PUT meta/manifest/"),
        "{requests:#?}"
    );
    assert!(requests[1..].iter().all(|one| one.starts_with("GET")));
    store.commit(&batch("second")).await.unwrap();
    assert_eq!(latest(&store).await, "second");
    store.close().await.unwrap();
    assert_eq!(look(&bucket).await.0, "second");
}

/// The collector leaves the number up to which manifests may have been deleted; from then on SlateDB asks whether it has
/// changed since it was read.
#[tokio::test]
async fn a_boundary_of_the_collector_is_read_once_and_checked_after_the_fence() {
    let bucket = volume().await;
    let mut bytes = b"1".to_vec();
    let mut crc = crc32fast::Hasher::new();
    crc.update(b"manifest.boundary");
    crc.update(&bytes);
    bytes.extend(b"FBc2");
    bytes.extend(crc.finalize().to_le_bytes());
    let boundary = Path::from("meta/gc/manifest.boundary");
    let options = PutOptions::default();
    bucket
        .put_opts(&boundary, bytes.into(), options)
        .await
        .unwrap();
    for round in 0..3 {
        let (_, seen) = look(&bucket).await;
        bucket.take();
        let store = open(&bucket, Some(seen)).await.unwrap();
        let requests = bucket.take();
        let fence = requests.iter().position(|one| one.starts_with("PUT"));
        let check = requests.iter().position(|one| one.ends_with(".boundary"));
        assert_eq!((fence, check), (Some(0), Some(1)), "{requests:#?}");
        assert_eq!(requests.len(), 3, "{requests:#?}");
        store.commit(&batch(&round.to_string())).await.unwrap();
        assert_eq!(latest(&store).await, round.to_string());
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn no_log_of_slatedb_is_looked_for_or_written() {
    let bucket = volume().await;
    let store = open(&bucket, None).await.unwrap();
    store.close().await.unwrap();
    let requests = bucket.take();
    assert!(requests.len() > 3);
    assert!(
        !requests.iter().any(|one| one.contains("/wal/")),
        "{requests:#?}"
    );
}

#[tokio::test]
async fn of_two_that_have_seen_the_same_state_the_later_fences_the_earlier_and_reads_its_commits() {
    let bucket = volume().await;
    let (_, seen_by_one) = look(&bucket).await;
    let (_, seen_by_other) = look(&bucket).await;
    let one = open(&bucket, Some(seen_by_one)).await.unwrap();
    one.commit(&batch("by one")).await.unwrap();
    let other = open(&bucket, Some(seen_by_other)).await.unwrap();
    assert_eq!(latest(&other).await, "by one");
    assert_eq!(
        one.commit(&batch("too late")).await,
        Err(StoreError::Fenced)
    );
    other.commit(&batch("by the other")).await.unwrap();
    assert_eq!(look(&bucket).await.0, "by the other");
}

#[tokio::test]
async fn of_two_that_open_at_the_same_time_one_goes_on() {
    for _ in 0..20 {
        let bucket = volume().await;
        let (_, seen_by_one) = look(&bucket).await;
        let (_, seen_by_other) = look(&bucket).await;
        let (one, other) = tokio::join!(
            open(&bucket, Some(seen_by_one)),
            open(&bucket, Some(seen_by_other))
        );
        let mut committed = Vec::new();
        for (name, store) in [("one", one), ("other", other)] {
            // An opening that was overtaken fails, or its commit does.
            let Ok(store) = store else { continue };
            match store.commit(&batch(name)).await {
                Ok(()) => committed.push(name),
                Err(error) => assert_eq!(error, StoreError::Fenced),
            }
        }
        assert_eq!(committed.len(), 1);
        assert_eq!(look(&bucket).await.0, committed[0]);
    }
}
