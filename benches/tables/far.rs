//! A distant bucket: each request begins after a round trip, 20 ms by default, and each connection transfers 62 MB/s,
//! about the rate of one connection to S3. The number of connections is not limited.
//!
//! Or the bucket of a real server at its real distance: a [`Place`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_measure::Arguments;
use forebay_object::{CountingStore, Store, StoreOptions};
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use crate::Failure;

pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(20);
/// 62 MB/s for each connection.
const PER_BYTE: Duration = Duration::from_nanos(16);

/// Part of the name of every pack.
pub(crate) const PACKS: &str = "packs/";

/// A distant view of a near store, with counts of the requests over it.
pub(crate) fn way_to(near: &Store, round_trip: Duration) -> (Store, Arc<CountingStore>) {
    way(near, round_trip, true, None)
}

/// The same, where all connections together take this many bytes a second.
pub(crate) fn way_to_slow(near: &Store, round_trip: Duration, bytes_per_second: u64) -> Store {
    let link = Link {
        bytes_per_second,
        turn: tokio::sync::Mutex::default(),
    };
    way(near, round_trip, true, Some(link)).0
}

/// The same, but packs are accepted and dropped. A store in memory would cost time of this machine for them: for a GB
/// of memory that is new to the process 2.5 s of the kernel's time, and next to nothing for memory that was just freed.
pub(crate) fn way_to_sink(near: &Store, round_trip: Duration) -> (Store, Arc<CountingStore>) {
    way(near, round_trip, false, None)
}

fn way(
    near: &Store,
    round_trip: Duration,
    keeps_packs: bool,
    link: Option<Link>,
) -> (Store, Arc<CountingStore>) {
    let config = ThrottleConfig {
        wait_get_per_call: round_trip,
        wait_get_per_byte: PER_BYTE,
        wait_put_per_call: round_trip,
        wait_list_per_call: round_trip,
        wait_list_with_delimiter_per_call: round_trip,
        wait_delete_per_call: round_trip,
        ..ThrottleConfig::default()
    };
    let far = Far {
        way: ThrottledStore::new(near.store.clone(), config),
        keeps_packs,
        link,
    };
    counted(near, Arc::new(far))
}

/// Location of the buckets of a table: in memory, or with `--store URL` below that.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a>(Option<&'a str>);

impl<'a> Place<'a> {
    /// The location by the arguments.
    pub(crate) fn of(arguments: &'a Arguments) -> Place<'a> {
        Place(arguments.after("--store"))
    }

    /// Whether it is a server, at its real distance.
    pub(crate) fn is_server(self) -> bool {
        self.0.is_some()
    }

    /// Opens the store with this name, which nothing else uses.
    pub(crate) async fn open(self, name: &str) -> Result<Store, Failure> {
        let url = match self.0 {
            Some(url) => format!(
                "{}/{name}-{}",
                url.trim_end_matches('/'),
                std::process::id()
            ),
            None => format!("memory://{name}"),
        };
        let options = StoreOptions {
            create: true,
            ..StoreOptions::default()
        };
        Ok(forebay_object::open(&url, &options).await?)
    }

    /// The distant view of it. See [`way_to`].
    pub(crate) fn way_to(self, near: &Store, away: Duration) -> (Store, Arc<CountingStore>) {
        match self.is_server() {
            true => counted(near, near.store.clone()),
            false => way_to(near, away),
        }
    }

    /// The same, but packs may be dropped. See [`way_to_sink`].
    pub(crate) fn way_to_sink(self, near: &Store) -> (Store, Arc<CountingStore>) {
        match self.is_server() {
            true => counted(near, near.store.clone()),
            false => way_to_sink(near, ROUND_TRIP),
        }
    }

    /// Removes all its objects, which would stay on a server.
    pub(crate) async fn remove(self, near: &Store) -> Result<(), Failure> {
        if self.is_server() {
            let all = near.store.list(Some(&near.path("")));
            let all = all.map_ok(|object| object.location).boxed();
            let removed = near.store.delete_stream(all);
            removed.try_for_each(|_| async { Ok(()) }).await?;
        }
        Ok(())
    }
}

fn counted(near: &Store, way: Arc<dyn ObjectStore>) -> (Store, Arc<CountingStore>) {
    let counted = Arc::new(CountingStore::new(way));
    let store = Store {
        store: counted.clone(),
        ..near.clone()
    };
    (store, counted)
}

/// [`ThrottledStore`] adds the time of bytes that are received; this store adds that of bytes that are sent.
#[derive(Debug)]
struct Far {
    way: ThrottledStore<Arc<dyn ObjectStore>>,
    keeps_packs: bool,
    link: Option<Link>,
}

/// What all connections share.
#[derive(Debug)]
struct Link {
    bytes_per_second: u64,
    turn: tokio::sync::Mutex<()>,
}

impl Link {
    /// Returns when this many bytes have gone through.
    async fn pass(&self, bytes: usize) {
        let _turn = self.turn.lock().await;
        let takes = bytes as f64 / self.bytes_per_second as f64;
        tokio::time::sleep(Duration::from_secs_f64(takes)).await;
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Far({})", self.way)
    }
}

#[async_trait]
impl ObjectStore for Far {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        tokio::time::sleep(PER_BYTE * payload.content_length() as u32).await;
        if let Some(link) = &self.link {
            link.pass(payload.content_length()).await;
        }
        let is_kept = self.keeps_packs || !location.as_ref().contains(PACKS);
        let payload = if is_kept { payload } else { PutPayload::new() };
        self.way.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.way.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.way.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.way.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.way.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.way.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.way.copy_opts(from, to, options).await
    }
}
