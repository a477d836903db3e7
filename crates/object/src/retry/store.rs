//! The store through which all requests go.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};

use super::{Body, Kind, Repeat, RetryPolicy};
use crate::Fault;
use crate::error::{empty, generic, short};

/// Objects up to this size are read completely before they are returned, so that the request is repeated if the body
/// breaks off; so are all ranges.
const BUFFERED: u64 = 8 << 20;
/// Most objects that one request may delete.
const DELETE_BATCH: usize = 1000;

/// Extension of a [`PutResult`] if a try before the successful one had no answer: it may still take effect later, even
/// after the object was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnansweredTry;

/// A store whose requests follow the policy of [`super`].
///
/// Bodies of ranges and of small objects arrive whole, with the promised length, or as an error. Listings are collected
/// before they are returned. Conditional puts whose outcome is unknown are not repeated: the caller finds out whether
/// they took effect.
#[derive(Clone)]
pub(crate) struct RetryingStore {
    inner: Arc<dyn ObjectStore>,
    policy: Arc<RetryPolicy>,
}

impl RetryingStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, policy: Arc<RetryPolicy>) -> RetryingStore {
        RetryingStore { inner, policy }
    }

    fn stall_limit(&self) -> Duration {
        self.policy.limit(0)
    }

    /// Deletes objects with one request. Returns one error for all of them unless every deletion is confirmed.
    async fn delete_all(&self, locations: Vec<Path>) -> Vec<Result<Path>> {
        let asked = self
            .policy
            .run(Kind::Change, Repeat::Freely, Body::Nothing, || async {
                let named = stream::iter(locations.clone().into_iter().map(Ok)).boxed();
                let mut answers: Vec<_> = self.inner.delete_stream(named).collect().await;
                // The repeat also names the objects that are deleted already: deleting twice does no harm.
                let failed = answers.iter().position(|answer| {
                    let error = answer.as_ref().err();
                    error.is_some_and(|error| Fault::of(error).is_transient())
                });
                match failed.map(|at| answers.swap_remove(at)) {
                    Some(Err(error)) => Err(error),
                    _ => Ok(answers),
                }
            });
        asked.await.unwrap_or_else(|error| vec![Err(error)])
    }

    /// Reads a body completely; an error if its length differs from the promised one.
    async fn whole(&self, mut result: GetResult, limit: Duration) -> Result<GetResult> {
        let range = result.range.clone();
        let promised = range.end.saturating_sub(range.start);
        let nothing = GetResultPayload::Stream(stream::empty().boxed());
        let body = match mem::replace(&mut result.payload, nothing) {
            GetResultPayload::File(file, _) => {
                let read = tokio::task::spawn_blocking(move || read(file, range.start, promised));
                let read = read.map(|read| read.unwrap_or_else(|died| Err(died.into())));
                // This read shows no progress until its end.
                let limit = self.policy.limit(promised);
                self.policy.in_time(limit, read.map_err(generic)).await?
            }
            GetResultPayload::Stream(parts) => self.collect(parts, promised, limit).await?,
        };
        let got = body.len() as u64;
        if got != promised {
            return Err(short(&result.meta.location, got, promised));
        }
        result.payload = GetResultPayload::Stream(stream::iter([Ok(body)]).boxed());
        Ok(result)
    }

    /// Joins the parts of a body. A single part is returned as it is; several are copied as they arrive, and the client
    /// reads the next one into the same memory. If all were kept until the last one is there, they would take as much
    /// memory as the body once more, new to the process each time.
    async fn collect(
        &self,
        mut parts: BoxStream<'static, Result<Bytes>>,
        promised: u64,
        limit: Duration,
    ) -> Result<Bytes> {
        let first = self.policy.in_time(limit, parts.try_next()).await?;
        let mut first = first.unwrap_or_default();
        let mut whole = Vec::new();
        while let Some(part) = self.policy.in_time(limit, parts.try_next()).await? {
            if whole.is_empty() {
                whole.reserve(expected(promised));
                whole.extend_from_slice(&mem::take(&mut first));
            }
            whole.extend_from_slice(&part);
        }
        Ok(match whole.is_empty() {
            true => first,
            false => whole.into(),
        })
    }

    async fn list_whole<'a>(
        &'a self,
        list: impl Fn() -> BoxStream<'static, Result<ObjectMeta>> + 'a,
    ) -> Result<Vec<ObjectMeta>> {
        let listed = self
            .policy
            .run(Kind::Read, Repeat::Freely, Body::Nothing, || {
                list().try_collect::<Vec<_>>()
            })
            .await;
        listed.inspect_err(|error| self.policy.words.note_read(error))
    }
}

/// Forwards a large body; an error if it stops moving, or ends elsewhere than it should.
fn guarded(result: GetResult, policy: Arc<RetryPolicy>, limit: Duration) -> GetResult {
    let (meta, range) = (result.meta.clone(), result.range.clone());
    let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
    let location = meta.location.clone();
    let promised = range.end.saturating_sub(range.start);
    let body = stream::try_unfold((result.into_stream(), 0), move |(mut chunks, got)| {
        let (location, policy) = (location.clone(), Arc::clone(&policy));
        async move {
            match policy.in_time(limit, chunks.try_next()).await? {
                Some(chunk) => {
                    let got = got + chunk.len() as u64;
                    Ok(Some((chunk, (chunks, got))))
                }
                None if got == promised => Ok(None),
                None => Err(short(&location, got, promised)),
            }
        }
    });
    GetResult {
        payload: GetResultPayload::Stream(body.boxed()),
        meta,
        range,
        attributes,
        extensions,
    }
}

