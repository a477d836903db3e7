//! What a reader saw, for the opening for writing that follows it.
//!
//! A gateway first reads the state, to refuse a volume before it changes anything. Then it opens the store for writing.
//! SlateDB would then ask for everything a second time, one request after the other. This module notes the answers that the
//! reader gets and gives each of them to the writer once:
//!
//! ```text
//!  the reader               list, manifest N, boundary, parts of tables
//!  the opening for writing  list, manifest N, boundary          from memory
//!                           create manifest N+1                 the fence
//!                           boundary                            and with it manifest N, in the same round trip
//!                           is there an N+2? boundary           from memory: see `own.rs`
//!                           parts of tables                     from memory
//! ```
//!
//! # Why this is safe
//!
//! Two gateways must never both write. SlateDB's order keeps them apart, and it stays as it is:
//!
//! * The fence is the creation of manifest N+1. It fails if another gateway has created N+1 already. Then SlateDB reads the
//!   newest manifest from the bucket and tries the next number. Nothing of the state is given from memory after the first
//!   attempt.
//! * The collector deletes old manifests, so a creation also succeeds where a manifest was deleted. The collector moves the
//!   boundary before it deletes. SlateDB asks for the boundary after each creation, and a manifest that the boundary has passed
//!   does not count. So the boundary is always asked for after the creation, never before.
//! * A gateway that opens the store later creates N+2. Then the next commit of this gateway, which creates N+2 too, fails, and
//!   SlateDB finds that it is fenced.
//!
//! One case is new. Seconds may lie between the reading of manifest N and the creation of N+1, because the gateway scans its log
//! in between. If someone puts the bucket back to an earlier state in these seconds, or empties it, the creation succeeds, and
//! N+1 names tables that are not there. So the opening also asks whether manifest N is still the one that was read. If it is not,
//! and the boundary has not passed it either, the opening fails ([`PutBack`]).
//!
//! # What is forgotten
//!
//! Answers that are older than [`FRESH`] are not given. When the store is open, the state is forgotten. Parts of tables are kept
//! until the first table is written: tables never change.

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
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use slatedb_common::retry::NonRetryable;
use tokio::time::Instant;

use super::MANIFEST;
use super::answer::{Answer, Known};
use super::still::{BOUNDARY, number};

/// How long answers are used. Safety does not depend on it: the creation of the next manifest fails where one is, and the
/// boundary tells where one was deleted. But after a while another gateway has probably written, and old answers only add
/// requests.
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
    /// There was no manifest.
    is_empty: bool,
    /// The newest manifest.
    manifest: Option<(u64, Answer)>,
    boundary: Option<Known>,
    /// Parts of tables, by name and range.
    parts: Vec<(Path, Range<u64>, Answer)>,
    /// Bytes in `parts`.
    bytes: usize,
}

/// The bucket was put back to an earlier state while its metadata were opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "while this gateway was opening the metadata, the bucket was put back to an earlier state or emptied: {read}, which it \
     began with, is not there any more. It has written {made} after it, which does not belong to the state that is there now. \
     Stop all gateways of this volume, then delete {made} from the bucket, or put the bucket back once more; then start one \
     gateway"
)]
pub(super) struct PutBack {
    read: Path,
    made: Path,
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
    /// A listing has shown that there is no manifest: the first opening for writing need not look for one. If another gateway has
    /// made one meanwhile, the creation of the first manifest fails.
    pub(super) fn of_nothing() -> Seen {
        let seen = Seen::default();
        seen.answers.lock().is_empty = true;
        seen
    }

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
        answers.is_empty = false;
        answers.manifest = None;
        answers.boundary = None;
    }
}

/// How far an opening has come.
#[derive(Debug)]
enum Phase {
    /// It reads the state. With the manifest that was given to it from memory.
    Begins(Option<ObjectMeta>),
    /// It has asked for the creation of the manifest with this number; it may have been told that this failed.
    Creates(u64, Option<ObjectMeta>),
    /// The bucket answers.
    Over,
}

