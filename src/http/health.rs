//! Health, for supervisors and load balancers.

use std::sync::Arc;

use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::reply;
use super::state::Admin;
use crate::admin::Control;
use crate::health::State;

/// The process runs and answers.
pub(super) async fn live() -> Response {
    reply::ok(&json!({ "state": "live" }))
}

/// Whether the gateway owns the volume and serves it: 200 with `ok` or `degraded`, else 503 with `opening`, `stopping` or
/// `failing`.
pub(super) async fn ready<C: Control>(Extract(admin): Extract<Arc<Admin<C>>>) -> Response {
    let not_ready = StatusCode::SERVICE_UNAVAILABLE;
    if let Some(reason) = admin.stopping.reason() {
        return reply::json(not_ready, &json!({ "state": "stopping", "reason": reason }));
    }
    let Some(gateway) = admin.gateway() else {
        let step = admin.opening.step().what;
        return reply::json(not_ready, &json!({ "state": "opening", "step": step }));
    };
    let status = admin.status(&*gateway).await;
    let (code, state) = match status.health.state {
        State::Healthy => (StatusCode::OK, "ok"),
        State::Degraded => (StatusCode::OK, State::Degraded.word()),
        State::Failing => (not_ready, State::Failing.word()),
    };
    let problems = &status.health.problems;
    reply::json(code, &json!({ "state": state, "problems": problems }))
}
