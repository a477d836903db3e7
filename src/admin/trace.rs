//! Clients that trace calls.

use std::time::Duration;

use forebay_nfs::Seen;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::Control;
use super::events::send;
use super::message::Reply;
use crate::trace::{ROOM, TraceRequest, TracedCall};

/// What a client that traces gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Traced {
    /// The trace has begun: every call that is answered from now on is seen.
    Begun,
    /// The next call.
    Call(Box<TracedCall>),
    /// This number of calls is left out: they came faster than they were taken.
    Lost(u64),
}

/// Sends the calls that are answered from now on. Ends when the client closes the connection or sends anything, and
/// when it takes a line no further for as long as `limit`.
pub(super) async fn trace<C: Control>(
    stream: impl AsyncRead + AsyncWrite,
    control: &C,
    request: &TraceRequest,
    limit: Duration,
) {
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let filter = match request.filter() {
        Ok(filter) => filter,
        Err(problem) => {
            send(&mut to_client, Reply::Error(problem), limit).await;
            return;
        }
    };
    let mut calls = control.calls().watch(filter, ROOM);
    let closed = async {
        // Whatever comes, or an error: the client has nothing to say.
        let _ = from_client.read_u8().await;
    };
    let sending = async {
        send(&mut to_client, Reply::Tracing, limit).await?;
        while let Some(seen) = calls.next().await {
            let reply = match seen {
                Seen::Lost(count) => Reply::Lost(count),
                Seen::Call(call) => match request.traced(*call, control).await {
                    Some(call) => Reply::Call(Box::new(call)),
                    None => continue,
                },
            };
            send(&mut to_client, reply, limit).await?;
        }
        Some(())
    };
    tokio::select! {
        () = closed => {}
        _ = sending => {}
    }
}
