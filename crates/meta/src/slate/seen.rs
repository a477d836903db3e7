//! What a reader saw, for the opening for writing that follows it.
//!
//! An opening first reads the state, to refuse a volume before it changes anything, and then opens the store for
//! writing. Without this, SlateDB would ask for everything a second time, one request after the other. Here the answers
//! that the reader got are given to the writer, each once, as if it had asked at that time:
//!
//! ```text
//!  the reader               list, manifest N, boundary, parts of tables
//!  the opening for writing  list, manifest N, boundary          answered with what was seen
//!                           create manifest N+1                 the fence
//!                           boundary, and at once manifest N+2  one round trip
//!                           is there an N+2? boundary           answered with the two of the line before
//!                           parts of tables                     answered with what was seen
//! ```
//!
//! The order that fencing needs is SlateDB's own:
//!
//! * The fence is the creation of manifest N+1, which fails if another gateway has created it since manifest N was read.
//!   Then nothing is remembered any more, and SlateDB asks the bucket for everything.
//! * The boundary up to which manifests may have been deleted is asked for after N+1 was created, never before: it tells a
//!   writer that was held up whether its manifest took the place of one that was deleted.
//! * The look for N+2 is sent after N+1 was created as well. A gateway that opens the store later fences this one, which
//!   its next commit finds out, since that creates N+2.
//!
//! What was seen is forgotten after [`FRESH`], and once the store is open, except for parts of tables, which never
//! change; those go with the first table that is written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::{BoxStream, iter};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::MANIFEST;
use super::still::{BOUNDARY, number};

/// How long answers are used: shorter than objects that were replaced stay in the bucket.
const FRESH: Duration = Duration::from_secs(30);
/// Most bytes of parts of tables that are remembered.
const ROOM: usize = 1 << 20;
/// Extension of the names of tables.
const TABLE: &str = "sst";

/// What a reader saw. Clones share it.
#[derive(Clone, Debug)]
pub struct Seen {
    since: Instant,
    answers: Arc<Mutex<Answers>>,
}

#[derive(Debug, Default)]
struct Answers {
    /// The newest manifest.
    manifest: Option<(u64, Answer)>,
    boundary: Option<Known>,
    /// Parts of tables, by name and range.
    parts: Vec<(Path, Range<u64>, Answer)>,
    /// Bytes in `parts`.
    bytes: usize,
}

/// What is known of an object that may be missing.
#[derive(Clone, Debug)]
enum Known {
    There(Answer),
    Missing,
    /// It is what SlateDB has read before.
    Unmodified,
}

impl Known {
    async fn of(answer: Result<GetResult>) -> Result<Known> {
        match answer {
            Ok(found) => Ok(Known::There(Answer::of(found).await?)),
            Err(Error::NotFound { .. }) => Ok(Known::Missing),
            Err(Error::NotModified { .. }) => Ok(Known::Unmodified),
            Err(error) => Err(error),
        }
    }

    fn give(self, location: &Path) -> Result<GetResult> {
        let (path, source) = (location.to_string(), "by an answer of a moment ago".into());
        match self {
            Known::There(answer) => Ok(answer.give()),
            Known::Missing => Err(Error::NotFound { path, source }),
            Known::Unmodified => Err(Error::NotModified { path, source }),
        }
    }
}

/// The answer to a GET.
#[derive(Clone, Debug)]
struct Answer {
    meta: ObjectMeta,
    range: Range<u64>,
    bytes: Bytes,
}

impl Answer {
    async fn of(found: GetResult) -> Result<Answer> {
        let (meta, range) = (found.meta.clone(), found.range.clone());
        let bytes = found.bytes().await?;
        Ok(Answer { meta, range, bytes })
    }

    fn give(self) -> GetResult {
        GetResult {
            payload: GetResultPayload::Stream(iter([Ok(self.bytes)]).boxed()),
            meta: self.meta,
            range: self.range,
            attributes: Attributes::new(),
            extensions: Extensions::new(),
        }
    }
}

