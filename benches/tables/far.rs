//! A bucket that is far away: a round trip, 20 ms unless another one is said, passes before each request is begun, and
//! each connection gives or takes 62 MB/s, which is about what one connection to S3 does. Any number of connections
//! may be under way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_object::{CountingStore, Store};
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(20);
/// 62 MB/s for each connection.
const PER_BYTE: Duration = Duration::from_nanos(16);

/// In the name of every pack.
pub(crate) const PACKS: &str = "packs/";

/// The way to a store that is near, and the count of what goes over it.
pub(crate) fn way_to(near: &Store, round_trip: Duration) -> (Store, Arc<CountingStore>) {
    way(near, round_trip, true)
}

/// The same, where packs are taken and forgotten. A store in memory takes time of this machine for them: a GB of memory that is
/// new to the process 2.5 s of the kernel's, and next to nothing of memory that somebody has just freed.
pub(crate) fn way_to_sink(near: &Store, round_trip: Duration) -> (Store, Arc<CountingStore>) {
    way(near, round_trip, false)
}

fn way(near: &Store, round_trip: Duration, keeps_packs: bool) -> (Store, Arc<CountingStore>) {
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
    };
    let counted = Arc::new(CountingStore::new(Arc::new(far)));
    let store = Store {
        store: counted.clone(),
        ..near.clone()
    };
    (store, counted)
}

/// [`ThrottledStore`] knows the time of bytes that are got; this one adds that of bytes that are put.
#[derive(Debug)]
struct Far {
    way: ThrottledStore<Arc<dyn ObjectStore>>,
    keeps_packs: bool,
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
    ) -> Result<PutResult> {
        tokio::time::sleep(PER_BYTE * payload.content_length() as u32).await;
        let is_kept = self.keeps_packs || !location.as_ref().contains(PACKS);
        let payload = if is_kept { payload } else { PutPayload::new() };
        self.way.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.way.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.way.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.way.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.way.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.way.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.way.copy_opts(from, to, options).await
    }
}
