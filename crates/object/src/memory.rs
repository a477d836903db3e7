//! Stores in the memory of this process: for tests, and for volumes that need not be kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::range;

static NAMED: LazyLock<Mutex<HashMap<String, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);

/// A new empty store, or the one store that this process has under `name`, which exists until the process ends.
pub(crate) fn open(name: Option<&str>) -> Arc<MemoryStore> {
    match name {
        None => Arc::default(),
        Some(name) => Arc::clone(NAMED.lock().entry(name.to_owned()).or_default()),
    }
}

/// A store that copies the bytes of puts, as a remote store does: `InMemory` would keep the memory of the caller that
/// put them, and the caller could never reuse it.
#[derive(Debug, Default)]
pub(crate) struct MemoryStore(InMemory);

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for MemoryStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let mut own = Vec::with_capacity(payload.content_length());
        payload
            .iter()
            .for_each(|piece| own.extend_from_slice(piece));
        self.0.put_opts(location, own.into(), options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // The parts are joined in memory of their own.
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        range::get(&self.0, location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use object_store::ObjectStoreExt;

    use super::*;
    use crate::Fault;

    #[tokio::test]
    async fn what_is_put_is_given_back_to_its_owner() {
        struct Owned {
            _owner: Arc<()>,
        }
        impl AsRef<[u8]> for Owned {
            fn as_ref(&self) -> &[u8] {
                b"bytes"
            }
        }
        let owner = Arc::new(());
        let store = open(None);
        let path = Path::from("object");
        let payload = PutPayload::from(Bytes::from_owner(Owned {
            _owner: owner.clone(),
        }));
        store.put(&path, payload).await.unwrap();
        assert_eq!(Arc::strong_count(&owner), 1);
        let read = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(read, b"bytes"[..]);
    }

    #[tokio::test]
    async fn a_range_behind_the_end_is_told_apart_from_a_failure() {
        let store = open(None);
        let path = Path::from("object");
        store.put(&path, "12345".into()).await.unwrap();
        let error = store.get_range(&path, 5..6).await.unwrap_err();
        assert_eq!(Fault::of(&error), Fault::OutOfRange, "{error}");
        assert_eq!(store.get_range(&path, 4..6).await.unwrap(), "5");
    }
}
