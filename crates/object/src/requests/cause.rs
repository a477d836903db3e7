//! The work that a request is made for.
//!
//! A cause belongs to a task: whatever requests are made in [`caused`] have it, and those of a store behind a
//! [`CausedStore`]. A task that another one starts has no cause, unless its work is wrapped again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// Why a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// To put packs of changed data into the bucket.
    Publish,
    /// To read data that a client waits for.
    Fetch,
    /// To read data ahead of a client.
    Prefetch,
    /// To read and write metadata.
    Metadata,
    /// To merge tables of metadata, and to delete those that are merged.
    Merge,
    /// To find and rewrite packs that are mostly dead, and to delete dead ones.
    Collector,
    /// To verify what the bucket has.
    Scrub,
    /// To replace damaged frames: the metadata of their files. Good copies come from memory or the disk cache, and are put
    /// into the bucket like changed data.
    Heal,
    /// Anything else: to find the volume, its keys and its holder, and to test the store.
    Other,
}

impl Cause {
    /// All causes, with their names in metrics.
    pub const ALL: [(Cause, &str); 9] = [
        (Cause::Publish, "publish"),
        (Cause::Fetch, "fetch"),
        (Cause::Prefetch, "prefetch"),
        (Cause::Metadata, "metadata"),
        (Cause::Merge, "merge"),
        (Cause::Collector, "collector"),
        (Cause::Scrub, "scrub"),
        (Cause::Heal, "heal"),
        (Cause::Other, "other"),
    ];
}

tokio::task_local! {
    static CAUSE: Cause;
}

/// The cause of the requests that the current task makes now; `None` if it has none.
pub fn current() -> Option<Cause> {
    CAUSE.try_with(|cause| *cause).ok()
}

/// Does `work`, whose requests have this cause.
pub fn caused<F: Future>(cause: Cause, work: F) -> impl Future<Output = F::Output> {
    CAUSE.scope(cause, work)
}

/// A store whose requests have a cause. It forwards every request to another store.
#[derive(Clone, Debug)]
pub struct CausedStore {
    inner: Arc<dyn ObjectStore>,
    cause: Cause,
    /// Causes of tasks that have precedence.
    except: fn(Cause) -> bool,
}

impl CausedStore {
    /// A store whose requests have this cause, unless the task that makes them has one for which `except` holds.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        cause: Cause,
        except: fn(Cause) -> bool,
    ) -> CausedStore {
        CausedStore {
            inner,
            cause,
            except,
        }
    }

    fn cause(&self) -> Cause {
        current()
            .filter(|cause| (self.except)(*cause))
            .unwrap_or(self.cause)
    }

    fn stream<T: Send + 'static>(
        &self,
        begin: impl FnOnce() -> BoxStream<'static, T>,
    ) -> BoxStream<'static, T> {
        let cause = self.cause();
        let inner = CAUSE.sync_scope(cause, begin);
        CausedStream { cause, inner }.boxed()
    }
}

/// A stream that makes requests while it is read.
struct CausedStream<T> {
    cause: Cause,
    inner: BoxStream<'static, T>,
}

impl<T> Stream for CausedStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let cause = self.cause;
        CAUSE.sync_scope(cause, || self.inner.poll_next_unpin(context))
    }
}

impl fmt::Display for CausedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CausedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = self.inner.put_opts(location, payload, options);
        caused(self.cause(), put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let cause = self.cause();
        let begun = self.inner.put_multipart_opts(location, options);
        let inner = caused(cause, begun).await?;
        Ok(Box::new(CausedUpload { inner, cause }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        caused(self.cause(), self.inner.get_opts(location, options)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.stream(|| self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stream(|| self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stream(|| self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        caused(self.cause(), self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        caused(self.cause(), self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct CausedUpload {
    inner: Box<dyn MultipartUpload>,
    cause: Cause,
}

#[async_trait]
impl MultipartUpload for CausedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = CAUSE.sync_scope(self.cause, || self.inner.put_part(data));
        Box::pin(caused(self.cause, part))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        caused(self.cause, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        caused(self.cause, self.inner.abort()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cause_holds_for_the_work_that_it_wraps() {
        assert_eq!(current(), None);
        let inside = caused(Cause::Scrub, async {
            tokio::task::yield_now().await;
            let inner = caused(Cause::Heal, async { current() }).await;
            (current(), inner)
        });
        assert_eq!(inside.await, (Some(Cause::Scrub), Some(Cause::Heal)));
        assert_eq!(current(), None);
    }

    #[tokio::test]
    async fn a_store_has_a_cause_with_exceptions() {
        let inner: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        let store = CausedStore::new(inner, Cause::Metadata, |cause| cause == Cause::Merge);
        assert_eq!(store.cause(), Cause::Metadata);
        let within = async |cause| caused(cause, async { store.cause() }).await;
        assert_eq!(within(Cause::Publish).await, Cause::Metadata);
        assert_eq!(within(Cause::Merge).await, Cause::Merge);
    }

    #[tokio::test]
    async fn a_stream_has_its_cause_whenever_it_is_read() {
        let inner = Arc::new(object_store::memory::InMemory::new());
        let store = CausedStore::new(inner, Cause::Scrub, |_| false);
        let polled = futures_util::stream::poll_fn(|_| Poll::Ready(Some(current())));
        let mut causes = store.stream(|| polled.boxed());
        assert_eq!(causes.next().await, Some(Some(Cause::Scrub)));
        let elsewhere = caused(Cause::Heal, causes.next()).await;
        assert_eq!(elsewhere, Some(Some(Cause::Scrub)));
    }
}
