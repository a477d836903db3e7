//! The messages on the control socket.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::live::Live;
use crate::logging::Event;
use crate::trace::{TraceRequest, TracedCall};

use super::{
    EventsRequest, ExportStatus, FlushReport, GcOrder, GcReport, LiveRequest, QuotaReport,
    QuotaRequest, RestoreOrder, RestoreReport, ScrubReport, ScrubRequest, SnapshotReport,
    SnapshotRequest, Status, TrashReport, TrashRequest, TrashRow, VolumePath, WhereReport,
};

/// A client's message. Unknown fields are refused, not ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub(super) command: Command,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Command {
    Exports,
    Flush,
    FlushPath(VolumePath),
    Where(VolumePath),
    Status,
    Quota(QuotaRequest),
    Snapshot(SnapshotRequest),
    Restore(RestoreOrder),
    Trash(TrashRequest),
    Scrub(ScrubRequest),
    Gc(GcOrder),
    Events(EventsRequest),
    Live(LiveRequest),
    Trace(TraceRequest),
}

/// A gateway's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reply {
    Exports(Vec<ExportStatus>),
    Flush(FlushReport),
    Status(Box<Status>),
    Quota(Vec<QuotaReport>),
    Snapshot(Vec<SnapshotReport>),
    Restored(RestoreReport),
    /// Objects in the trash that a request concerns; more and the report come later.
    Trashed(Vec<TrashRow>),
    Trash(TrashReport),
    Scrub(Box<ScrubReport>),
    Gc(GcReport),
    Where(Box<WhereReport>),
    /// Objects that a walk has seen so far; the answer comes later.
    Seen(u64),
    Events(Vec<Event>),
    Live(Box<Live>),
    /// The next one for a follower.
    Event(Box<Event>),
    /// The trace has begun.
    Tracing,
    /// The next call for a client that traces.
    Call(Box<TracedCall>),
    /// The number of events or calls that a client has missed, since it read too slowly.
    Lost(u64),
    /// The gateway is still opening the volume, and is at this step.
    Opening(String),
    Error(String),
}

/// Maximum length of a request: one with two paths of 2 KiB, whatever its characters are.
pub(super) const REQUEST_LIMIT: usize = 16 << 10;

/// Maximum length of a reply that a client accepts. A status has some 2 KiB, a client of an export 200 bytes, a quota
/// some 200 bytes and its path.
pub(super) const REPLY_LIMIT: usize = 64 << 20;

/// Encodes a message as a line.
pub(super) fn to_line(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads up to the end of the line, or of the stream, and returns the bytes before it.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the line is longer than `limit`, and errors of the stream.
pub(super) async fn read_line(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut stream = stream.take(limit as u64 + 1);
    loop {
        let searched = line.len();
        let read = stream.read_buf(&mut line).await?;
        let fresh = line.get(searched..).unwrap_or_default();
        if let Some(end) = fresh.iter().position(|byte| *byte == b'\n') {
            line.truncate(searched + end);
            return Ok(line);
        }
        if line.len() > limit {
            let problem = format!("a line of more than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        if read == 0 {
            return Ok(line);
        }
    }
}
