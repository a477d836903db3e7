//! A store that hides all manifests after the first one that was read, or all but one.
//!
//! SlateDB's reader looks for a newer manifest right after opening, whatever its polling interval is, and continues
//! with that one: its view would change once during the first reads. Tables never change and manifests are numbered, so
//! hiding the later manifests is enough to keep one moment.
//!
//! The boundary of the collector belongs to the moment as well. SlateDB asks for it each time it has looked for the
//! newest manifest, and looks again if the boundary has passed that manifest. A collector can move the boundary at any
//! time. SlateDB would then look again without end, because the later manifests are hidden. So:
//!
//! * The boundary is read once after the manifest, and that answer is given from then on.
//! * If that answer has passed the manifest already, the manifest is forgotten, and SlateDB finds a later one.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::ready;
use futures_util::stream::{BoxStream, iter};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::MANIFEST;
use super::answer::{Answer, Known};

/// Name of the boundary: the object with the number up to which the collector may have deleted manifests. The collector
/// leaves those that are kept; SlateDB's reader does not take them for the newest.
pub(super) const BOUNDARY: &str = "manifest.boundary";

/// Reads a store without later manifests, and refuses all changes.
#[derive(Clone, Debug)]
pub(super) struct StillStore {
    inner: Arc<dyn ObjectStore>,
    moment: Arc<Mutex<Moment>>,
    /// The only manifest there is, if there is but one: in memory, as it is looked for and read several times.
    only: Option<Arc<Manifest>>,
}

/// What was read first.
#[derive(Debug, Default)]
struct Moment {
    /// Number of the manifest.
    manifest: Option<u64>,
    /// The boundary after that, which is below the manifest.
    boundary: Option<Known>,
}

/// A manifest, which is read once.
#[derive(Debug)]
struct Manifest {
    location: Path,
    found: OnceCell<Answer>,
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
            moment: Arc::new(Mutex::new(Moment {
                manifest: Some(number),
                boundary: None,
            })),
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
            Answer::of(found).await
        });
        Some(read.await.map(|answer| answer.clone().give()))
    }

    fn is_later(&self, location: &Path) -> bool {
        let moment = self.moment.lock().manifest;
        number(location).is_some_and(|number| moment.is_some_and(|moment| number > moment))
    }

    /// Reads the boundary of the moment.
    async fn read_boundary(&self, location: &Path) -> Result<GetResult> {
        if let Some(kept) = self.moment.lock().boundary.clone() {
            return kept.give(location);
        }
        // Without a condition, so that the answer has the number.
        let found = self.inner.get_opts(location, GetOptions::default()).await;
        let known = Known::of(found).await?;
        if let Some(boundary) = known.boundary() {
            let mut moment = self.moment.lock();
            match moment.manifest {
                Some(manifest) if boundary >= manifest => moment.manifest = None,
                Some(_) => moment.boundary = Some(known.clone()),
                None => {}
            }
        }
        known.give(location)
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
            // The only manifest is not behind it.
            return Known::Missing.give(location);
        }
        if location.filename() == Some(BOUNDARY) {
            return self.read_boundary(location).await;
        }
        if !self.is_later(location) {
            let found = self.inner.get_opts(location, options).await?;
            let Some(number) = number(location) else {
                return Ok(found);
            };
            // Another call may have read one meanwhile.
            if *self.moment.lock().manifest.get_or_insert(number) >= number {
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

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    fn manifest(number: u64) -> Path {
        format!("meta/manifest/{number:020}.{MANIFEST}").into()
    }

    fn boundary() -> Path {
        format!("meta/gc/{BOUNDARY}").into()
    }

    async fn listed(store: &StillStore) -> Vec<u64> {
        let folder = Path::from("meta/manifest");
        let listed: Vec<_> = store.list(Some(&folder)).try_collect().await.unwrap();
        let mut numbers: Vec<u64> = listed
            .iter()
            .map(|one| number(&one.location).unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    async fn read_boundary(store: &StillStore) -> Option<String> {
        let found = store.get(&boundary()).await.ok()?.bytes().await.unwrap();
        Some(String::from_utf8(found.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_boundary_belongs_to_the_moment() {
        let bucket = Arc::new(InMemory::new());
        for number in 1..4 {
            bucket.put(&manifest(number), "".into()).await.unwrap();
        }
        let store = StillStore::new(bucket.clone());
        assert_eq!(listed(&store).await, [1, 2, 3]);
        store.get(&manifest(3)).await.unwrap();
        assert_eq!(read_boundary(&store).await, None);
        bucket.put(&manifest(4), "".into()).await.unwrap();
        bucket.put(&boundary(), "3".into()).await.unwrap();
        // Else SlateDB would look for a later manifest without end.
        assert_eq!(read_boundary(&store).await, None);
        assert_eq!(listed(&store).await, [1, 2, 3]);
        assert!(store.get(&manifest(4)).await.is_err());
    }

    #[tokio::test]
    async fn a_manifest_that_the_boundary_has_passed_is_no_moment() {
        let bucket = Arc::new(InMemory::new());
        bucket.put(&manifest(3), "".into()).await.unwrap();
        let store = StillStore::new(bucket.clone());
        store.get(&manifest(3)).await.unwrap();
        bucket.put(&manifest(4), "".into()).await.unwrap();
        bucket.put(&boundary(), "3".into()).await.unwrap();
        assert_eq!(read_boundary(&store).await.as_deref(), Some("3"));
        assert_eq!(listed(&store).await, [3, 4]);
        store.get(&manifest(4)).await.unwrap();
        bucket.put(&manifest(5), "".into()).await.unwrap();
        assert_eq!(read_boundary(&store).await.as_deref(), Some("3"));
        bucket.put(&boundary(), "4".into()).await.unwrap();
        assert_eq!(read_boundary(&store).await.as_deref(), Some("3"));
        assert_eq!(listed(&store).await, [3, 4]);
    }
}
