//! A store that hides all manifests after the first one that was read, or all but one.
//!
//! SlateDB's reader looks for a newer manifest right after opening, whatever its polling interval is, and continues
//! with that one: its view would change once during the first reads. Tables never change and manifests are numbered, so
//! hiding the later manifests is enough to keep one moment.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::{BoxStream, iter};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};

use tokio::sync::OnceCell;

use super::MANIFEST;

/// Name of the object with the number up to which the garbage collector may have deleted manifests. It leaves those that are kept,
/// and SlateDB's reader would look for a later one without end.
pub(super) const BOUNDARY: &str = "manifest.boundary";

/// Reads a store without later manifests, and refuses all changes.
#[derive(Clone, Debug)]
pub(super) struct StillStore {
    inner: Arc<dyn ObjectStore>,
    /// Number of the manifest that was read.
    moment: Arc<OnceLock<u64>>,
    /// The only manifest there is, if there is but one: in memory, as it is looked for and read several times.
    only: Option<Arc<Manifest>>,
}

/// A manifest, which is read once.
#[derive(Debug)]
struct Manifest {
    location: Path,
    found: OnceCell<(ObjectMeta, Bytes)>,
}

impl StillStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> StillStore {
        StillStore {
            inner,
            moment: Arc::default(),
            only: None,
        }
    }

    /// A store whose only manifest is the one with this number, of the store under `path`.
    pub(super) fn at(inner: Arc<dyn ObjectStore>, path: &Path, number: u64) -> StillStore {
        let name = format!("{number:020}.{MANIFEST}");
        StillStore {
            inner,
            moment: Arc::new(OnceLock::from(number)),
            only: Some(Arc::new(Manifest {
                location: path.clone().join(MANIFEST).join(name),
                found: OnceCell::new(),
            })),
        }
    }

    /// Reads the only manifest, if all of it is asked for.
    async fn read_only(&self, location: &Path, options: &GetOptions) -> Option<Result<GetResult>> {
        let only = self.only.as_ref()?;
        if only.location != *location || options.range.is_some() || options.head {
            return None;
        }
        let read = only.found.get_or_try_init(|| async {
            let found = self.inner.get_opts(location, GetOptions::default()).await?;
            let meta = found.meta.clone();
            Ok((meta, found.bytes().await?))
        });
        Some(read.await.map(|(meta, bytes)| GetResult {
            payload: GetResultPayload::Stream(iter([Ok(bytes.clone())]).boxed()),
            meta: meta.clone(),
            range: 0..bytes.len() as u64,
            attributes: Attributes::new(),
            extensions: Extensions::new(),
        }))
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
pub(super) fn number(location: &Path) -> Option<u64> {
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
        if let Some(read) = self.read_only(location, &options).await {
            return read;
        }
        if self.only.is_some() && location.filename() == Some(BOUNDARY) {
            return Err(Error::NotFound {
                path: location.to_string(),
                source: "the only manifest is not behind it".into(),
            });
        }
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
        iter([self.refused("a deletion")]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let (Some(only), Some(prefix)) = (&self.only, prefix)
            && only.location.prefix_matches(prefix)
        {
            // SlateDB takes its number from it.
            let listed = ObjectMeta {
                location: only.location.clone(),
                last_modified: Default::default(),
                size: 0,
                e_tag: None,
                version: None,
            };
            return iter([Ok(listed)]).boxed();
        }
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
