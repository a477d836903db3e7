//! The store that carries out the plan of faults.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::to_usize;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use parking_lot::Mutex;

use super::{FaultKind, Faults, Request};
use crate::s3::error::{Words, sorted};
use crate::{CountingStore, RequestCounts};

/// Earlier listings, by prefix.
type Listings = Arc<Mutex<HashMap<String, Vec<ObjectMeta>>>>;

/// A store that fails according to its [`Faults`]. Clones share everything.
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: CountingStore,
    faults: Arc<Faults>,
    listings: Listings,
}

impl FaultyStore {
    /// Wraps `inner` with these faults.
    pub fn new(inner: Arc<dyn ObjectStore>, faults: Arc<Faults>) -> FaultyStore {
        FaultyStore {
            inner: CountingStore::new(inner),
            faults,
            listings: Arc::default(),
        }
    }

    /// The requests that reached the store behind; requests that failed before that are not counted.
    pub fn counts(&self) -> RequestCounts {
        self.inner.counts()
    }

    /// Applies the faults that come before a request; returns a fault that comes after it.
    async fn before(&self, request: Request, location: &str) -> Result<(Option<FaultKind>, u64)> {
        if self.faults.is_down() {
            return Err(io_error("the store is down"));
        }
        let (kind, drawn) = self.faults.draw(request, location);
        if let Some(
            kind @ (FaultKind::ServerError
            | FaultKind::SlowDown
            | FaultKind::Hang
            | FaultKind::Reset
            | FaultKind::SeemsCut
            | FaultKind::Refused),
        ) = kind
        {
            self.faults.injected_one(kind);
            return Err(match kind {
                FaultKind::ServerError => server_error(location),
                FaultKind::SlowDown => slow_down(location),
                FaultKind::Reset => io_error("connection reset by peer"),
                FaultKind::SeemsCut => seems_cut(location),
                FaultKind::Refused => refused(location, "no permission"),
                _ => std::future::pending().await,
            });
        }
        Ok((kind, drawn))
    }

    /// The answer to a request that took effect.
    fn answer<T>(&self, kind: Option<FaultKind>, location: &str, result: Result<T>) -> Result<T> {
        match kind {
            Some(kind @ FaultKind::LostAnswer) if result.is_ok() => {
                self.faults.injected_one(kind);
                Err(server_error(location))
            }
            _ => result,
        }
    }

    async fn before_put(&self, location: &Path) -> Result<Option<FaultKind>> {
        self.faults.everything.pass().await;
        if is_pack(location) {
            &self.faults.pack_puts
        } else {
            &self.faults.meta_puts
        }
        .pass()
        .await;
        if is_manifest(location) {
            self.faults.manifest_puts.pass().await;
        }
        Ok(self.before(Request::Put, location.as_ref()).await?.0)
    }

    async fn delete_one(&self, location: Path) -> Result<Path> {
        let _under_way = self.faults.under_way();
        self.faults.everything.pass().await;
        if is_pack(&location) {
            self.faults.pack_deletes.pass().await;
        }
        if self.faults.refuses_deletes() {
            return Err(refused(location.as_ref(), "no right to delete"));
        }
        let (kind, _) = self.before(Request::Delete, location.as_ref()).await?;
        let named = stream::iter([Ok(location.clone())]).boxed();
        let deleted = self
            .inner
            .delete_stream(named)
            .try_collect::<Vec<_>>()
            .await;
        self.answer(kind, location.as_ref(), deleted.map(|_| location.clone()))
    }

    async fn list_now(
        &self,
        name: String,
        listing: BoxStream<'static, Result<ObjectMeta>>,
    ) -> Result<Vec<ObjectMeta>> {
        let _under_way = self.faults.under_way();
        let (kind, _) = self.before(Request::List, &name).await?;
        if let Some(kind @ FaultKind::StaleList) = kind {
            let earlier = self.listings.lock().get(&name).cloned();
            if let Some(earlier) = earlier {
                self.faults.injected_one(kind);
                return Ok(earlier);
            }
        }
        let now: Vec<ObjectMeta> = listing.try_collect().await?;
        if is_pack_folder(&name) {
            self.faults.packs_listed();
        }
        self.listings.lock().insert(name, now.clone());
        Ok(now)
    }
}