impl Answers {
    fn note_part(&mut self, part: (Path, Range<u64>, Answer)) {
        // It may have been read before, and arrived damaged.
        let mut parts = self.parts.iter();
        if let Some(at) = parts.position(|one| one.0 == part.0 && one.1 == part.1) {
            self.take_part(at);
        }
        if self.bytes + part.2.bytes.len() <= ROOM {
            self.bytes += part.2.bytes.len();
            self.parts.push(part);
        }
    }

    fn take_part(&mut self, at: usize) -> Answer {
        let (.., answer) = self.parts.swap_remove(at);
        self.bytes -= answer.bytes.len();
        answer
    }
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            since: Instant::now(),
            answers: Arc::default(),
        }
    }
}

impl Seen {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < FRESH
    }

    /// Whether the answer to this request is worth a note, before it is made.
    fn concerns(location: &Path, options: &GetOptions) -> bool {
        let is_part = matches!(options.range, Some(GetRange::Bounded(_)));
        let is_whole = options.range.is_none();
        !options.head
            && match location.extension() {
                Some(TABLE) => is_part,
                _ => {
                    is_whole
                        && (number(location).is_some() || location.filename() == Some(BOUNDARY))
                }
            }
    }

    fn note(&self, location: &Path, options: &GetOptions, known: &Known) {
        let mut answers = self.answers.lock();
        if location.filename() == Some(BOUNDARY) {
            // An opening asks for it without a condition first: it needs the boundary itself.
            if !matches!(known, Known::Unmodified) {
                answers.boundary = Some(known.clone());
            }
            return;
        }
        let Known::There(answer) = known else {
            return;
        };
        if let Some(number) = number(location) {
            answers.manifest = Some((number, answer.clone()));
        } else if let Some(GetRange::Bounded(range)) = &options.range {
            let part = (location.clone(), range.clone(), answer.clone());
            answers.note_part(part);
        }
    }

    /// A part of a table, which is given once.
    fn part(&self, location: &Path, options: &GetOptions) -> Option<Answer> {
        let Some(GetRange::Bounded(range)) = &options.range else {
            return None;
        };
        let mut answers = self.answers.lock();
        let mut parts = answers.parts.iter();
        let at = parts.position(|part| part.0 == *location && part.1 == *range)?;
        Some(answers.take_part(at))
    }

    fn forget_state(&self) {
        let mut answers = self.answers.lock();
        answers.manifest = None;
        answers.boundary = None;
    }
}

/// How far an opening has come.
#[derive(Debug)]
enum Phase {
    /// It reads what was seen.
    Begins,
    /// It has created this manifest.
    Created(u64),
    /// There was no manifest with this number after the one before was created; with the boundary of that moment.
    Looked(u64, Known),
    /// SlateDB has been told that; the boundary is asked for once more.
    Told(Known),
    /// The bucket answers.
    Over,
}

/// A store that notes what is read through it, or gives what was noted to an opening.
#[derive(Debug)]
pub(super) struct SeenStore {
    inner: Arc<dyn ObjectStore>,
    path: Path,
    seen: Seen,
    /// Of an opening; `None` for a reader.
    opening: Option<Mutex<Phase>>,
    /// Whether nothing is left to be given.
    is_over: AtomicBool,
}

impl SeenStore {
    /// Notes what is read of the store under `path`.
    pub(super) fn noting(inner: Arc<dyn ObjectStore>, path: Path, seen: Seen) -> SeenStore {
        SeenStore {
            inner,
            path,
            seen,
            opening: None,
            is_over: AtomicBool::new(false),
        }
    }

    /// Gives what was `seen` to an opening.
    pub(super) fn giving(inner: Arc<dyn ObjectStore>, path: Path, seen: Option<Seen>) -> SeenStore {
        let seen = seen.filter(Seen::is_fresh).unwrap_or_default();
        SeenStore {
            opening: Some(Mutex::new(Phase::Begins)),
            ..SeenStore::noting(inner, path, seen)
        }
    }

    /// The store is open: the state is what the bucket says from here on.
    pub(super) fn end_opening(&self) {
        self.seen.forget_state();
        if let Some(phase) = &self.opening {
            *phase.lock() = Phase::Over;
        }
    }

