//! Observes the HTTP requests to an S3 server.

use std::sync::Arc;

use aws_sdk_s3::config::http::{HttpRequest, HttpResponse};
use aws_sdk_s3::config::{ConfigBag, HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use tokio::time::Instant;

use super::{Ended, Method, Observer, Requests};

/// An HTTP client that observes the requests of `inner`.
#[derive(Debug)]
pub(crate) struct ObservedClient {
    inner: SharedHttpClient,
    requests: Arc<Requests>,
}

impl ObservedClient {
    pub(crate) fn new(inner: impl HttpClient + 'static, requests: Arc<Requests>) -> ObservedClient {
        ObservedClient {
            inner: SharedHttpClient::new(inner),
            requests,
        }
    }
}

impl HttpClient for ObservedClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(ObservedConnector {
            inner: self.inner.http_connector(settings, components),
            requests: self.requests.clone(),
        })
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.inner.validate_base_client_config(components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.inner.validate_final_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.inner.connector_metadata()
    }
}

#[derive(Debug)]
struct ObservedConnector {
    inner: SharedHttpConnector,
    requests: Arc<Requests>,
}

impl HttpConnector for ObservedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let has_source = request.headers().contains_key("x-amz-copy-source");
        let method = method(request.method(), request.uri(), has_source);
        let observer = Observer::new(&self.requests, method);
        let sent = request.body().content_length().unwrap_or(0);
        let answer = self.inner.call(request);
        let mut sent = Sent {
            observer,
            bytes: sent,
            since: Instant::now(),
            answer: (Ended::Unanswered, 0),
        };
        HttpConnectorFuture::new(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                sent.answered(ended(answer.status().as_u16()), length(method, answer));
            }
            answer
        })
    }
}

/// A request that is under way. Observed when it is dropped, so that a request which is given up before its answer counts as
/// well: the server may have carried it out, and has it on the bill.
struct Sent {
    observer: Observer,
    /// Bytes of its body.
    bytes: u64,
    since: Instant,
    /// How it has ended so far, and the bytes of the answer's body.
    answer: (Ended, u64),
}

impl Sent {
    fn answered(&mut self, ended: Ended, received: u64) {
        self.answer = (ended, received);
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let (ended, received) = self.answer;
        let bytes = (self.bytes, received);
        self.observer.ended(ended, self.since.elapsed(), bytes);
    }
}

/// Bytes of the body of an answer: those that its head promises.
fn length(method: Method, answer: &HttpResponse) -> u64 {
    if method == Method::Head {
        return 0;
    }
    let promised = answer.headers().get("content-length");
    let promised = promised.and_then(|length| length.parse().ok());
    promised.or(answer.body().content_length()).unwrap_or(0)
}

fn ended(status: u16) -> Ended {
    match status {
        ..300 => Ended::Ok,
        404 => Ended::Missing,
        304 | 409 | 412 => Ended::Condition,
        429 | 503 => Ended::Throttled,
        300..500 => Ended::Refused,
        500.. => Ended::Failed,
    }
}

/// The operation of S3 that a request asks for. `has_source` tells a copy from a PUT.
fn method(method: &str, uri: &str, has_source: bool) -> Method {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let has = |name: &str| {
        let mut parameters = query.split('&');
        parameters.any(|one| one.split('=').next() == Some(name))
    };
    match method {
        "GET" if has("list-type") => Method::List,
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "PUT" if has("partNumber") => Method::PutPart,
        "PUT" if has_source => Method::Copy,
        "PUT" => Method::Put,
        "DELETE" if has("uploadId") => Method::AbortUpload,
        "DELETE" => Method::Delete,
        "POST" if has("delete") => Method::Delete,
        "POST" if has("uploads") => Method::CreateUpload,
        "POST" if has("uploadId") => Method::CompleteUpload,
        _ => Method::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use aws_sdk_s3::config::http::HttpResponse;
    use aws_sdk_s3::primitives::SdkBody;

    use super::*;
    use crate::requests::{Cause, Total};

    /// Answers requests of one byte with two bytes, and others never.
    #[derive(Debug)]
    struct Server;

    impl HttpConnector for Server {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            if request.body().content_length() != Some(1) {
                return HttpConnectorFuture::new(pending());
            }
            let status = 200.try_into().unwrap();
            let answer = HttpResponse::new(status, SdkBody::from("12"));
            HttpConnectorFuture::new(ready(Ok(answer)))
        }
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_is_counted_as_well() {
        let requests = Arc::new(Requests::default());
        let connector = ObservedConnector {
            inner: SharedHttpConnector::new(Server),
            requests: requests.clone(),
        };
        let call = |body: &'static str| {
            let mut request = HttpRequest::new(SdkBody::from(body));
            request.set_method("PUT").unwrap();
            request.set_uri("http://s/b/k").unwrap();
            connector.call(request)
        };
        call("1").await.unwrap();
        drop(call("123"));
        let totals: Vec<_> = requests.totals().collect();
        let expected = Total {
            method: Method::Put,
            cause: Cause::Other,
            requests: 2,
            sent_bytes: 4,
            received_bytes: 2,
        };
        assert_eq!(totals, [expected]);
        assert_eq!(requests.ended_total(Ended::Unanswered), 1);
    }

    #[test]
    fn methods_are_known_by_their_requests() {
        for (verb, uri, expected) in [
            ("GET", "http://s/b/k?x-id=GetObject", Method::Get),
            ("GET", "http://s/b?list-type=2&prefix=a", Method::List),
            ("GET", "http://s/b/list-type", Method::Get),
            ("HEAD", "http://s/b/k", Method::Head),
            ("PUT", "http://s/b/k?x-id=PutObject", Method::Put),
            (
                "PUT",
                "http://s/b/k?partNumber=1&uploadId=u",
                Method::PutPart,
            ),
            ("POST", "http://s/b?delete", Method::Delete),
            ("POST", "http://s/b/k?uploads", Method::CreateUpload),
            ("POST", "http://s/b/k?uploadId=u", Method::CompleteUpload),
            ("DELETE", "http://s/b/k?uploadId=u", Method::AbortUpload),
            ("DELETE", "http://s/b/k", Method::Delete),
            ("POST", "http://s/b/k?restore", Method::Other),
        ] {
            assert_eq!(method(verb, uri, false), expected, "{verb} {uri}");
        }
        assert_eq!(method("PUT", "http://s/b/k", true), Method::Copy);
    }

    #[test]
    fn ends_are_known_by_their_status() {
        let ends = [200, 206, 304, 400, 403, 404, 409, 412, 429, 500, 503].map(ended);
        assert_eq!(
            ends,
            [
                Ended::Ok,
                Ended::Ok,
                Ended::Condition,
                Ended::Refused,
                Ended::Refused,
                Ended::Missing,
                Ended::Condition,
                Ended::Condition,
                Ended::Throttled,
                Ended::Failed,
                Ended::Throttled,
            ]
        );
    }
}
