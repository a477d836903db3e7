//! The latest messages as server-sent events (the HTML standard, section 9.2).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use super::reply::Refusal;
use super::state::Admin;
use crate::admin::Control;
use crate::logging;

/// How often a line is sent that means nothing, so that an end of the connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The parameters of the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Only events with a number above this.
    #[serde(default)]
    after: u64,
}

/// The kept events and all further ones. Each has its number as its id; `Last-Event-ID`, which a browser sends when it
/// connects again, or `?after=NUMBER` leaves out those up to that number. An event `lost` has the number of those that
/// the client has missed because it reads too slowly.
pub(super) async fn follow<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    Query(After { after }): Query<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let Ok(permit) = admin.followers.clone().try_acquire_owned() else {
        let why = format!("{} clients follow events already", admin.limits.followers);
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let last = headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok()?.parse().ok());
    let (kept, fresh) = logging::events().follow(last.unwrap_or(after));
    let kept = kept.into_iter();
    let events = stream::unfold(
        (kept, fresh, permit),
        async |(mut kept, mut fresh, permit)| {
            let event = match kept.next() {
                Some(event) => encoded(&event),
                None => match fresh.recv().await {
                    Ok(event) => encoded(&event),
                    Err(RecvError::Lagged(count)) => {
                        Event::default().event("lost").data(count.to_string())
                    }
                    Err(RecvError::Closed) => return None,
                },
            };
            Some((Ok(event), (kept, fresh, permit)))
        },
    );
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn encoded(event: &logging::Event) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.number.to_string()).data(data)
}
