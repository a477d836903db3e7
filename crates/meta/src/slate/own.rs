//! The newest manifest, as far as this gateway knows it from its own commits.
//!
//! SlateDB looks for a later manifest before each commit but the first: a GET of the next manifest, and one of the collector's
//! boundary. It does so because it does not note the number of the manifest that its last commit created. This module takes the
//! manifest that this gateway has created last for the newest one, and answers that look from memory:
//!
//! ```text
//!  a commit     put table
//!               is there an N+1? boundary     from memory
//!               create N+1
//!               boundary                      always asked for
//! ```
//!
//! # Why this is safe
//!
//! The answer may be wrong. Others create manifests too: a gateway that has taken the volume over, the merges of this gateway,
//! the deletion of a kept state, and pins and clones, which add a note to the newest manifest. Nothing depends on the answer. A
//! commit creates N+1, which fails if there is one. Then SlateDB looks again, and gets its answers from the bucket. It finds out
//! that it is fenced, or what the others have changed, and tries the next number: two round trips more for that commit. If N+1
//! was there and a collector has deleted it, the creation succeeds, and the boundary that is asked for after it says that it does
//! not count.
//!
//! Code that needs to know the newest manifest itself calls [`Newest::forget`] first: after a merge, and when a table is missed.
//! The deletion of a kept state calls it too, which spares the next commit a creation in vain. A creation that is under way in
//! that moment proves nothing any more: a merge may have followed it. SlateDB also looks again and again while it waits for a
//! merge. The bucket answers these looks, since one creation answers at most [`MOST`] of them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use super::answer::Known;
use super::still::{BOUNDARY, number};

/// How many looks for a later manifest one creation answers: an opening looks twice, a commit once.
const MOST: u32 = 2;

/// What is known of the newest manifest. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Newest(Arc<Mutex<Knowledge>>);

#[derive(Debug, Default)]
struct Knowledge {
    state: State,
    /// How often it was forgotten: a creation that was under way then proves nothing.
    forgotten: u64,
}

#[derive(Debug, Default)]
enum State {
    /// The bucket has to be asked.
    #[default]
    Unknown,
    /// This manifest was created. Whether it counts depends on the boundary.
    Created(u64),
    /// This manifest counts.
    Counts {
        manifest: u64,
        /// Whether there was no boundary.
        no_boundary: bool,
        /// How many looks it has answered, at most [`MOST`].
        answered: u32,
        /// Whether the last request was such a look: SlateDB asks for the boundary next.
        asks_boundary: bool,
    },
}

impl Newest {
    /// The next look for a later manifest is answered by the bucket.
    pub(super) fn forget(&self) {
        self.forget_for_creation();
    }

    /// Forgets. Returns the number that [`created`](Self::created) takes.
    fn forget_for_creation(&self) -> u64 {
        let mut knowledge = self.0.lock();
        knowledge.state = State::Unknown;
        knowledge.forgotten += 1;
        knowledge.forgotten
    }

    /// A manifest was created, unless its number was forgotten meanwhile.
    fn created(&self, manifest: u64, forgotten: u64) {
        let mut knowledge = self.0.lock();
        if knowledge.forgotten == forgotten {
            knowledge.state = State::Created(manifest);
        }
    }

    /// The answer to a GET from memory.
    fn answer(&self, location: &Path, options: &GetOptions) -> Option<Known> {
        let mut knowledge = self.0.lock();
        let State::Counts {
            manifest,
            no_boundary,
            answered,
            asks_boundary,
        } = &mut knowledge.state
        else {
            return None;
        };
        if location.filename() == Some(BOUNDARY) {
            // After a look, and not after a creation.
            return match std::mem::take(asks_boundary) {
                true if *no_boundary => Some(Known::Missing),
                true if options.if_none_match.is_some() => Some(Known::Unmodified),
                _ => None,
            };
        }
        if number(location) != Some(*manifest + 1) || *answered >= MOST || options.range.is_some() {
            return None;
        }
        (*answered, *asks_boundary) = (*answered + 1, true);
        Some(Known::Missing)
    }

    /// Notes the answer of the bucket to a GET of the boundary.
    fn note_boundary(&self, known: &Known) {
        let mut knowledge = self.0.lock();
        let State::Created(manifest) = knowledge.state else {
            return;
        };
        // Unmodified, it is behind an earlier manifest.
        let counts = known.boundary().is_none_or(|boundary| boundary < manifest);
        knowledge.state = match counts {
            true => State::Counts {
                manifest,
                no_boundary: matches!(known, Known::Missing),
                answered: 0,
                asks_boundary: false,
            },
            false => State::Unknown,
        };
    }
}

/// A store that answers looks for a later manifest from memory.
#[derive(Debug)]
pub(super) struct OwnStore {
    inner: Arc<dyn ObjectStore>,
    newest: Newest,
}

impl OwnStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, newest: Newest) -> OwnStore {
        OwnStore { inner, newest }
    }
}