fn is_pack(location: &Path) -> bool {
    location.as_ref().contains("packs/")
}

fn is_pack_folder(prefix: &str) -> bool {
    prefix.split('/').next_back() == Some("packs")
}

fn is_manifest(location: &Path) -> bool {
    location.as_ref().contains("/manifest/")
}

fn io_error(why: &'static str) -> Error {
    Error::Generic {
        store: "faulty",
        source: Box::new(io::Error::other(why)),
    }
}

fn server_error(location: &str) -> Error {
    let words = Words {
        status: 500,
        code: Some("InternalError"),
        ..Words::default()
    };
    sorted(location, words)
}

fn slow_down(location: &str) -> Error {
    let words = Words {
        status: 503,
        code: Some("SlowDown"),
        ..Words::default()
    };
    sorted(location, words)
}

fn refused(location: &str, why: &'static str) -> Error {
    Error::PermissionDenied {
        path: location.to_owned(),
        source: why.into(),
    }
}

fn seems_cut(location: &str) -> Error {
    let words = Words {
        status: 416,
        code: Some("InvalidRange"),
        ..Words::default()
    };
    sorted(location, words)
}

/// The same answer with another body.
async fn altered(result: GetResult, change: impl FnOnce(&mut Vec<u8>)) -> Result<GetResult> {
    let (meta, range) = (result.meta.clone(), result.range.clone());
    let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
    let mut body = result.bytes().await?.to_vec();
    change(&mut body);
    let body = Bytes::from(body);
    Ok(GetResult {
        payload: GetResultPayload::Stream(stream::once(async { Ok(body) }).boxed()),
        meta,
        range,
        attributes,
        extensions,
    })
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let _under_way = self.faults.under_way_with(payload.content_length());
        let kind = self.before_put(location).await?;
        let result = self.inner.put_opts(location, payload, options).await;
        self.answer(kind, location.as_ref(), result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let _under_way = self.faults.under_way();
        self.before_put(location).await?;
        let inner = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(FaultyUpload {
            inner,
            location: location.clone(),
            store: self.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let _under_way = self.faults.under_way();
        self.faults.everything.pass().await;
        if is_pack(location) {
            if options.head {
                self.faults.pack_looks.pass().await;
            }
            self.faults.pass_pack_get(location.as_ref()).await;
        }
        let (kind, drawn) = self.before(Request::Get, location.as_ref()).await?;
        let head = options.head;
        let result = self.inner.get_opts(location, options).await?;
        let at = |len: usize| to_usize(drawn) % len.max(1);
        match kind {
            Some(kind @ FaultKind::ShortBody) if !head => {
                self.faults.injected_one(kind);
                altered(result, |body| body.truncate(at(body.len()))).await
            }
            Some(kind @ FaultKind::WrongBytes) if !head => {
                self.faults.injected_one(kind);
                altered(result, |body| {
                    let at = at(body.len());
                    if let Some(byte) = body.get_mut(at) {
                        *byte ^= 1 << (drawn >> 61);
                    }
                })
                .await
            }
            _ => Ok(result),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move { store.delete_one(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let name = prefix.map(Path::to_string).unwrap_or_default();
        let (store, listing) = (self.clone(), self.inner.list(prefix));
        stream::once(async move { store.list_now(name, listing).await })
            .map_ok(|all| stream::iter(all.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let _under_way = self.faults.under_way();
        let name = prefix.map(Path::to_string).unwrap_or_default();
        self.before(Request::List, &name).await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _under_way = self.faults.under_way();
        let (kind, _) = self.before(Request::Copy, to.as_ref()).await?;
        let result = self.inner.copy_opts(from, to, options).await;
        self.answer(kind, to.as_ref(), result)
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    location: Path,
    store: FaultyStore,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (store, location) = (self.store.clone(), self.location.clone());
        let part = self.inner.put_part(data);
        Box::pin(async move {
            let _under_way = store.faults.under_way();
            let (kind, _) = store.before(Request::Put, location.as_ref()).await?;
            store.answer(kind, location.as_ref(), part.await)
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _under_way = self.store.faults.under_way();
        let location = self.location.as_ref();
        let (kind, _) = self.store.before(Request::Put, location).await?;
        let result = self.inner.complete().await;
        self.store.answer(kind, location, result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
