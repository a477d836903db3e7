//! Requests about a path of the volume.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use super::reply::{self, Refusal};
use super::state::Admin;
use crate::admin::{Control, PathRefusal, VolumePath};

/// Where the file or tree is that `?path=` names, as `forebay where --json`.
pub(super) async fn whereabouts<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let Some(path) = of_query(query.as_deref())? else {
        return Err(bad("name a file or directory: ?path=/a/b".to_owned()));
    };
    let gateway = admin.opened()?;
    let Ok(_permit) = admin.walks.try_acquire() else {
        let why = format!(
            "{} other requests look for paths already",
            admin.limits.walks
        );
        return Err(Refusal::unavailable(why));
    };
    let limit = admin.limits.walk;
    match timeout(limit, gateway.whereabouts(path, Arc::default())).await {
        Ok(Ok(report)) => Ok(reply::ok(&report)),
        Ok(Err(refusal)) => Err(refused(refusal)),
        Err(_) => Err(Refusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "the tree is not walked after {}: ask for a part of it, or use `forebay where`, which waits",
                humantime::format_duration(limit)
            ),
        )),
    }
}

/// The path in the query of a URL, whose bytes may be encoded; nothing if there is no query.
///
/// # Errors
/// There is something else in the query.
pub(super) fn of_query(query: Option<&str>) -> Result<Option<VolumePath>, Refusal> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    match query.split_once('=') {
        Some(("path", path)) if !path.contains('&') => {
            // As forms of browsers encode a space.
            let path = path.replace('+', " ");
            Ok(Some(VolumePath(percent_decode_str(&path).collect())))
        }
        _ => Err(bad(
            "the query has to be path=, with a path whose special characters are encoded"
                .to_owned(),
        )),
    }
}

/// The answer to a request whose path is refused.
pub(super) fn refused(refusal: PathRefusal) -> Refusal {
    match refusal {
        PathRefusal::Bad(why) => bad(why),
        PathRefusal::NotFound(why) => Refusal::new(StatusCode::NOT_FOUND, why),
        PathRefusal::Unavailable(why) => Refusal::unavailable(why),
    }
}

fn bad(why: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_path_of_any_bytes() {
        let path = |query| of_query(query).map(|path| path.map(|path| path.0));
        assert!(matches!(path(None), Ok(None)));
        assert!(matches!(path(Some("")), Ok(None)));
        let found = path(Some("path=/a+b%2Bc=%ff%26%0a")).ok().flatten();
        assert_eq!(found.as_deref(), Some(&b"/a b+c=\xff&\n"[..]));
        for other in ["path", "other=/a", "path=/a&depth=1", "a&path=/a"] {
            assert!(path(Some(other)).is_err(), "{other}");
        }
    }
}
