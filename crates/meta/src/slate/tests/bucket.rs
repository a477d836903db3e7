//! A bucket in memory that counts its requests and fails on demand.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};
use parking_lot::Mutex;

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    PutTable,
    PutManifest,
    Everything,
}

/// Requests and bytes (of a list: its entries) by method and kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub(super) BTreeMap<(&'static str, &'static str), (u64, u64)>);

impl Tally {
    pub(super) fn of(&self, method: &'static str, kind: &'static str) -> (u64, u64) {
        self.0.get(&(method, kind)).copied().unwrap_or_default()
    }
}

impl Sub for Tally {
    type Output = Tally;

    fn sub(self, before: Tally) -> Tally {
        let since = self.0.into_iter().map(|(key, (requests, bytes))| {
            let (earlier, earlier_bytes) = before.of(key.0, key.1);
            (key, (requests - earlier, bytes - earlier_bytes))
        });
        Tally(since.filter(|(_, (requests, _))| *requests > 0).collect())
    }
}

fn kind(location: Option<&Path>) -> &'static str {
    let location = location.map(Path::as_ref).unwrap_or_default();
    let holds = |folder| location.split('/').any(|part| part == folder);
    match () {
        () if holds("manifest") => "manifest",
        () if holds("compacted") => "table",
        () => "other",
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct TestBucket {
    objects: Arc<InMemory>,
    control: Arc<Control>,
}

#[derive(Debug, Default)]
struct Control {
    requests: AtomicU64,
    bytes_got: AtomicU64,
    bytes_put: AtomicU64,
    tally: Mutex<Tally>,
    /// Microseconds that a request takes, and bytes that arrive in one.
    slowness: Mutex<Option<(u64, u64)>>,
    failing: Mutex<Option<Operation>>,
    dead: AtomicBool,
    /// Tables that may still be written; the bucket dies at the last one. 0: no limit.
    tables_left: AtomicU64,
    /// The longest chain of reads so far, each of which began after the one before it was answered; `None`: not measured.
    longest_chain: Mutex<Option<u64>>,
    /// Folder, and number of bodies of its objects that will arrive damaged.
    damaged_on_the_way: Mutex<(&'static str, u64)>,
}

impl TestBucket {
    pub(super) fn requests(&self) -> u64 {
        self.control.requests.load(Ordering::SeqCst)
    }

    pub(super) fn bytes_got(&self) -> u64 {
        self.control.bytes_got.load(Ordering::SeqCst)
    }

    /// Bytes of objects and parts that were put.
    pub(super) fn bytes_put(&self) -> u64 {
        self.control.bytes_put.load(Ordering::SeqCst)
    }

    /// The requests so far.
    pub(super) fn tally(&self) -> Tally {
        self.control.tally.lock().clone()
    }

    /// Makes requests take `each_us` microseconds, and one more for each `bytes_in_us` bytes; not those for an object that
    /// is missing, deletions and uploads in parts.
    pub(super) fn slow_down(&self, slowness: Option<(u64, u64)>) {
        *self.control.slowness.lock() = slowness;
    }

    /// The number of answers to reads that `work` waits for, one after the other. Reads that are under way at the same time
    /// count once: each waits until everything that can run has run. The runtime must have one thread.
    pub(super) async fn round_trips<T>(&self, work: impl Future<Output = T>) -> (T, u64) {
        *self.control.longest_chain.lock() = Some(0);
        let done = work.await;
        let longest = self.control.longest_chain.lock().take();
        (done, longest.unwrap())
    }

    async fn let_others_ask(&self) {
        /// After these, every task waits for the bucket.
        const PASSES: usize = 200;
        let longest = *self.control.longest_chain.lock();
        let Some(before) = longest else {
            return;
        };
        for _ in 0..PASSES {
            tokio::task::yield_now().await;
        }
        if let Some(longest) = &mut *self.control.longest_chain.lock() {
            *longest = (*longest).max(before + 1);
        }
    }

    fn count(&self, method: &'static str, location: Option<&Path>, requests: u64, bytes: u64) {
        let mut tally = self.control.tally.lock();
        let count = tally.0.entry((method, kind(location))).or_default();
        count.0 += requests;
        count.1 += bytes;
    }

    async fn take_time(&self, bytes: u64) {
        let slowness = *self.control.slowness.lock();
        if let Some((each_us, bytes_in_us)) = slowness {
            tokio::time::sleep(Duration::from_micros(each_us + bytes / bytes_in_us)).await;
        }
    }

    fn count_put(&self, payload: &PutPayload) {
        let bytes = payload.content_length() as u64;
        self.control.bytes_put.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(super) fn fail(&self, operation: Operation) {
        *self.control.failing.lock() = Some(operation);
    }

    pub(super) fn heal(&self) {
        *self.control.failing.lock() = None;
    }

    /// From the n-th written table on, including that one, no request is answered: as if the gateway were killed.
    pub(super) fn die_at_table(&self, n: u64) {
        self.control.tables_left.store(n, Ordering::SeqCst);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.control.dead.load(Ordering::SeqCst)
    }

    /// The same objects for another machine; this bucket does not reach them any more.
    pub(super) fn survivor(&self) -> TestBucket {
        self.control.dead.store(true, Ordering::SeqCst);
        TestBucket {
            objects: self.objects.clone(),
            control: Arc::default(),
        }
    }

    /// The stored objects, without counting and failures.
    pub(super) fn raw(&self) -> &InMemory {
        &self.objects
    }

    pub(super) async fn objects(&self) -> Vec<String> {
        let objects = self
            .objects
            .list(None)
            .map_ok(|meta| meta.location.to_string());
        objects.try_collect().await.unwrap()
    }

    pub(super) async fn tables(&self) -> usize {
        let objects = self.objects().await;
        objects
            .iter()
            .filter(|name| name.contains("/compacted/"))
            .count()
    }

    /// Changes one byte in the middle of the first half of each object in this folder; returns the number of objects.
    pub(super) async fn damage(&self, folder: &str) -> usize {
        self.alter(folder, |bytes| {
            let at = bytes.len() / 4;
            bytes[at] ^= 0x55;
        })
        .await
    }

    /// Removes the last bytes of each object in this folder; returns the number of objects.
    pub(super) async fn cut_off(&self, folder: &str, bytes_off: usize) -> usize {
        self.alter(folder, |bytes| bytes.truncate(bytes.len() - bytes_off))
            .await
    }

    async fn alter(&self, folder: &str, change: impl Fn(&mut Vec<u8>)) -> usize {
        let mut altered = 0;
        for name in self.objects().await {
            if !name.contains(folder) {
                continue;
            }
            let path = Path::from(name);
            let found = self.objects.get(&path).await.unwrap();
            let mut bytes = found.bytes().await.unwrap().to_vec();
            change(&mut bytes);
            self.objects.put(&path, bytes.into()).await.unwrap();
            altered += 1;
        }
        altered
    }

    /// Damages a byte in the next `times` bodies of objects in this folder, another byte each time.
    pub(super) fn damage_on_the_way(&self, folder: &'static str, times: u64) {
        *self.control.damaged_on_the_way.lock() = (folder, times);
    }

    /// Number of these that are still to come.
    pub(super) fn damage_to_come(&self) -> u64 {
        self.control.damaged_on_the_way.lock().1
    }

    fn request(&self, location: Option<&Path>, put: bool) -> Result<()> {
        self.control.requests.fetch_add(1, Ordering::SeqCst);
        let location = location.map(Path::as_ref).unwrap_or_default();
        if put && location.contains("/compacted/") {
            let left = &self.control.tables_left;
            let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
            if before == Ok(1) {
                self.control.dead.store(true, Ordering::SeqCst);
            }
        }
        let fails = match *self.control.failing.lock() {
            None => false,
            Some(Operation::PutTable) => put && location.contains("/compacted/"),
            Some(Operation::PutManifest) => put && location.contains("/manifest/"),
            Some(Operation::Everything) => true,
        };
        if fails || self.control.dead.load(Ordering::SeqCst) {
            return Err(Error::Generic {
                store: "test",
                source: "the bucket is away".into(),
            });
        }
        Ok(())
    }
}

/// An upload in parts; each part is a request, and so is its completion.
#[derive(Debug)]
struct CountedUpload {
    inner: Box<dyn MultipartUpload>,
    bucket: TestBucket,
}

#[async_trait]
impl MultipartUpload for CountedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.bucket.count_put(&data);
        let part = self.inner.put_part(data);
        let answer = self.bucket.request(None, false);
        Box::pin(async {
            answer?;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.bucket.request(None, false)?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

impl fmt::Display for TestBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bucket that fails on demand")
    }
}

#[async_trait]
impl ObjectStore for TestBucket {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.request(Some(location), true)?;
        self.count_put(&payload);
        let bytes = payload.content_length() as u64;
        self.count("PUT", Some(location), 1, bytes);
        self.take_time(bytes).await;
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.request(Some(location), true)?;
        self.count("PUT", Some(location), 1, 0);
        let inner = self.objects.put_multipart_opts(location, options).await?;
        Ok(Box::new(CountedUpload {
            inner,
            bucket: self.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.request(Some(location), false)?;
        let head = options.head;
        let method = if head { "HEAD" } else { "GET" };
        self.count(method, Some(location), 1, 0);
        self.let_others_ask().await;
        let found = self.objects.get_opts(location, options).await?;
        let bytes = found.range.end - found.range.start;
        let bytes = if head { 0 } else { bytes };
        self.take_time(bytes).await;
        if !head {
            self.count(method, Some(location), 0, bytes);
            self.control.bytes_got.fetch_add(bytes, Ordering::SeqCst);
        }
        let turn = {
            let mut damaged = self.control.damaged_on_the_way.lock();
            let applies = !head && damaged.1 > 0 && location.as_ref().contains(damaged.0);
            damaged.1 -= u64::from(applies);
            applies.then_some(damaged.1)
        };
        let Some(turn) = turn else {
            return Ok(found);
        };
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let attributes = found.attributes.clone();
        let mut bytes = found.bytes().await?.to_vec();
        let at = bytes.len() * (turn as usize % 7) / 7;
        bytes[at] ^= 0x55;
        Ok(GetResult {
            payload: GetResultPayload::Stream(
                futures_util::stream::once(async { Ok(bytes.into()) }).boxed(),
            ),
            meta,
            range,
            attributes,
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.count("DELETE", None, 1, 0);
        match self.request(None, false) {
            Ok(()) => self.objects.delete_stream(locations),
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count("LIST", prefix, 1, 0);
        match self.request(prefix, false) {
            Ok(()) => {
                let (bucket, prefix) = (self.clone(), prefix.cloned());
                let waited = futures_util::stream::once({
                    let bucket = bucket.clone();
                    async move { bucket.take_time(0).await }
                });
                let listed = self.objects.list(prefix.as_ref()).inspect(move |_| {
                    bucket.count("LIST", prefix.as_ref(), 0, 1);
                });
                waited.filter_map(|()| async { None }).chain(listed).boxed()
            }
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request(prefix, false)?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.request(Some(to), true)?;
        self.objects.copy_opts(from, to, options).await
    }
}
