//! What a reader asks for first, asked for ahead: before the keys of the volume are known.
//!
//! A reader takes three round trips before it reads a table: a listing of the manifests, the newest manifest, and the boundary
//! of the collector. None of them needs the descriptor of the volume or its keys. So an opening has them read beside the
//! descriptor, and the reader then gets each answer from memory, once:
//!
//! ```text
//!  descriptor     | keys of a sealed volume
//!  list manifests | manifest N and boundary
//!                                             the reader: list, manifest N, boundary from memory, then tables
//! ```
//!
//! The answers are as the bucket gives them: the reader checks or opens them as it does with all others, and asks the bucket
//! again for an object that arrived damaged. They are a few round trips older than without this. That changes nothing: a reader
//! shows a moment of the past anyway. If a collector has moved the boundary past manifest N and has deleted tables meanwhile, the
//! reader fails as it does if that happens a moment later.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join;
use futures_util::stream::{BoxStream, iter};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::MANIFEST;
use super::answer::Known;
use super::seen::Seen;
use super::still::{BOUNDARY, number};

/// The folder of the collector's boundary, below that of the store.
const COLLECTOR: &str = "gc";

/// The state of a store, read ahead of its reader.
#[derive(Debug)]
pub struct Ahead {
    manifests: Path,
    listed: Vec<ObjectMeta>,
    /// The newest manifest and the boundary, with their names.
    found: Vec<(Path, Known)>,
}

impl Ahead {
    /// Reads the state of the store under `path`, in two round trips. `None` if that fails: the reader then asks itself.
    pub async fn read(store: &dyn ObjectStore, path: &Path) -> Option<Ahead> {
        let manifests = path.clone().join(MANIFEST);
        let listed: Vec<_> = store.list(Some(&manifests)).try_collect().await.ok()?;
        let newest = listed
            .iter()
            .filter_map(|object| Some((number(&object.location)?, &object.location)))
            .max_by_key(|newest| newest.0);
        let mut found = Vec::new();
        if let Some((_, newest)) = newest {
            let boundary = path.clone().join(COLLECTOR).join(BOUNDARY);
            let (manifest, passed) = join(get(store, newest), get(store, &boundary)).await;
            // A collector may have deleted the manifest since the listing.
            let manifest = manifest.filter(|manifest| matches!(manifest, Known::There(_)));
            found = vec![(newest.clone(), manifest?), (boundary, passed?)];
        }
        Some(Ahead {
            manifests,
            listed,
            found,
        })
    }

    /// What an opening for writing may take from it if no reader comes before it: that there is no store yet.
    pub fn seen(&self) -> Option<Seen> {
        self.listed.is_empty().then(Seen::of_nothing)
    }
}

async fn get(store: &dyn ObjectStore, location: &Path) -> Option<Known> {
    let found = store.get_opts(location, GetOptions::default()).await;
    Known::of(found).await.ok()
}

/// A store that answers from what was read ahead.
#[derive(Debug)]
pub(super) struct AheadStore {
    inner: Arc<dyn ObjectStore>,
    ahead: Mutex<Option<Ahead>>,
}

impl AheadStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, ahead: Option<Ahead>) -> AheadStore {
        AheadStore {
            inner,
            ahead: Mutex::new(ahead),
        }
    }

    /// The answer to a GET of a whole object.
    fn take(&self, location: &Path, options: &GetOptions) -> Option<Known> {
        let is_plain = options.range.is_none() && !options.head && options.if_none_match.is_none();
        let mut ahead = self.ahead.lock();
        let found = &mut ahead.as_mut().filter(|_| is_plain)?.found;
        let at = found.iter().position(|one| one.0 == *location)?;
        Some(found.swap_remove(at).1)
    }

    /// The answer to a listing of the manifests.
    fn take_list(&self, prefix: Option<&Path>) -> Option<Vec<ObjectMeta>> {
        let mut ahead = self.ahead.lock();
        let ahead = ahead.as_mut()?;
        let is_asked = prefix == Some(&ahead.manifests);
        let listed = is_asked.then(|| std::mem::take(&mut ahead.listed));
        listed.filter(|listed| !listed.is_empty())
    }
}

impl fmt::Display for AheadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AheadStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for AheadStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
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
        match self.take(location, &options) {
            Some(known) => known.give(location),
            None => self.inner.get_opts(location, options).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.take_list(prefix) {
            Some(listed) => iter(listed.into_iter().map(Ok)).boxed(),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
