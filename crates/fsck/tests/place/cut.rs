//! A bucket that ends before one of its changes, as a killed program leaves it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use forebay_object::{RetrySettings, Store};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Notify;

use crate::place::Place;

/// Lets some changes through; the next one never ends.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    left: Arc<AtomicUsize>,
    reached: Arc<Notify>,
}

impl Cut {
    pub(crate) fn after(changes: usize) -> Cut {
        Cut {
            left: Arc::new(AtomicUsize::new(changes)),
            reached: Arc::default(),
        }
    }

    async fn change(&self) {
        let less = |left: usize| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if taken.is_err() {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// The output of `work`; `None` if it was cut.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.reached.notified() => None,
            done = work => Some(done),
        }
    }

    /// The place of the bucket, or one beside it, seen through this.
    pub(crate) async fn store(&self, place: &Place, root: &str) -> Store {
        let url = format!("file://{}", place.folder.path().display());
        let opened = forebay_object::open(&url, &Default::default())
            .await
            .unwrap();
        let inner = CutStore {
            inner: opened.store,
            cut: self.clone(),
        };
        // Not the URL of a folder: what lies beside it goes through this as well.
        let url = "memory://cut".to_owned();
        Store::new(
            Arc::new(inner),
            Path::from(root),
            url,
            RetrySettings::default(),
        )
    }
}

#[derive(Debug)]
struct CutStore {
    inner: Arc<dyn ObjectStore>,
    cut: Cut,
}

impl fmt::Display for CutStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CutStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CutStore {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.cut.change().await;
        self.inner.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.cut.change().await;
        self.inner.put_multipart_opts(to, options).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(from, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let cut = self.cut.clone();
        let cut = locations.and_then(move |location| {
            let cut = cut.clone();
            async move {
                cut.change().await;
                Ok(location)
            }
        });
        self.inner.delete_stream(cut.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.cut.change().await;
        self.inner.copy_opts(from, to, options).await
    }
}