/// How a GET is answered.
enum Step {
    Give(Result<GetResult>),
    /// By a look after the creation of this manifest, which follows the one that was given from memory.
    Look(u64, Option<ObjectMeta>),
    Ask,
}

/// A store that notes what is read through it (for a reader), or gives what was noted to an opening.
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
            opening: Some(Mutex::new(Phase::Begins(None))),
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

    /// How a GET of an opening is answered, of a manifest or the boundary.
    fn step(&self, phase: &Mutex<Phase>, location: &Path) -> Step {
        let mut phase = phase.lock();
        let is_boundary = location.filename() == Some(BOUNDARY);
        match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Begins(given) => {
                let mut answers = self.seen.answers.lock();
                let (given, known) = if is_boundary {
                    (given, answers.boundary.take())
                } else {
                    let number = number(location);
                    let noted = answers.manifest.take_if(|noted| Some(noted.0) == number);
                    match noted {
                        Some((_, answer)) => {
                            (Some(answer.meta.clone()), Some(Known::There(answer)))
                        }
                        None => (given, None),
                    }
                };
                *phase = Phase::Begins(given);
                known.map_or(Step::Ask, |known| Step::Give(known.give(location)))
            }
            Phase::Creates(number, given) if is_boundary => {
                *phase = Phase::Creates(number, given.clone());
                Step::Look(number, given)
            }
            // SlateDB has found out that another gateway created the manifest: it begins again.
            _ => Step::Ask,
        }
    }

    fn manifest(&self, number: u64) -> Path {
        let name = format!("{number:020}.{MANIFEST}");
        self.path.clone().join(MANIFEST).join(name)
    }

    /// Asks for the boundary, and in the same round trip whether the manifest that was given from memory is still there.
    ///
    /// # Errors
    /// Those of the bucket: then SlateDB asks again, and so does this. [`PutBack`] for good.
    async fn look(
        &self,
        phase: &Mutex<Phase>,
        (number, given): (u64, Option<ObjectMeta>),
        boundary: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let found = self.inner.get_opts(boundary, options);
        let (found, stayed) = join(found, self.stayed(given.as_ref())).await;
        let mut known = Known::of(found).await?;
        if let Some(given) = given
            && !stayed?
        {
            // A collector may have deleted the manifest after the boundary was read above.
            let found = self.inner.get_opts(boundary, GetOptions::default()).await;
            known = Known::of(found).await?;
            let is_passed = known.boundary() >= self::number(&given.location);
            if !is_passed {
                let (read, made) = (given.location, self.manifest(number));
                let source = NonRetryable(Box::new(PutBack { read, made }));
                return Err(Error::Generic {
                    store: "seen",
                    source: Box::new(source),
                });
            }
        }
        *phase.lock() = Phase::Over;
        known.give(boundary)
    }

    /// Whether a manifest that was read is still there, as it was read.
    async fn stayed(&self, given: Option<&ObjectMeta>) -> Result<bool> {
        let Some(given) = given else {
            return Ok(true);
        };
        match self.inner.get_opts(&given.location, head()).await {
            Ok(found) => {
                let (now, then) = (&found.meta.e_tag, &given.e_tag);
                Ok(now.is_none() || then.is_none() || now == then)
            }
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn head() -> GetOptions {
    GetOptions {
        head: true,
        ..GetOptions::default()
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
            *phase = match std::mem::replace(&mut *phase, Phase::Over) {
                // The first manifest of all is not the fence.
                Phase::Begins(given) if number == 1 => Phase::Begins(given),
                // Also if it failed: it may have succeeded, with an answer that was lost. Then SlateDB finds out, and asks for the
                // boundary.
                Phase::Begins(given) | Phase::Creates(_, given) if is_creation => {
                    Phase::Creates(number, given)
                }
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
        match self.step(phase, location) {
            Step::Give(answer) => answer,
            Step::Look(number, given) => self.look(phase, (number, given), location, options).await,
            Step::Ask => self.inner.get_opts(location, options).await,
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
            let mut answers = self.seen.answers.lock();
            if std::mem::take(&mut answers.is_empty) {
                return iter([]).boxed();
            }
            // It is given once: the manifest is taken when it is read.
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