impl fmt::Display for OwnStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for OwnStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let Some(manifest) = number(location) else {
            return self.inner.put_opts(location, payload, options).await;
        };
        let is_creation = matches!(options.mode, PutMode::Create);
        let forgotten = self.newest.forget_for_creation();
        let put = self.inner.put_opts(location, payload, options).await?;
        if is_creation {
            self.newest.created(manifest, forgotten);
        }
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if let Some(known) = self.newest.answer(location, &options) {
            return known.give(location);
        }
        let is_boundary = location.filename() == Some(BOUNDARY);
        let answer = self.inner.get_opts(location, options).await;
        if !is_boundary {
            return answer;
        }
        let known = Known::of(answer).await?;
        self.newest.note_boundary(&known);
        known.give(location)
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
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::super::MANIFEST;
    use super::*;

    fn manifest(number: u64) -> Path {
        format!("meta/manifest/{number:020}.{MANIFEST}").into()
    }

    fn boundary() -> Path {
        format!("meta/gc/{BOUNDARY}").into()
    }

    struct Scene {
        bucket: Arc<InMemory>,
        newest: Newest,
        store: OwnStore,
    }

    /// A bucket with manifest 3, which the store has created, and manifest 4, which it does not know.
    async fn scene(at: Option<u64>) -> Scene {
        let (bucket, newest) = (Arc::new(InMemory::new()), Newest::default());
        let store = OwnStore::new(bucket.clone(), newest.clone());
        bucket.put(&manifest(4), "".into()).await.unwrap();
        if let Some(at) = at {
            let at = at.to_string().into_bytes();
            bucket.put(&boundary(), at.into()).await.unwrap();
        }
        let scene = Scene {
            bucket,
            newest,
            store,
        };
        assert!(scene.finds_the_next().await, "nothing was created yet");
        scene.create(3).await;
        scene
    }

    impl Scene {
        async fn create(&self, number: u64) {
            let create = PutOptions::from(PutMode::Create);
            let location = manifest(number);
            let put = self.store.put_opts(&location, "".into(), create).await;
            put.unwrap();
        }

        async fn finds_the_next(&self) -> bool {
            self.store.get(&manifest(4)).await.is_ok()
        }

        async fn boundary(&self) -> Result<GetResult> {
            self.store.get(&boundary()).await
        }
    }

    #[tokio::test]
    async fn a_manifest_that_was_created_and_counts_is_the_newest_for_two_looks() {
        let scene = scene(None).await;
        assert!(scene.boundary().await.is_err());
        for _ in 0..MOST {
            assert!(!scene.finds_the_next().await);
            // Also from memory.
            scene.bucket.put(&boundary(), "1".into()).await.unwrap();
            assert!(scene.boundary().await.is_err());
        }
        assert!(scene.finds_the_next().await);
        assert!(scene.boundary().await.is_ok());
    }

    #[tokio::test]
    async fn a_manifest_counts_only_if_the_boundary_is_behind_it() {
        for (at, counts) in [(2, true), (3, false), (4, false)] {
            let scene = scene(Some(at)).await;
            let found = scene.boundary().await.unwrap();
            let version = found.meta.e_tag.clone();
            assert_eq!(found.bytes().await.unwrap(), at.to_string().into_bytes());
            assert_eq!(scene.finds_the_next().await, !counts, "{at}");
            let options = GetOptions {
                if_none_match: version,
                ..GetOptions::default()
            };
            scene.bucket.delete(&boundary()).await.unwrap();
            let again = scene.store.get_opts(&boundary(), options).await;
            match counts {
                true => assert!(matches!(
                    again,
                    Err(object_store::Error::NotModified { .. })
                )),
                false => assert!(matches!(again, Err(object_store::Error::NotFound { .. }))),
            }
        }
    }

    #[tokio::test]
    async fn the_bucket_is_asked_until_the_boundary_is_known_and_when_it_was_forgotten() {
        let scene = scene(None).await;
        assert!(
            scene.finds_the_next().await,
            "the boundary was not asked for"
        );
        assert!(scene.boundary().await.is_err());
        scene.newest.forget();
        assert!(scene.finds_the_next().await);
        assert!(scene.boundary().await.is_err());
        assert!(scene.finds_the_next().await, "nothing was created since");
    }

    #[tokio::test]
    async fn a_creation_that_was_under_way_when_it_was_forgotten_proves_nothing() {
        let newest = Newest::default();
        let forgotten = newest.forget_for_creation();
        // A merge has created the next manifest meanwhile.
        newest.forget();
        newest.created(3, forgotten);
        newest.note_boundary(&Known::Missing);
        assert!(
            newest
                .answer(&manifest(4), &GetOptions::default())
                .is_none()
        );
    }

    #[tokio::test]
    async fn after_a_creation_that_fails_the_bucket_is_asked() {
        let scene = scene(None).await;
        assert!(scene.boundary().await.is_err());
        let create = PutOptions::from(PutMode::Create);
        let location = manifest(4);
        let put = scene.store.put_opts(&location, "".into(), create).await;
        assert!(put.is_err());
        assert!(scene.finds_the_next().await);
    }
}
