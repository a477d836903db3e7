//! The orders of an operator: POST below `/api/v1`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::path;
use super::reply::{self, Refusal};
use super::state::Admin;
use crate::admin::{Control, GcOrder, PathRefusal, ScrubRequest};

type Answer = Result<Response, Refusal>;

/// Publishes everything that has been written so far, or the file or tree that `?path=` names, and answers when the
/// bucket has it.
pub(super) async fn flush<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    RawQuery(query): RawQuery,
) -> Answer {
    let path = path::of_query(query.as_deref())?;
    let gateway = admin.opened()?;
    let Ok(_permit) = admin.flushes.try_acquire() else {
        let most = admin.limits.flushes;
        let why = format!("{most} other requests wait for a flush already");
        return Err(Refusal::unavailable(why));
    };
    let limit = admin.limits.flush;
    let flushing = async {
        match path {
            Some(path) => gateway.flush_path(path).await,
            None => gateway.flush().await.map_err(PathRefusal::Unavailable),
        }
    };
    match timeout(limit, flushing).await {
        Ok(Ok(report)) => Ok(reply::ok(&report)),
        Ok(Err(refusal)) => Err(path::refused(refusal)),
        Err(_) => Err(Refusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "the bucket does not have everything after {}; publishing goes on, and /api/v1/status shows its progress",
                humantime::format_duration(limit)
            ),
        )),
    }
}

/// Starts a round of the scrub, or does what the body says: `{"start":{"age_seconds":N}}`, `"stop"` or `"status"`.
pub(super) async fn scrub<C: Control>(State(admin): State<Arc<Admin<C>>>, body: Bytes) -> Answer {
    let request = read(&body)?.unwrap_or(ScrubRequest::Start { age_seconds: 0 });
    let report = admin.opened()?.scrub(request).await;
    Ok(reply::ok(&report.map_err(Refusal::conflict)?))
}

/// Rewrites all packs that are mostly dead, or does what the body says: `"rewrite"` or `"status"`.
pub(super) async fn gc<C: Control>(State(admin): State<Arc<Admin<C>>>, body: Bytes) -> Answer {
    let order = read(&body)?.unwrap_or(GcOrder::Rewrite);
    let report = admin.opened()?.gc(order).await;
    Ok(reply::ok(&report.map_err(Refusal::conflict)?))
}

/// The order in a body, if it has one.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(body).map(Some).map_err(|error| {
        let why = format!("the body is no order: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, why)
    })
}
