//! The state of the gateway as JSON, below `/api/v1`. Names are those of `forebay ... --json`.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use forebay_salvage::logs;
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{self, Refusal};
use super::state::Admin;
use crate::admin::{Control, GcOrder, ScrubRequest};

type Answer = Result<Response, Refusal>;

/// As `forebay status --json`.
pub(super) async fn status<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    Ok(reply::ok(&*admin.status(&*gateway).await))
}

/// A request for the last ten minutes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LiveQuery {
    /// Only points with a sequence number above this.
    after: u64,
}

/// The last ten minutes as a series, and what clients, procedures, requests and files do now.
pub(super) async fn live<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    query: Result<Query<LiveQuery>, QueryRejection>,
) -> Answer {
    let Query(LiveQuery { after }) =
        query.map_err(|bad| Refusal::new(StatusCode::BAD_REQUEST, bad.body_text()))?;
    let gateway = admin.opened()?;
    let live = admin.live.get(async { gateway.live(0).await }).await;
    let mut live = (*live).clone();
    live.leave_out(after);
    reply::list(&live, &admin.large)
}

/// As `forebay exports --json`.
pub(super) async fn exports<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    reply::list(&*admin.exports(&*gateway).await, &admin.large)
}

/// As `forebay quota list --json`.
pub(super) async fn quotas<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    match &*admin.quotas(&*gateway).await {
        Ok(quotas) => reply::list(quotas, &admin.large),
        Err(problem) => Err(Refusal::unavailable(problem.clone())),
    }
}

/// The log: its size and position, and the archived logs, as far as they are known without reading one.
pub(super) async fn log<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    let status = admin.status(&*gateway).await;
    let data_dir = admin.data_dir.clone();
    let listed = async {
        let listed = tokio::task::spawn_blocking(move || logs::archived_logs(&data_dir)).await;
        // There is no folder without a log.
        listed.ok().and_then(Result::ok).unwrap_or_default()
    };
    let archived = admin.logs.get(listed).await;
    let archived: Vec<Value> = archived.iter().map(archived_log).collect();
    Ok(reply::ok(&json!({
        "used_bytes": status.log_bytes,
        "limit_bytes": status.log_limit_bytes,
        "published_lsn": status.published_lsn,
        "durable_lsn": status.durable_lsn,
        "end_lsn": status.log_end_lsn,
        "unpublished_bytes": status.unpublished_bytes,
        "oldest_unpublished_age_seconds": status.oldest_unpublished_age_seconds,
        "error": status.log_error,
        "archived": archived,
    })))
}

fn archived_log(log: &logs::ArchivedLog) -> Value {
    json!({
        "label": log.label.to_string(),
        "disk_bytes": log.bytes,
        "archived_seconds": log.note.as_ref().map(|note| note.archived_at),
        "taken_by_epoch": log.note.as_ref().map(|note| note.taken_by.1.0),
        "salvaged_to": log.salvaged_to,
    })
}

/// The requests since the start, by kind, and by method and cause.
pub(super) async fn requests<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    let status = admin.status(&*gateway).await;
    let mut requests = json!(status.requests);
    requests["by_cause"] = json!(status.requests_by_cause);
    Ok(reply::ok(&requests))
}

/// What the bucket costs, as in `forebay status --json`.
pub(super) async fn cost<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let gateway = admin.opened()?;
    Ok(reply::ok(&admin.status(&*gateway).await.cost))
}

/// The configuration in force, as `forebay config --json`.
pub(super) async fn config<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Response {
    reply::ok(&admin.access().shown)
}

/// As `forebay scrub --status --json`.
pub(super) async fn scrub<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let report = admin.opened()?.scrub(ScrubRequest::Status).await;
    let report = report.map_err(Refusal::unavailable)?;
    Ok(reply::ok(&report))
}

/// The progress of rewriting packs.
pub(super) async fn gc<C: Control>(State(admin): State<Arc<Admin<C>>>) -> Answer {
    let report = admin.opened()?.gc(GcOrder::Status).await;
    Ok(reply::ok(&report.map_err(Refusal::unavailable)?))
}
