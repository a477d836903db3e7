//! A bucket in memory that several gateways share, each by a way of its own: a way notes the requests, stops them, and has
//! faults.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, once};
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has no effect, and fails.
    Fails,
    /// It has its effect, and the answer is lost.
    AnswerIsLost,
    /// It is answered. Then a collector moves the boundary to this number, and deletes the manifests up to it.
    CollectedAfter(u64),
}

/// A bucket, by the way of one gateway. Clones share the way.
#[derive(Clone, Debug)]
pub(crate) struct Bucket(Arc<Way>);

#[derive(Debug)]
pub(crate) struct Way {
    objects: Arc<InMemory>,
    requests: Mutex<Vec<String>>,
    /// For the next request whose note has this text.
    faults: Mutex<Vec<(String, Fault)>>,
    /// One for each request that may pass.
    permits: Semaphore,
    waiting: AtomicUsize,
}

impl Deref for Bucket {
    type Target = Way;

    fn deref(&self) -> &Way {
        &self.0
    }
}

impl Bucket {
    fn over(objects: Arc<InMemory>, permits: usize) -> Bucket {
        Bucket(Arc::new(Way {
            objects,
            requests: Mutex::default(),
            faults: Mutex::default(),
            permits: Semaphore::new(permits),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// An empty bucket.
    pub(crate) fn new() -> Bucket {
        Bucket::over(Arc::default(), Semaphore::MAX_PERMITS)
    }

    /// Another way to the same objects, on which the request after the first `requests` stops.
    pub(crate) fn stopping_after(&self, requests: usize) -> Bucket {
        Bucket::over(self.objects.clone(), requests)
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// Waits until this request was made.
    pub(crate) async fn until_asked(&self, request: &str) {
        while !self.requests.lock().iter().any(|one| one == request) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Has a fault in the next request whose note has this text.
    pub(crate) fn fail(&self, text: &str, fault: Fault) {
        self.faults.lock().push((text.to_owned(), fault));
    }

    /// Waits until `work` has ended or its next request stops; returns whether it stops.
    pub(crate) async fn until_stopped<T>(&self, work: &JoinHandle<T>) -> bool {
        while !work.is_finished() {
            if self.waiting.load(Ordering::SeqCst) > 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }

    /// Lets all requests pass from now on.
    pub(crate) fn go_on(&self) {
        self.permits.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn begin(&self, what: &str, location: &str) -> Result<Option<Fault>> {
        let note = format!("{what} {location}");
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.permits.acquire().await.unwrap().forget();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let fault = {
            let mut faults = self.faults.lock();
            let at = faults.iter().position(|(text, _)| note.contains(text));
            at.map(|at| faults.remove(at).1)
        };
        self.requests.lock().push(note);
        match fault {
            Some(Fault::Fails) => Err(unclear()),
            fault => Ok(fault),
        }
    }

    async fn end<T>(&self, fault: Option<Fault>, answer: Result<T>) -> Result<T> {
        match fault {
            Some(Fault::AnswerIsLost) => return Err(unclear()),
            Some(Fault::CollectedAfter(number)) => self.collected(number).await,
            _ => {}
        }
        answer
    }

    /// Numbers of the manifests, ascending.
    pub(crate) async fn manifests(&self) -> Vec<u64> {
        let folder = Path::from("meta/manifest");
        let listed: Vec<_> = self
            .objects
            .list(Some(&folder))
            .try_collect()
            .await
            .unwrap();
        let names = listed.iter().map(|one| one.location.filename().unwrap());
        let mut numbers: Vec<u64> = names
            .map(|name| name.split('.').next().unwrap().parse().unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) async fn newest(&self) -> u64 {
        *self.manifests().await.last().unwrap()
    }

    /// A collector moves the boundary to this number, and then deletes the manifests up to it.
    pub(crate) async fn collected(&self, number: u64) {
        let bytes = number.to_string().into_bytes();
        let mut crc = crc32fast::Hasher::new();
        crc.update(b"manifest.boundary");
        crc.update(&bytes);
        let trailer = [&b"FBc2"[..], &crc.finalize().to_le_bytes()].concat();
        let boundary = Path::from("meta/gc/manifest.boundary");
        let bytes = [bytes, trailer].concat();
        self.objects.put(&boundary, bytes.into()).await.unwrap();
        for one in self.manifests().await {
            if one <= number {
                self.objects.delete(&manifest(one)).await.unwrap();
            }
        }
    }

    /// All objects.
    pub(crate) async fn copy(&self) -> BTreeMap<Path, Bytes> {
        let listed: Vec<_> = self.objects.list(None).try_collect().await.unwrap();
        let mut copy = BTreeMap::new();
        for one in listed {
            let found = self.objects.get(&one.location).await.unwrap();
            copy.insert(one.location, found.bytes().await.unwrap());
        }
        copy
    }

    /// Makes these the objects of the bucket. Those that stay the same are not written again.
    pub(crate) async fn put_back(&self, copy: &BTreeMap<Path, Bytes>) {
        let now = self.copy().await;
        for location in now.keys().filter(|one| !copy.contains_key(one)) {
            self.objects.delete(location).await.unwrap();
        }
        for (location, bytes) in copy {
            if now.get(location) != Some(bytes) {
                self.objects
                    .put(location, bytes.clone().into())
                    .await
                    .unwrap();
            }
        }
    }

    pub(crate) async fn delete(&self, location: &Path) {
        self.objects.delete(location).await.unwrap();
    }
}

/// The place of a manifest.
pub(crate) fn manifest(number: u64) -> Path {
    format!("meta/manifest/{number:020}.manifest").into()
}

fn unclear() -> Error {
    Error::Generic {
        store: "test",
        source: "the answer did not arrive".into(),
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bucket with faults")
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.begin("PUT", location.as_ref()).await?;
        let put = self.objects.put_opts(location, payload, options).await;
        self.end(fault, put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.begin("PUT", location.as_ref()).await?;
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let what = if options.head { "HEAD" } else { "GET" };
        let fault = self.begin(what, location.as_ref()).await?;
        let got = self.objects.get_opts(location, options).await;
        self.end(fault, got).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (bucket, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            let below = prefix.as_ref().map_or("", |prefix| prefix.as_ref());
            bucket.begin("LIST", below).await?;
            Ok::<_, Error>(bucket.objects.list(prefix.as_ref()))
        };
        once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let below = prefix.map_or("", |prefix| prefix.as_ref());
        self.begin("LIST", below).await?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
