//! A store that hides all manifests after the first one that was read.
//!
//! SlateDB's reader looks for a newer manifest right after opening, whatever its polling interval is, and continues
//! with that one: its view would change once during the first reads. Tables never change and manifests are numbered, so
//! hiding the later manifests is enough to keep one moment.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::MANIFEST;

/// Reads a store without later manifests, and refuses all changes.
#[derive(Clone, Debug)]
pub(super) struct StillStore {
    inner: Arc<dyn ObjectStore>,
    /// Number of the manifest that was read.
    moment: Arc<OnceLock<u64>>,
}

impl StillStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> StillStore {
        StillStore {
            inner,
            moment: Arc::default(),
        }
    }

    fn is_later(&self, location: &Path) -> bool {
        let moment = self.moment.get();
        number(location).is_some_and(|number| moment.is_some_and(|moment| number > *moment))
    }

    fn refused<T>(&self, operation: &str) -> Result<T> {
        Err(Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        })
    }
}

/// The number of a manifest.
fn number(location: &Path) -> Option<u64> {
    let name = location.filename()?;
    let (number, MANIFEST) = name.split_once('.')? else {
        return None;
    };
    number.parse().ok()
}

impl fmt::Display for StillStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StillStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for StillStore {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.refused("a put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.refused("an upload in parts")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if !self.is_later(location) {
            let found = self.inner.get_opts(location, options).await?;
            let Some(number) = number(location) else {
                return Ok(found);
            };
            // Another call may have read one meanwhile.
            if *self.moment.get_or_init(|| number) >= number {
                return Ok(found);
            }
        }
        Err(Error::NotFound {
            path: location.to_string(),
            source: "it is of a later moment".into(),
        })
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        futures_util::stream::iter([self.refused("a deletion")]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let still = self.clone();
        let found = self.inner.list(prefix);
        let earlier = move |found: &ObjectMeta| ready(!still.is_later(&found.location));
        found.try_filter(earlier).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found
            .objects
            .retain(|object| !self.is_later(&object.location));
        Ok(found)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        self.refused("a copy")
    }
}
