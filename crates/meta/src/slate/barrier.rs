//! The order of a batch and the objects that it refers to.
//!
//! A table that no manifest names has no effect. So SlateDB may build and put the table of a batch while the objects
//! that the batch refers to are still on their way; the manifest that names the table waits here until all of them have
//! arrived.
//!
//! ```text
//!   packs         ---- put ---- put ---- put -+
//!   table            ---- built, put --+      | ready
//!   manifest                           +~~~~~~+-- put ---->  published
//! ```
//!
//! If they never arrive, manifests are refused for good, since SlateDB would name that table in the next one. The table
//! remains one that no manifest names.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::MANIFEST;
use crate::store::Ready;

/// The signals that manifests wait for, all of them. Clones share one barrier.
#[derive(Clone, Debug)]
pub(super) struct Barrier(Arc<Mutex<Vec<Ready>>>);

impl Barrier {
    pub(super) fn open() -> Barrier {
        Barrier(Arc::default())
    }

    /// Makes manifests wait for `ready` as well. Returns false if they are refused, because something has never
    /// arrived.
    #[must_use]
    pub(super) fn close_until(&self, ready: &Ready) -> bool {
        let mut awaited = self.0.lock();
        awaited.retain(|one| !one.is_there());
        if !awaited.iter().any(|one| one.is_same(ready)) {
            awaited.push(ready.clone());
        }
        !awaited.iter().any(Ready::has_failed)
    }

    async fn pass(&self) -> bool {
        let awaited = self.0.lock().clone();
        for ready in awaited {
            if !ready.wait().await {
                return false;
            }
        }
        true
    }
}

/// A store in which manifests wait at a [`Barrier`].
#[derive(Debug)]
pub(super) struct BarrierStore {
    inner: Arc<dyn ObjectStore>,
    barrier: Barrier,
}

impl BarrierStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, barrier: Barrier) -> BarrierStore {
        BarrierStore { inner, barrier }
    }
}

impl fmt::Display for BarrierStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BarrierStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for BarrierStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if location.extension() == Some(MANIFEST) && !self.barrier.pass().await {
            // One of the errors after which SlateDB does not try again.
            return Err(Error::NotSupported {
                source: "objects that the newest table refers to are not in the bucket yet".into(),
            });
        }
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
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.inner.get_ranges(location, ranges).await
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

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn manifests_wait_for_all_and_are_refused_for_good_if_something_never_arrives() {
        let barrier = Barrier::open();
        assert!(barrier.pass().await);
        let (first, one) = Ready::later();
        let (second, other) = Ready::later();
        assert!(
            barrier.close_until(&one) && barrier.close_until(&one) && barrier.close_until(&other)
        );
        let waiting = tokio::spawn({
            let barrier = barrier.clone();
            async move { barrier.pass().await }
        });
        second.announce();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "the first is on its way");
        first.announce();
        assert!(waiting.await.unwrap());
        assert!(barrier.close_until(&Ready::now()) && barrier.pass().await);

        let (never, one) = Ready::later();
        assert!(barrier.close_until(&one));
        drop(never);
        assert!(!barrier.pass().await);
        // The next manifest would name the table that waits for it.
        assert!(!barrier.close_until(&Ready::now()) && !barrier.pass().await);
    }
}
