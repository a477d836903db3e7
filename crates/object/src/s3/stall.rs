//! Time limits of requests that depend on progress.
//!
//! The SDK limits the time from a request to its answer as a whole. For an upload that limit has to be enough for the
//! slowest uplink, so that a dead connection is noticed only after minutes. The SDK's protection against stalled
//! streams does not help: the connection takes a body in memory in one go, which counts as sent from then on. So the
//! limits are kept here, between the SDK, with its retries, and its HTTP client:
//!
//! ```text
//!   request ---- piece ---- piece ---- ... ---- last piece --------------------- answer
//!          | 20 s |  | 20 s |                             | 20 s, and up to 16 s |
//! ```
//!
//! * A body is sent in [pieces](Pieces), slices of the one buffer. The connection asks for the next one when it has
//!   room, so if the socket does not move, no piece is requested, and the upload is given up [`STALL_LIMIT`] after the
//!   last one.
//! * From the last piece on, or from the start if there is no body, the server has the same time for its answer. The
//!   end of the body is then still in the buffers of the connection and of the socket, where its progress is invisible,
//!   so it gets the time that the slowest uplink needs for it.
//!
//! The total time of an upload does not matter here; [`crate::retry`] has a limit for that.
//!
//! If the [link](crate::link) has limits, each piece waits for its permit before it is sent, and so does each piece of
//! the body of an [answer](Arriving). During that wait the connection is not at fault, and the time does not run.
//!
//! A request that is given up is dropped, and its connection with it: whether the server carried it out is unknown.

mod arriving;
mod pieces;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::config::http::{HttpRequest, HttpResponse};
use aws_sdk_s3::config::{ConfigBag, HttpClient, RuntimeComponents, SharedHttpClient};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;
use aws_smithy_types::body::SdkBody;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::link::{Direction, Link, Permits};
use arriving::Arriving;
use pieces::Pieces;

/// Time for a body to make progress, and then for the first byte of an answer.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(20);
/// The slowest accepted uplink.
const MIN_UPLOAD_BYTES_PER_S: u64 = 64 << 10;
/// Length of the end of a body that gets extra time. At 68 KiB/s, 1.3 MiB were in buffers after the last piece: up to
/// 0.4 in hyper's and 0.9 in the socket's, which the kernel sizes by the bytes in flight. Bytes beyond this limit
/// reduce the time for the answer.
const UNSEEN: u64 = 1 << 20;

/// Why a request was given up.
#[derive(Debug, thiserror::Error)]
enum GivenUp {
    #[error("the upload stands still: {sent} bytes were accepted, and none for {} s", limit.as_secs_f32())]
    Stalled { sent: u64, limit: Duration },
    #[error("no answer within {} s", limit.as_secs_f32())]
    Unanswered { limit: Duration },
    #[error("the answer stands still: no bytes arrived for {} s", limit.as_secs_f32())]
    AnswerStalled { limit: Duration },
}

/// Progress of the body of a request.
#[derive(Debug)]
struct Upload {
    /// Bytes that the connection has taken.
    sent: u64,
    /// Whether it has taken all bytes.
    is_whole: bool,
    /// Whether it asks for more, which waits for its permit on the link.
    is_held: bool,
    /// Time when it last took some; at first, when the request was made.
    last: Instant,
}

impl Upload {
    fn new(is_empty: bool, now: Instant) -> Upload {
        Upload {
            sent: 0,
            is_whole: is_empty,
            is_held: false,
            last: now,
        }
    }

    fn took(&mut self, bytes: u64, is_whole: bool, now: Instant) {
        self.sent += bytes;
        self.is_whole = is_whole;
        self.is_held = false;
        self.last = now;
    }

    /// Notes that the connection would continue, and the link holds the body back.
    fn held(&mut self) {
        self.is_held = true;
    }

    /// The time at which the request is given up if nothing moves until then.
    fn deadline(&self, stall_limit: Duration, now: Instant) -> Instant {
        let since = if self.is_held { now } else { self.last };
        since + self.limit(stall_limit)
    }

    /// Time after the last progress at which the request is given up. Never shorter than it was before.
    fn limit(&self, stall_limit: Duration) -> Duration {
        if self.is_whole {
            let unseen = self.sent.min(UNSEEN);
            stall_limit + Duration::from_secs(unseen / MIN_UPLOAD_BYTES_PER_S)
        } else {
            stall_limit
        }
    }

    fn given_up(&self, stall_limit: Duration) -> GivenUp {
        let limit = self.limit(stall_limit);
        if self.is_whole {
            GivenUp::Unanswered { limit }
        } else {
            let sent = self.sent;
            GivenUp::Stalled { sent, limit }
        }
    }
}

/// An HTTP client that gives up requests of `inner` that make no progress.
#[derive(Debug)]
pub(super) struct StallGuard {
    inner: SharedHttpClient,
    stall_limit: Duration,
    link: Option<Arc<Link>>,
}

impl StallGuard {
    /// `link` decides when bodies may move on, if they have a limit.
    pub(super) fn new(
        inner: SharedHttpClient,
        stall_limit: Duration,
        link: Option<Arc<Link>>,
    ) -> StallGuard {
        StallGuard {
            inner,
            stall_limit,
            link,
        }
    }
}

impl HttpClient for StallGuard {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(StallConnector {
            inner: self.inner.http_connector(settings, components),
            stall_limit: self.stall_limit,
            link: self.link.clone(),
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

#[derive(Clone, Debug)]
struct StallConnector {
    inner: SharedHttpConnector,
    stall_limit: Duration,
    link: Option<Arc<Link>>,
}

impl StallConnector {
    /// The permits of a body, if its direction has a limit.
    fn permits(&self, direction: Direction, len: Option<u64>) -> Option<Permits> {
        Permits::new(self.link.as_ref()?, direction, len)
    }

    /// The answer, with a body that arrives as fast as the link allows.
    fn arriving(&self, mut answer: HttpResponse) -> HttpResponse {
        let len = answer.body().content_length();
        if let Some(permits) = self.permits(Direction::Down, len) {
            let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
            let arriving = Arriving::new(body, permits, self.stall_limit);
            *answer.body_mut() = SdkBody::from_body_1_x(arriving);
        }
        answer
    }
}

impl HttpConnector for StallConnector {
    /// The request is signed by now, so its body may be split into pieces; a retry has a body of its own.
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let len = request.body().content_length();
        let is_empty = len == Some(0);
        let upload = Arc::new(Mutex::new(Upload::new(is_empty, Instant::now())));
        if !is_empty {
            let body = std::mem::replace(request.body_mut(), SdkBody::taken());
            let permits = self.permits(Direction::Up, len);
            let pieces = Pieces::new(body, Arc::clone(&upload), permits);
            *request.body_mut() = SdkBody::from_body_1_x(pieces);
        }
        let mut answer = self.inner.call(request);
        let connector = self.clone();
        let stall_limit = self.stall_limit;
        HttpConnectorFuture::new(async move {
            loop {
                let deadline = {
                    let (upload, now) = (upload.lock(), Instant::now());
                    let deadline = upload.deadline(stall_limit, now);
                    if deadline <= now {
                        return Err(ConnectorError::timeout(upload.given_up(stall_limit).into()));
                    }
                    deadline
                };
                if let Ok(answer) = timeout_at(deadline, &mut answer).await {
                    return answer.map(|answer| connector.arriving(answer));
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
