//! A bucket whose behaviour a test controls: it counts, stalls and fails on demand.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use forebay_object::{CountingStore, RequestCounts};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// A barrier that requests pass while it is open.
#[derive(Debug)]
pub struct Gate {
    closed: watch::Sender<bool>,
    held: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            closed: watch::Sender::new(false),
            held: AtomicUsize::new(0),
        }
    }
}

impl Gate {
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Requests that wait before it.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    async fn pass(&self) {
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() {
            return;
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave(&self.held);
        // The sender lives as long as `self`.
        let _ = closed.wait_for(|closed| !closed).await;
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a test does to the bucket.
#[derive(Debug, Default)]
pub struct Controls {
    /// Every request fails.
    pub down: AtomicBool,
    /// Deletes fail.
    deletes_refused: AtomicBool,
    /// Before every request but listings.
    pub everything: Gate,
    /// Before packs are put.
    pub pack_puts: Gate,
    /// Before packs are read.
    pub pack_gets: Gate,
    /// Before anything but packs is put: the metadata.
    pub meta_puts: Gate,
}

impl Controls {
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub fn set_deletes_refused(&self, refused: bool) {
        self.deletes_refused.store(refused, Ordering::SeqCst);
    }

    /// Whether some request is not answered as it should be.
    pub fn is_away(&self) -> bool {
        let gates = [
            &self.everything,
            &self.pack_puts,
            &self.pack_gets,
            &self.meta_puts,
        ];
        self.down.load(Ordering::SeqCst) || gates.iter().any(|gate| gate.is_closed())
    }

    /// Everything is answered again.
    pub fn come_back(&self) {
        self.set_down(false);
        for gate in [
            &self.everything,
            &self.pack_puts,
            &self.pack_gets,
            &self.meta_puts,
        ] {
            gate.open();
        }
    }

    fn check_delete(&self) -> Result<()> {
        if self.deletes_refused.load(Ordering::SeqCst) {
            return Err(Error::Generic {
                store: "test",
                source: "no right to delete".into(),
            });
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::Generic {
                store: "test",
                source: "the bucket is down".into(),
            });
        }
        Ok(())
    }

    async fn before_put(&self, location: &Path) -> Result<()> {
        self.everything.pass().await;
        if is_pack(location) {
            &self.pack_puts
        } else {
            &self.meta_puts
        }
        .pass()
        .await;
        self.check()
    }
}

fn is_pack(location: &Path) -> bool {
    location.as_ref().contains("packs/")
}

#[derive(Clone, Debug)]
pub struct ControlledStore {
    inner: CountingStore,
    controls: Arc<Controls>,
}

impl ControlledStore {
    pub fn new(inner: Arc<dyn ObjectStore>, controls: Arc<Controls>) -> ControlledStore {
        ControlledStore {
            inner: CountingStore::new(inner),
            controls,
        }
    }

    pub fn counts(&self) -> RequestCounts {
        self.inner.counts()
    }
}

impl fmt::Display for ControlledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlledStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ControlledStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.controls.before_put(location).await?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.controls.before_put(location).await?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.controls.everything.pass().await;
        if is_pack(location) {
            self.controls.pack_gets.pass().await;
        }
        self.controls.check()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let controls = self.controls.clone();
        let checked = locations.then(move |location| {
            let controls = controls.clone();
            async move {
                controls.everything.pass().await;
                controls.check_delete().and(location)
            }
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.controls.check() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.controls.check()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.controls.check()?;
        self.inner.copy_opts(from, to, options).await
    }
}
