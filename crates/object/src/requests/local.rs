//! Observes the requests to a store without HTTP: calls of the trait.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::time::Instant;

use super::{Ended, Method, Observer, Requests};
use crate::Fault;

/// A store that observes the requests to `inner`.
#[derive(Clone, Debug)]
pub(crate) struct ObservedStore {
    inner: Arc<dyn ObjectStore>,
    requests: Arc<Requests>,
}

impl ObservedStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, requests: Arc<Requests>) -> ObservedStore {
        ObservedStore { inner, requests }
    }

    async fn observe<T>(
        &self,
        method: Method,
        sent: u64,
        request: impl Future<Output = Result<T>>,
        received: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let observer = Observer::new(&self.requests, method);
        observe(observer, sent, request, received).await
    }
}

async fn observe<T>(
    observer: Observer,
    sent: u64,
    request: impl Future<Output = Result<T>>,
    received: impl FnOnce(&T) -> u64,
) -> Result<T> {
    let since = Instant::now();
    let done = request.await;
    let bytes = done.as_ref().map_or(0, received);
    note(&observer, done.as_ref().err(), since, (sent, bytes));
    done
}

/// Notes the end of a request. A call that the store does not know is no request, because nothing was sent. SlateDB sends
/// attributes with each PUT. Folders keep none, so it sends the PUT again without them.
fn note(observer: &Observer, error: Option<&Error>, since: Instant, bytes: (u64, u64)) {
    if let Some(Error::NotImplemented { .. } | Error::NotSupported { .. }) = error {
        return;
    }
    let ended = match error.map(Fault::of) {
        None => Ended::Ok,
        Some(Fault::NotFound) => Ended::Missing,
        Some(Fault::AlreadyExists | Fault::Precondition | Fault::NotModified) => Ended::Condition,
        Some(Fault::Unreachable) => Ended::Unanswered,
        Some(Fault::Transient) => Ended::Failed,
        Some(_) => Ended::Refused,
    };
    observer.ended(ended, since.elapsed(), bytes);
}

impl fmt::Display for ObservedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ObservedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let sent = payload.content_length() as u64;
        let put = self.inner.put_opts(location, payload, options);
        self.observe(Method::Put, sent, put, |_| 0).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.inner.put_multipart_opts(location, options);
        let inner = self.observe(Method::CreateUpload, 0, begun, |_| 0).await?;
        Ok(Box::new(ObservedUpload {
            inner,
            requests: self.requests.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let method = match options.head {
            true => Method::Head,
            false => Method::Get,
        };
        let get = self.inner.get_opts(location, options);
        let received = |result: &GetResult| match method {
            Method::Get => result.range.end.saturating_sub(result.range.start),
            _ => 0,
        };
        self.observe(method, 0, get, received).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let observer = Observer::new(&self.requests, Method::Delete);
        let since = Instant::now();
        let deleted = self.inner.delete_stream(locations);
        let deleted =
            deleted.inspect(move |done| note(&observer, done.as_ref().err(), since, (0, 0)));
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        listing(&self.requests, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        listing(&self.requests, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let list = self.inner.list_with_delimiter(prefix);
        self.observe(Method::List, 0, list, |_| 0).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let copy = self.inner.copy_opts(from, to, options);
        self.observe(Method::Copy, 0, copy, |()| 0).await
    }
}

/// Observes a listing at its first item, or at its end if it has none.
fn listing(
    requests: &Arc<Requests>,
    items: BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let (observer, since) = (Observer::new(requests, Method::List), Instant::now());
    let begun = async move {
        let (first, rest) = items.into_future().await;
        let error = first.as_ref().and_then(|first| first.as_ref().err());
        note(&observer, error, since, (0, 0));
        futures_util::stream::iter(first).chain(rest)
    };
    futures_util::stream::once(begun).flatten().boxed()
}

#[derive(Debug)]
struct ObservedUpload {
    inner: Box<dyn MultipartUpload>,
    requests: Arc<Requests>,
}

impl ObservedUpload {
    fn observer(&self, method: Method) -> Observer {
        Observer::new(&self.requests, method)
    }
}

#[async_trait]
impl MultipartUpload for ObservedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let observer = self.observer(Method::PutPart);
        let sent = data.content_length() as u64;
        let part = self.inner.put_part(data);
        Box::pin(observe(observer, sent, part, |()| 0))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let observer = self.observer(Method::CompleteUpload);
        observe(observer, 0, self.inner.complete(), |_| 0).await
    }

    async fn abort(&mut self) -> Result<()> {
        let observer = self.observer(Method::AbortUpload);
        observe(observer, 0, self.inner.abort(), |()| 0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileStore;
    use crate::requests::{Cause, Total, caused};
    use object_store::memory::InMemory;
    use object_store::{Attribute, ObjectStoreExt};

    #[tokio::test]
    async fn requests_are_counted_by_method_cause_and_end() {
        let requests = Arc::new(Requests::default());
        let store = ObservedStore::new(Arc::new(InMemory::new()), requests.clone());
        let path = Path::from("a");
        let work = async {
            store.put(&path, "12345".into()).await.unwrap();
            store.get_range(&path, 1..3).await.unwrap();
            store.head(&path).await.unwrap();
            store.get(&Path::from("b")).await.unwrap_err();
            assert_eq!(store.list(None).count().await, 1);
        };
        caused(Cause::Publish, work).await;
        store.delete(&path).await.unwrap();
        let total = |method, cause, sent_bytes, received_bytes| Total {
            method,
            cause,
            requests: 1,
            sent_bytes,
            received_bytes,
        };
        let totals: Vec<_> = requests.totals().collect();
        let expected = [
            Total {
                requests: 2,
                ..total(Method::Get, Cause::Publish, 0, 2)
            },
            total(Method::Head, Cause::Publish, 0, 0),
            total(Method::Put, Cause::Publish, 5, 0),
            total(Method::List, Cause::Publish, 0, 0),
            total(Method::Delete, Cause::Other, 0, 0),
        ];
        assert_eq!(totals, expected);
        let samples = forebay_metrics::Samples::of([&*requests as &dyn forebay_metrics::Source]);
        let missing = ["get", "publish", "missing"];
        assert_eq!(
            samples.number("store_request_duration_seconds", &missing),
            Some(1.0)
        );
    }
    #[tokio::test]
    async fn a_call_that_the_store_does_not_know_is_no_request() {
        let folder = tempfile::tempdir().unwrap();
        let files = FileStore::open(folder.path(), false).unwrap();
        let requests = Arc::new(Requests::default());
        let store = ObservedStore::new(Arc::new(files), requests.clone());
        let (path, mut options) = (Path::from("a"), PutOptions::default());
        let (name, value) = (Attribute::ContentType, "text/plain".into());
        options.attributes.insert(name, value);
        let put = store.put_opts(&path, "12345".into(), options).await;
        assert!(matches!(put, Err(Error::NotImplemented { .. })), "{put:?}");
        assert_eq!(requests.totals().next(), None);
        store.put(&path, "12345".into()).await.unwrap();
        let put = requests.totals().next().unwrap();
        assert_eq!((put.requests, put.sent_bytes), (1, 5));
    }
}
