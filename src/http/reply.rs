//! Answers as JSON.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Length from which on an answer is large, in bytes.
const LARGE: usize = 256 << 10;

/// An answer with this status and body.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match encode(value) {
        Ok(body) => with_body(status, body.into()),
        Err(error) => {
            let body = json!({ "error": error.to_string() }).to_string();
            with_body(StatusCode::INTERNAL_SERVER_ERROR, body.into())
        }
    }
}

/// The answer with a list that may be long. `large` bounds the number of large answers in memory: one is there until
/// its client has taken it.
///
/// # Errors
/// A refusal if too many clients take large answers at this moment.
pub(super) fn list(value: &impl Serialize, large: &Arc<Semaphore>) -> Result<Response, Refusal> {
    let body = encode(value)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    if body.len() < LARGE {
        return Ok(with_body(StatusCode::OK, body.into()));
    }
    let Ok(permit) = large.clone().try_acquire_owned() else {
        let why = "other clients are taking answers of this size: try again in some seconds";
        return Err(Refusal::unavailable(why));
    };
    let owner = Owner {
        body,
        _permit: permit,
    };
    Ok(with_body(StatusCode::OK, Bytes::from_owner(owner)))
}

/// The memory of a large answer.
struct Owner {
    body: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// JSON, as a line.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut body = serde_json::to_vec(value)?;
    body.push(b'\n');
    Ok(body)
}

fn with_body(status: StatusCode, body: Bytes) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}

/// The answer to a request that is understood: 200.
pub(super) fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}

/// A request that is not fulfilled, and why: `{"error": "..."}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    why: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal {
            status,
            why: why.into(),
        }
    }

    /// The gateway cannot do it now.
    pub(super) fn unavailable(why: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// The gateway refuses the request.
    pub(super) fn conflict(why: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, why)
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, &json!({ "error": self.why }))
    }
}

/// The answer for all other paths.
pub(super) async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no {}", uri.path()))
}
