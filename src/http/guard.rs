//! What all requests pass through.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::Ends;
use super::reply::Refusal;
use super::rules;
use super::state::{Admin, REQUESTS_PER_SECOND};
use crate::admin::Control;

/// Headers of every answer: nothing is stored, and a browser runs and shows nothing but this server's own content. Text
/// cannot become HTML or code in it (trusted types).
const HEADERS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Characters of the path of a refused request that are logged.
const LOGGED_PATH: usize = 100;

/// Adds the headers of every answer.
pub(super) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers requests that are permitted, and logs changes.
pub(super) async fn permitted<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    request: Request,
    next: Next,
) -> Response {
    let is_delayed = admin.rate.wait().await;
    let Some(ends) = request.extensions().get::<Ends>().copied() else {
        return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "not a connection").into_response();
    };
    let client = ends.client;
    if is_delayed {
        admin.counts.delayed.add(1);
        tracing::warn!(client = %client.ip(), "admin HTTP: requests wait, since there are more than {REQUESTS_PER_SECOND} a second");
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if let Err(response) = check(&admin, ends, &request) {
        let status = response.status();
        admin.counts.answered(status);
        let path: String = path.chars().take(LOGGED_PATH).collect();
        tracing::warn!(client = %client.ip(), "admin HTTP: {method} {path:?} is refused: {status}");
        return *response;
    }
    let response = next.run(request).await;
    let status = response.status();
    admin.counts.answered(status);
    match method {
        Method::POST => tracing::info!(%client, "admin HTTP: {method} {path:?}: {status}"),
        _ => tracing::debug!(%client, "admin HTTP: {method} {path:?}: {status}"),
    }
    response
}

fn check<C: Control>(admin: &Admin<C>, ends: Ends, request: &Request) -> Result<(), Box<Response>> {
    let refused = |refusal: Refusal| Box::new(refusal.into_response());
    let headers = request.headers();
    if request.version() != Version::HTTP_11 {
        let why = "only HTTP/1.1 is spoken here";
        let refusal = Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, why);
        return Err(refused(refusal));
    }
    let access = admin.access();
    let host = rules::check_host(headers, request.uri(), ends, &access.hosts).map_err(refused)?;
    rules::check_origin(headers, host, ends.tls).map_err(refused)?;
    let with = |status, why: &'static str, name: HeaderName, value| {
        let mut response = refused(Refusal::new(status, why));
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
        Err(response)
    };
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        Method::POST => match &access.token {
            None => Err(refused(Refusal::new(
                StatusCode::FORBIDDEN,
                "changes need a token, and this gateway has none: put one into a file (`openssl rand -hex 32`), set \
                 admin_token to its path and send SIGHUP to the gateway",
            ))),
            Some(token) if token.is_in(headers) => Ok(()),
            Some(_) => {
                let why = "changes need the token of admin_token: `Authorization: Bearer TOKEN`";
                with(StatusCode::UNAUTHORIZED, why, WWW_AUTHENTICATE, "Bearer")
            }
        },
        _ => {
            let why = "there is no such method here";
            with(
                StatusCode::METHOD_NOT_ALLOWED,
                why,
                ALLOW,
                "GET, HEAD, POST",
            )
        }
    }
}

/// Answers a bounded number of requests at once, each within a bounded time.
pub(super) async fn in_bounds<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    request: Request,
    next: Next,
) -> Response {
    let limit = admin.limits.request;
    let answer = async {
        // The semaphore is never closed.
        let _permit = admin.requests.acquire().await;
        next.run(request).await
    };
    let late = |_| {
        let limit = humantime::format_duration(limit);
        let why =
            format!("no answer within {limit}: the body did not arrive, or the gateway is slow");
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, why).into_response()
    };
    timeout(limit, answer).await.unwrap_or_else(late)
}