/// Reads `promised` bytes of a file from `start` on, or fewer at its end.
fn read(mut file: File, start: u64, promised: u64) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(expected(promised));
    file.seek(SeekFrom::Start(start))?;
    file.take(promised).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Initial memory for a body with this promised length: a server may promise anything.
fn expected(promised: u64) -> usize {
    promised.min(BUFFERED) as usize
}

impl fmt::Debug for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryingStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for RetryingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let repeat = match options.mode {
            PutMode::Overwrite => Repeat::Freely,
            PutMode::Create | PutMode::Update(_) => Repeat::IfNothingWasDone,
        };
        let body = Body::Up(payload.content_length() as u64);
        let put = self.policy.run_telling(Kind::Change, repeat, body, || {
            self.inner
                .put_opts(location, payload.clone(), options.clone())
        });
        let put = put.await;
        let (mut result, is_doubtful) =
            put.inspect_err(|error| self.policy.words.note_write(error))?;
        if is_doubtful {
            result.extensions.insert(UnansweredTry);
        }
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self
            .policy
            .run(Kind::Change, Repeat::Freely, Body::Nothing, || {
                self.inner.put_multipart_opts(location, options.clone())
            })
            .await;
        let inner = begun.inspect_err(|error| self.policy.words.note_write(error))?;
        Ok(Box::new(RetryingUpload {
            inner,
            policy: Arc::clone(&self.policy),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if let Some(GetRange::Bounded(range)) = &options.range
            && range.is_empty()
        {
            return Err(empty(location));
        }
        let limit = self.stall_limit();
        let ranged = options.range.is_some();
        // Each pause of a body has its own limit, so the whole body may take any time.
        let body = match options.head {
            true => Body::Nothing,
            false => Body::Down(BUFFERED),
        };
        let got = self
            .policy
            .run(Kind::Read, Repeat::Freely, body, || async {
                let asked = self.inner.get_opts(location, options.clone());
                let result = self.policy.in_time(limit, asked).await?;
                if options.head {
                    Ok(result)
                } else if ranged || result.meta.size <= BUFFERED {
                    self.whole(result, limit).await
                } else {
                    Ok(guarded(result, Arc::clone(&self.policy), limit))
                }
            })
            .await;
        got.inspect_err(|error| self.policy.words.note_read(error))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .ready_chunks(DELETE_BATCH)
            .then(move |batch| {
                let store = store.clone();
                async move {
                    let (named, mut failed): (Vec<_>, Vec<_>) =
                        batch.into_iter().partition(Result::is_ok);
                    let named: Vec<Path> = named.into_iter().flatten().collect();
                    let mut answers = if named.is_empty() {
                        Vec::new()
                    } else {
                        store.delete_all(named).await
                    };
                    answers.append(&mut failed);
                    stream::iter(answers)
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        listed(async move { store.list_whole(|| store.inner.list(prefix.as_ref())).await })
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix, offset) = (self.clone(), prefix.cloned(), offset.clone());
        listed(async move {
            store
                .list_whole(|| store.inner.list_with_offset(prefix.as_ref(), &offset))
                .await
        })
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self
            .policy
            .run(Kind::Read, Repeat::Freely, Body::Nothing, || {
                self.inner.list_with_delimiter(prefix)
            })
            .await;
        listed.inspect_err(|error| self.policy.words.note_read(error))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let repeat = match options.mode {
            CopyMode::Overwrite => Repeat::Freely,
            CopyMode::Create => Repeat::IfNothingWasDone,
        };
        let copied = self
            .policy
            .run(Kind::Change, repeat, Body::Nothing, || {
                self.inner.copy_opts(from, to, options.clone())
            })
            .await;
        copied.inspect_err(|error| self.policy.words.note_write(error))
    }
}

fn listed(
    all: impl Future<Output = Result<Vec<ObjectMeta>>> + Send + 'static,
) -> BoxStream<'static, Result<ObjectMeta>> {
    stream::once(all)
        .map_ok(|all| stream::iter(all.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

/// An upload in parts. The trait has no way to repeat a part; the store on S3 does that itself.
#[derive(Debug)]
struct RetryingUpload {
    inner: Box<dyn MultipartUpload>,
    policy: Arc<RetryPolicy>,
}

#[async_trait]
impl MultipartUpload for RetryingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let body = Body::Up(data.content_length() as u64);
        let part = self.inner.put_part(data);
        let policy = Arc::clone(&self.policy);
        Box::pin(async move {
            let put = policy.once(Kind::Change, false, body, part).await;
            put.inspect_err(|error| policy.words.note_write(error))
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let completed = self
            .policy
            .once(Kind::Change, false, Body::Nothing, self.inner.complete())
            .await;
        completed.inspect_err(|error| self.policy.words.note_write(error))
    }

    async fn abort(&mut self) -> Result<()> {
        self.policy
            .once(Kind::Change, false, Body::Nothing, self.inner.abort())
            .await
    }
}