    async fn read_and_note(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let known = Known::of(self.inner.get_opts(location, options.clone()).await).await?;
        self.seen.note(location, &options, &known);
        known.give(location)
    }

    /// Answers an opening without a request, if that is possible.
    fn given(&self, phase: &Mutex<Phase>, location: &Path) -> Option<Result<GetResult>> {
        let mut phase = phase.lock();
        let is_boundary = location.filename() == Some(BOUNDARY);
        match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Begins => {
                *phase = Phase::Begins;
                let mut answers = self.seen.answers.lock();
                if is_boundary {
                    // Without a manifest that was seen before, this is a later question.
                    return Some(answers.boundary.take()?.give(location));
                }
                let number = number(location)?;
                let known = answers.manifest.take_if(|known| known.0 == number)?;
                Some(Ok(known.1.give()))
            }
            Phase::Looked(next, boundary) if number(location) == Some(next) => {
                *phase = Phase::Told(boundary);
                Some(Known::Missing.give(location))
            }
            Phase::Told(boundary) if is_boundary => Some(boundary.give(location)),
            Phase::Created(number) if is_boundary => {
                *phase = Phase::Created(number);
                None
            }
            _ => None,
        }
    }

    /// Asks for the boundary, and in the same round trip whether there is a manifest after `number`.
    async fn look(
        &self,
        phase: &Mutex<Phase>,
        number: u64,
        boundary: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let next = format!("{:020}.{MANIFEST}", number + 1);
        let next = self.path.clone().join(MANIFEST).join(next);
        let after = self.inner.get_opts(&next, GetOptions::default());
        let (found, after) = join(self.inner.get_opts(boundary, options), after).await;
        let is_last = matches!(after, Err(Error::NotFound { .. }));
        let known = match Known::of(found).await {
            Ok(known) => known,
            Err(error) => {
                *phase.lock() = Phase::Over;
                return Err(error);
            }
        };
        *phase.lock() = match is_last {
            true => Phase::Looked(number + 1, known.clone()),
            false => Phase::Over,
        };
        known.give(boundary)
    }
}

impl fmt::Display for SeenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeenStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for SeenStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_creation = matches!(options.mode, PutMode::Create);
        let put = self.inner.put_opts(location, payload, options).await;
        if self.is_over.load(Ordering::Acquire) {
            return put;
        }
        if location.extension() == Some(TABLE) {
            self.is_over.store(true, Ordering::Release);
            *self.seen.answers.lock() = Answers::default();
        } else if let (Some(number), Some(phase)) = (number(location), &self.opening) {
            self.seen.forget_state();
            let mut phase = phase.lock();
            // The first manifest of all is not the fence.
            let is_fence = put.is_ok() && is_creation && number > 1;
            *phase = match (&*phase, is_fence) {
                (Phase::Begins, true) => Phase::Created(number),
                (Phase::Begins, false) if put.is_ok() => Phase::Begins,
                _ => Phase::Over,
            };
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_over.load(Ordering::Acquire) || !Seen::concerns(location, &options) {
            return self.inner.get_opts(location, options).await;
        }
        let Some(phase) = &self.opening else {
            return self.read_and_note(location, options).await;
        };
        if let Some(part) = self.seen.part(location, &options) {
            return Ok(part.give());
        }
        if options.range.is_some() {
            return self.inner.get_opts(location, options).await;
        }
        if let Some(given) = self.given(phase, location) {
            return given;
        }
        let created = match &*phase.lock() {
            Phase::Created(number) => Some(*number),
            _ => None,
        };
        match created {
            Some(number) => self.look(phase, number, location, options).await,
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
        let is_over = self.is_over.load(Ordering::Acquire) || self.opening.is_none();
        let manifests = self.path.clone().join(MANIFEST);
        if !is_over && prefix == Some(&manifests) {
            // It is given once: the manifest is taken when it is read.
            let answers = self.seen.answers.lock();
            if let Some((_, newest)) = &answers.manifest {
                return iter([Ok(newest.meta.clone())]).boxed();
            }
        }
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
