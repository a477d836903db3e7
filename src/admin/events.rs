//! Requests for the latest messages, and clients that follow them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::message::{Reply, to_line};
use crate::logging::{Event, Events};

/// A request for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsRequest {
    /// Only those with a number above this.
    pub after: u64,
    /// Also all further ones, each in a line of its own, until the client closes the connection.
    #[serde(default)]
    pub follow: bool,
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// The next event.
    Event(Box<Event>),
    /// This number of events is left out: the follower has read too slowly.
    Lost(u64),
}

/// Sends the kept events with a number above `after`, and then each further one. Ends when the client closes the
/// connection or sends anything, and when it takes a line no further for as long as `limit`.
pub(super) async fn follow(
    stream: impl AsyncRead + AsyncWrite,
    events: &Events,
    after: u64,
    limit: Duration,
) {
    let (kept, mut fresh) = events.follow(after);
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let closed = async {
        // Whatever comes, or an error: a follower has nothing to say.
        let _ = from_client.read_u8().await;
    };
    let send = async {
        for event in kept {
            send(&mut to_client, reply(event), limit).await?;
        }
        loop {
            let line = match fresh.recv().await {
                Ok(event) => reply(event),
                Err(RecvError::Lagged(count)) => Reply::Lost(count),
                Err(RecvError::Closed) => return Some(()),
            };
            send(&mut to_client, line, limit).await?;
        }
    };
    tokio::select! {
        () = closed => {}
        _ = send => {}
    }
}

fn reply(event: Arc<Event>) -> Reply {
    Reply::Event(Box::new(Arc::unwrap_or_clone(event)))
}

/// Nothing if the client does not take it.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    reply: Reply,
    limit: Duration,
) -> Option<()> {
    let line = to_line(&reply).ok()?;
    timeout(limit, stream.write_all(&line)).await.ok()?.ok()
}
