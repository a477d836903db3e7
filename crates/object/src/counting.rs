//! A store that counts its requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Requests to a store since the counter was made: calls of the trait, whatever their results. A store may
/// send more requests for a call (pages of a listing, retries) or fewer (many deletes in one request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Objects put in one piece.
    pub puts: u64,
    /// Objects or ranges read.
    pub gets: u64,
    /// Objects whose metadata was read.
    pub heads: u64,
    /// Listings.
    pub lists: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Objects copied.
    pub copies: u64,
    /// Uploads in several parts: started, completed or aborted.
    pub multipart_uploads: u64,
    /// Parts of such uploads.
    pub parts: u64,
    /// Bytes in puts and parts.
    pub bytes_put: u64,
    /// Bytes in the answers to gets; the caller may have read fewer.
    pub bytes_got: u64,
}

impl RequestCounts {
    /// All requests of any kind.
    pub fn requests(&self) -> u64 {
        self.puts
            + self.gets
            + self.heads
            + self.lists
            + self.deletes
            + self.copies
            + self.multipart_uploads
            + self.parts
    }
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    copies: AtomicU64,
    multipart_uploads: AtomicU64,
    parts: AtomicU64,
    bytes_put: AtomicU64,
    bytes_got: AtomicU64,
}

/// A store that forwards every request to another one, and counts it. Clones share one count.
#[derive(Clone, Debug)]
pub struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    counters: Arc<Counters>,
}

impl CountingStore {
    /// Counts the requests to `inner` from now on.
    pub fn new(inner: Arc<dyn ObjectStore>) -> CountingStore {
        CountingStore {
            inner,
            counters: Arc::default(),
        }
    }

    /// The counts so far. Requests in flight may be in some of them and not yet in others.
    pub fn counts(&self) -> RequestCounts {
        let counters = &self.counters;
        RequestCounts {
            puts: counters.puts.load(Relaxed),
            gets: counters.gets.load(Relaxed),
            heads: counters.heads.load(Relaxed),
            lists: counters.lists.load(Relaxed),
            deletes: counters.deletes.load(Relaxed),
            copies: counters.copies.load(Relaxed),
            multipart_uploads: counters.multipart_uploads.load(Relaxed),
            parts: counters.parts.load(Relaxed),
            bytes_put: counters.bytes_put.load(Relaxed),
            bytes_got: counters.bytes_got.load(Relaxed),
        }
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountingStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.counters.puts.fetch_add(1, Relaxed);
        self.counters
            .bytes_put
            .fetch_add(payload.content_length() as u64, Relaxed);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.counters.multipart_uploads.fetch_add(1, Relaxed);
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(CountingUpload {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        let counter = if head {
            &self.counters.heads
        } else {
            &self.counters.gets
        };
        counter.fetch_add(1, Relaxed);
        let result = self.inner.get_opts(location, options).await?;
        if !head {
            let len = result.range.end.saturating_sub(result.range.start);
            self.counters.bytes_got.fetch_add(len, Relaxed);
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let counters = Arc::clone(&self.counters);
        let counted = locations.inspect(move |location| {
            if location.is_ok() {
                counters.deletes.fetch_add(1, Relaxed);
            }
        });
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counters.lists.fetch_add(1, Relaxed);
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.counters.lists.fetch_add(1, Relaxed);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.counters.lists.fetch_add(1, Relaxed);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.counters.copies.fetch_add(1, Relaxed);
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct CountingUpload {
    inner: Box<dyn MultipartUpload>,
    counters: Arc<Counters>,
}

#[async_trait]
impl MultipartUpload for CountingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.counters.parts.fetch_add(1, Relaxed);
        self.counters
            .bytes_put
            .fetch_add(data.content_length() as u64, Relaxed);
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.counters.multipart_uploads.fetch_add(1, Relaxed);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.counters.multipart_uploads.fetch_add(1, Relaxed);
        self.inner.abort().await
    }
}
