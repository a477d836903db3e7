//! Whether the tables that the state consists of are still in the bucket.
//!
//! SlateDB writes the next manifest and never checks that the tables which it names exist. So a gateway whose bucket is
//! emptied (by a rule that expires objects, by hand, by a server that came back with another disk) would continue to
//! publish without effect. [`Presence::prove`] asks for one of those tables, another one each time: one HEAD.
//!
//! ```text
//!   a read or a merge meets "no such object"  --> suspected --.
//!                                                             v
//!   the next table in turn, the newest one last  ------->  HEAD it
//!                                                   there |      | not there
//!                                                  proven <      | does the state still name it?
//!                                                                |   no: it was merged away; the next one
//!                                                               |   is there a newer manifest? then another gateway
//!                                                               |        writes: SlateDB finds out which
//!                                                               `-> Gone
//! ```
//!
//! There is no false alarm: tables are deleted here only when the state in memory does not name them any more
//! ([housekeeping](super::housekeeping)).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use slatedb::{Db, VersionedManifest};
use tokio::sync::Notify;

use super::own::Newest;
use super::{MANIFEST, within};
use crate::error::StoreError;

/// How many times another table is asked for because the one before was merged and deleted meanwhile.
const ATTEMPTS: usize = 4;

/// The table that a request did not find last. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspect(Arc<Suspected>);

#[derive(Debug, Default)]
struct Suspected {
    table: Mutex<Option<Path>>,
    noted: Notify,
}

impl Suspect {
    fn note(&self, table: &Path) {
        *self.0.table.lock() = Some(table.clone());
        self.0.noted.notify_waiters();
    }

    fn table(&self) -> Option<Path> {
        self.0.table.lock().clone()
    }

    fn clear(&self, table: &Path) {
        let mut suspected = self.0.table.lock();
        if suspected.as_ref() == Some(table) {
            *suspected = None;
        }
    }

    /// Waits for the next request that does not find a table, and returns that table.
    pub(super) async fn noted(&self) -> Path {
        loop {
            self.0.noted.notified().await;
            if let Some(table) = self.table() {
                return table;
            }
        }
    }
}

/// Checks that the tables of a store in the bucket exist.
pub(super) struct Presence {
    store: Arc<dyn ObjectStore>,
    path: Path,
    suspect: Suspect,
    newest: Newest,
    turn: AtomicUsize,
}

impl Presence {
    /// The tables of the store under `path`.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        path: Path,
        suspect: Suspect,
        newest: Newest,
    ) -> Presence {
        Presence {
            store,
            path,
            suspect,
            newest,
            turn: AtomicUsize::new(0),
        }
    }

    /// Asks for one table that the newest state names. `Err` with [`StoreError::Gone`] if it is missing.
    pub(super) async fn prove(
        &self,
        db: &Db,
        timeout: Duration,
    ) -> std::result::Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let Some(table) = self.witness(&db.manifest()) else {
                return Ok(());
            };
            match self.is_there(&table, timeout).await? {
                true => {
                    self.suspect.clear(&table);
                    return Ok(());
                }
                false => self.confirm(&table, db, timeout).await?,
            }
        }
        Err(StoreError::Transient(
            "tables of the metadata are merged faster than this check can look for them".into(),
        ))
    }

    /// Like [`prove`](Presence::prove), but only if a request did not find a table.
    pub(super) async fn look_into_suspicion(
        &self,
        db: &Db,
        timeout: Duration,
    ) -> std::result::Result<(), StoreError> {
        match self.suspect.table() {
            Some(_) => self.prove(db, timeout).await,
            None => Ok(()),
        }
    }

    /// The table to ask for: one that was not found, or the next in turn.
    fn witness(&self, state: &VersionedManifest) -> Option<Path> {
        let tables = self.tables(state);
        if let Some(suspected) = self.suspect.table() {
            if tables.contains(&suspected) {
                return Some(suspected);
            }
            self.suspect.clear(&suspected);
        }
        // The first one is the newest, which was put a moment ago.
        let older = tables.len().saturating_sub(1).max(1);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % older;
        tables.into_iter().rev().nth(turn)
    }

    /// The tables that the state consists of, the newest first.
    fn tables(&self, state: &VersionedManifest) -> Vec<Path> {
        let runs = state.compacted().iter().flat_map(|run| run.sst_views());
        let views = state.l0().iter().chain(runs);
        let name = |id: String| {
            let name = Path::from(format!("compacted/{id}.sst"));
            self.path.parts().chain(name.parts()).collect()
        };
        views
            .map(|view| name(view.sst.id.value().to_string()))
            .collect()
    }

    /// Handles a missing table: an error if the state still needs it.
    async fn confirm(
        &self,
        table: &Path,
        db: &Db,
        timeout: Duration,
    ) -> std::result::Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let state = db.manifest();
            if !self.tables(&state).contains(table) {
                return Ok(());
            }
            let next = format!("manifest/{:020}.{MANIFEST}", state.id() + 1);
            let next = self.path.parts().chain(Path::from(next).parts()).collect();
            if !self.is_there(&next, timeout).await? {
                self.suspect.note(table);
                return Err(StoreError::Gone(format!(
                    "{table}, a table of the volume's metadata, is gone from the bucket"
                )));
            }
            // A gateway that has taken over may have deleted it. SlateDB finds that out from the manifest.
            self.newest.forget();
            within(timeout, db.refresh_manifest()).await?;
        }
        Ok(())
    }

    async fn is_there(
        &self,
        object: &Path,
        timeout: Duration,
    ) -> std::result::Result<bool, StoreError> {
        match tokio::time::timeout(timeout, self.store.head(object)).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(Error::NotFound { .. })) => Ok(false),
            Ok(Err(error)) => Err(StoreError::Transient(error.to_string())),
            Err(_) => {
                let seconds = timeout.as_secs_f32();
                Err(StoreError::Transient(format!(
                    "no answer within {seconds} s"
                )))
            }
        }
    }
}

/// A store that notes missing tables that were asked for.
#[derive(Debug)]
pub(super) struct NotingStore {
    inner: Arc<dyn ObjectStore>,
    suspect: Suspect,
}

impl NotingStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, suspect: Suspect) -> NotingStore {
        NotingStore { inner, suspect }
    }
}

impl fmt::Display for NotingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NotingStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for NotingStore {
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
        let answer = self.inner.get_opts(location, options).await;
        if matches!(answer, Err(Error::NotFound { .. })) && location.extension() == Some("sst") {
            self.suspect.note(location);
        }
        answer
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
