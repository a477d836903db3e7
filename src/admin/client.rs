//! The client side of the control socket.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::live::Live;
use crate::logging::Event;
use crate::taken_over;
use crate::trace::TraceRequest;

use super::message::{Command, REPLY_LIMIT, Reply, Request, read_line, to_line};
use super::{
    EventsRequest, ExportStatus, FlushReport, Followed, GcOrder, GcReport, LiveRequest,
    QuotaReport, QuotaRequest, RestoreOrder, RestoreReport, ScrubReport, ScrubRequest,
    SnapshotReport, SnapshotRequest, Status, Traced, TrashReport, TrashRequest, TrashRow,
    VolumePath, WhereReport, folder_lock,
};

/// How long a gateway may take to report its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a gateway may take to change a quota, to find the paths of all quotas, or to look at all packs: it may
/// have to read the bucket.
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens.
    #[error(
        "no gateway runs with data_dir = {path}{left}; start one with `forebay serve`, \
         or name the folder of the one you mean with --data-dir",
        path = data_dir.display()
    )]
    NotRunning {
        /// The folder.
        data_dir: PathBuf,
        /// The known facts about the last gateway, as part of the sentence.
        left: String,
    },
    /// The folder or the gateway belongs to another user.
    #[error(
        "the gateway with data_dir = {} belongs to another user; ask as that user or as root",
        .0.display()
    )]
    NotYours(PathBuf),
    /// It does not answer.
    #[error("the gateway with data_dir = {path} did not answer within {}", humantime::format_duration(*.after), path = data_dir.display())]
    Silent {
        /// The folder.
        data_dir: PathBuf,
        /// The time that the client has waited.
        after: Duration,
    },
    /// The gateway closed the connection, or is of another version.
    #[error("the gateway with data_dir = {path} gave no usable answer: {problem}", path = data_dir.display())]
    Broken {
        /// The folder.
        data_dir: PathBuf,
        /// The reason.
        problem: String,
    },
    /// It is not serving yet.
    #[error("the gateway with data_dir = {path} is still opening the volume: {step}", path = data_dir.display())]
    Opening {
        /// The folder.
        data_dir: PathBuf,
        /// The step of the opening.
        step: String,
    },
    /// It has closed the connection on which events were followed or calls traced.
    #[error("the gateway with data_dir = {} has stopped, or has dropped this client because it read nothing for some seconds", .0.display())]
    Ended(PathBuf),
    /// The gateway could not do what the request asks for.
    #[error("{0}")]
    Refused(String),
}

/// Requests the status of the gateway that uses `data_dir`.
///
/// # Errors
/// There is no gateway, it may not be asked, or it does not answer within 10 s.
pub async fn status(data_dir: &Path) -> Result<Status, ClientError> {
    match ask(data_dir, Command::Status, Some(STATUS_TIMEOUT)).await? {
        Reply::Status(status) => Ok(*status),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Requests the last ten minutes of the gateway that uses `data_dir`: points with a sequence number above `after`, and
/// the tables.
///
/// # Errors
/// As for [`status`].
pub async fn live(data_dir: &Path, after: u64) -> Result<Live, ClientError> {
    let command = Command::Live(LiveRequest { after });
    match ask(data_dir, command, Some(STATUS_TIMEOUT)).await? {
        Reply::Live(live) => Ok(*live),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Requests the current rules of the exports of the gateway that uses `data_dir`.
///
/// # Errors
/// As for [`status`].
pub async fn exports(data_dir: &Path) -> Result<Vec<ExportStatus>, ClientError> {
    match ask(data_dir, Command::Exports, Some(STATUS_TIMEOUT)).await? {
        Reply::Exports(exports) => Ok(exports),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Makes the gateway that uses `data_dir` publish everything that has been written so far, or of it the file or tree at
/// `path`; returns when the bucket has it. With a `timeout` the client stops waiting, while the gateway continues.
///
/// # Errors
/// As for [`status`], and the reason if the gateway cannot publish.
pub async fn flush(
    data_dir: &Path,
    path: Option<VolumePath>,
    timeout: Option<Duration>,
) -> Result<FlushReport, ClientError> {
    let command = path.map_or(Command::Flush, Command::FlushPath);
    match ask(data_dir, command, timeout).await? {
        Reply::Flush(report) => Ok(report),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Asks the gateway that uses `data_dir` where the file or tree at `path` is. While it walks a large tree, it calls
/// `progress` with the objects that it has seen. Waits without a limit as long as the gateway is at work.
///
/// # Errors
/// As for [`status`], and the reason if there is no such path.
pub async fn whereabouts(
    data_dir: &Path,
    path: VolumePath,
    progress: impl FnMut(u64),
) -> Result<WhereReport, ClientError> {
    match ask_with_progress(
        data_dir,
        Command::Where(path),
        Some(STATUS_TIMEOUT),
        progress,
    )
    .await?
    {
        Reply::Where(report) => Ok(*report),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Sends a request whose answer may take long, and returns the answer. Until then it calls `progress` each second. With a time
/// limit, it ends if the gateway says nothing for so long; the gateway may go on.
async fn ask_with_progress(
    data_dir: &Path,
    command: Command,
    time_limit: Option<Duration>,
    mut progress: impl FnMut(u64),
) -> Result<Reply, ClientError> {
    let mut stream = BufReader::new(request_to(data_dir, command).await?);
    loop {
        let reply = next_reply(data_dir, &mut stream);
        let reply = match time_limit {
            None => reply.await?,
            Some(after) => timeout(after, reply)
                .await
                .map_err(|_| ClientError::Silent {
                    data_dir: data_dir.to_owned(),
                    after,
                })??,
        };
        match reply {
            Reply::Seen(objects) => progress(objects),
            reply => return Ok(reply),
        }
    }
}

/// Sends `request` about quotas to the gateway that uses `data_dir`.
///
/// # Errors
/// As for [`status`], and the reason if the request cannot be done.
pub async fn quota(
    data_dir: &Path,
    request: QuotaRequest,
) -> Result<Vec<QuotaReport>, ClientError> {
    match ask(data_dir, Command::Quota(request), Some(METADATA_TIMEOUT)).await? {
        Reply::Quota(quotas) => Ok(quotas),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Sends `request` about snapshots to the gateway that uses `data_dir`.
///
/// # Errors
/// As for [`status`], and the reason if the request cannot be done.
pub async fn snapshot(
    data_dir: &Path,
    request: SnapshotRequest,
) -> Result<Vec<SnapshotReport>, ClientError> {
    match ask(data_dir, Command::Snapshot(request), Some(METADATA_TIMEOUT)).await? {
        Reply::Snapshot(snapshots) => Ok(snapshots),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Has the gateway that uses `data_dir` put a file or directory of a snapshot back. Until that is done, however long it
/// takes, it calls `progress` with the number of objects that are made.
///
/// # Errors
/// As for [`status`], and the reason if it cannot be done.
pub async fn restore(
    data_dir: &Path,
    order: RestoreOrder,
    progress: impl FnMut(u64),
) -> Result<RestoreReport, ClientError> {
    // Without a limit: a gateway that is still opening the volume says nothing, and does it afterwards.
    match ask_with_progress(data_dir, Command::Restore(order), None, progress).await? {
        Reply::Restored(report) => Ok(report),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Sends `request` about the trash to the gateway that uses `data_dir`, and waits for its end however long that takes. Passes
/// the objects that it concerns to `each`, some at a time; the report has none.
///
/// # Errors
/// As for [`status`], and the reason if the request cannot be done.
pub async fn trash(
    data_dir: &Path,
    request: TrashRequest,
    mut each: impl FnMut(Vec<TrashRow>),
) -> Result<TrashReport, ClientError> {
    let mut stream = BufReader::new(request_to(data_dir, Command::Trash(request)).await?);
    loop {
        match next_reply(data_dir, &mut stream).await? {
            Reply::Trashed(rows) => each(rows),
            Reply::Trash(mut report) => {
                each(std::mem::take(&mut report.objects));
                return Ok(report);
            }
            other => return Err(unexpected(data_dir, other)),
        }
    }
}

/// Sends `request` about the scrub to the gateway that uses `data_dir`; returns the state of the scrub after it.
///
/// # Errors
/// As for [`status`], and the reason if the request cannot be done.
pub async fn scrub(data_dir: &Path, request: ScrubRequest) -> Result<ScrubReport, ClientError> {
    match ask(data_dir, Command::Scrub(request), Some(METADATA_TIMEOUT)).await? {
        Reply::Scrub(report) => Ok(*report),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Makes the gateway that uses `data_dir` rewrite packs that are mostly dead, or requests the progress of that.
///
/// # Errors
/// As for [`status`], and the reason if the request cannot be done.
pub async fn gc(data_dir: &Path, order: GcOrder) -> Result<GcReport, ClientError> {
    match ask(data_dir, Command::Gc(order), Some(STATUS_TIMEOUT)).await? {
        Reply::Gc(report) => Ok(report),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Requests the kept events with numbers above `after` from the gateway that uses `data_dir`, oldest first.
///
/// # Errors
/// As for [`status`].
pub async fn events(data_dir: &Path, after: u64) -> Result<Vec<Event>, ClientError> {
    let request = EventsRequest {
        after,
        follow: false,
    };
    match ask(data_dir, Command::Events(request), Some(STATUS_TIMEOUT)).await? {
        Reply::Events(events) => Ok(events),
        other => Err(unexpected(data_dir, other)),
    }
}

/// Passes the kept events with numbers above `after` to `each`, and then every further one as it comes, until `each`
/// says to break. The gateway drops a follower that reads nothing for some seconds.
///
/// # Errors
/// As for [`status`], and the end of the gateway.
pub async fn follow_events(
    data_dir: &Path,
    after: u64,
    mut each: impl FnMut(Followed) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let request = EventsRequest {
        after,
        follow: true,
    };
    let each = |reply| {
        Ok(each(match reply {
            Reply::Event(event) => Followed::Event(event),
            Reply::Lost(count) => Followed::Lost(count),
            other => return Err(other),
        }))
    };
    follow(data_dir, Command::Events(request), each).await
}

/// Passes the calls that are answered from now on to `each`, until it says to break. The gateway drops a client that reads
/// nothing for some seconds.
///
/// # Errors
/// As for [`status`], and the end of the gateway.
pub async fn trace(
    data_dir: &Path,
    request: TraceRequest,
    mut each: impl FnMut(Traced) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let each = |reply| {
        Ok(each(match reply {
            Reply::Tracing => Traced::Begun,
            Reply::Call(call) => Traced::Call(call),
            Reply::Lost(count) => Traced::Lost(count),
            other => return Err(other),
        }))
    };
    follow(data_dir, Command::Trace(request), each).await
}

/// Passes each line of the answer to `each`, until it says to break; it returns those that it does not expect.
async fn follow(
    data_dir: &Path,
    command: Command,
    mut each: impl FnMut(Reply) -> Result<ControlFlow<()>, Reply>,
) -> Result<(), ClientError> {
    let mut stream = BufReader::new(request_to(data_dir, command).await?);
    loop {
        let Some(reply) = next_line(data_dir, &mut stream).await? else {
            return Err(ClientError::Ended(data_dir.to_owned()));
        };
        match each(reply) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(other) => return Err(unexpected(data_dir, other)),
        }
    }
}

/// The next line of an answer that goes on.
async fn next_reply(
    data_dir: &Path,
    stream: &mut BufReader<UnixStream>,
) -> Result<Reply, ClientError> {
    let reply = next_line(data_dir, stream).await?;
    reply.ok_or_else(|| ClientError::Broken {
        data_dir: data_dir.to_owned(),
        problem: "it closed the connection without an answer".to_owned(),
    })
}

/// The next line of an answer; `None` at its end.
async fn next_line(
    data_dir: &Path,
    stream: &mut BufReader<UnixStream>,
) -> Result<Option<Reply>, ClientError> {
    let mut line = Vec::new();
    let mut limited = stream.take(REPLY_LIMIT as u64);
    let read = limited.read_until(b'\n', &mut line).await;
    let read = read.map_err(|error| ClientError::Broken {
        data_dir: data_dir.to_owned(),
        problem: error.to_string(),
    })?;
    match read {
        0 => Ok(None),
        _ => parsed(data_dir, &line).map(Some),
    }
}

async fn ask(
    data_dir: &Path,
    command: Command,
    time_limit: Option<Duration>,
) -> Result<Reply, ClientError> {
    let exchange = exchange(data_dir, command);
    match time_limit {
        None => exchange.await,
        Some(after) => timeout(after, exchange).await.unwrap_or_else(|_| {
            Err(ClientError::Silent {
                data_dir: data_dir.to_owned(),
                after,
            })
        }),
    }
}

/// Sends a request; returns the stream from which the reply comes.
async fn request_to(data_dir: &Path, command: Command) -> Result<UnixStream, ClientError> {
    let broken = |problem: String| ClientError::Broken {
        data_dir: data_dir.to_owned(),
        problem,
    };
    let mut stream = folder_lock::connect(data_dir)
        .await
        .map_err(|error| no_gateway(data_dir, error))?;
    let line = to_line(&Request { command }).map_err(|error| broken(error.to_string()))?;
    stream
        .write_all(&line)
        .await
        .map_err(|error| broken(error.to_string()))?;
    Ok(stream)
}

async fn exchange(data_dir: &Path, command: Command) -> Result<Reply, ClientError> {
    let broken = |problem: String| ClientError::Broken {
        data_dir: data_dir.to_owned(),
        problem,
    };
    let mut stream = request_to(data_dir, command).await?;
    let line = read_line(&mut stream, REPLY_LIMIT)
        .await
        .map_err(|error| broken(error.to_string()))?;
    if line.is_empty() {
        return Err(broken(
            "it closed the connection without an answer".to_owned(),
        ));
    }
    parsed(data_dir, &line)
}

fn parsed(data_dir: &Path, line: &[u8]) -> Result<Reply, ClientError> {
    serde_json::from_slice(line).map_err(|error| ClientError::Broken {
        data_dir: data_dir.to_owned(),
        problem: format!("its answer cannot be read, so it may be another version: {error}"),
    })
}

fn no_gateway(data_dir: &Path, error: io::Error) -> ClientError {
    let data_dir = data_dir.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => {
            let left = taken_over::noted(&data_dir).map_or(String::new(), |reason| {
                format!(" (the last one ended: {reason})")
            });
            ClientError::NotRunning { data_dir, left }
        }
        io::ErrorKind::ConnectionRefused => ClientError::NotRunning {
            data_dir,
            left: " (the last one was killed: its socket is still there)".to_owned(),
        },
        io::ErrorKind::PermissionDenied => ClientError::NotYours(data_dir),
        _ => ClientError::Broken {
            data_dir,
            problem: error.to_string(),
        },
    }
}

fn unexpected(data_dir: &Path, reply: Reply) -> ClientError {
    match reply {
        Reply::Error(problem) => ClientError::Refused(problem),
        Reply::Opening(step) => ClientError::Opening {
            data_dir: data_dir.to_owned(),
            step,
        },
        Reply::Exports(_)
        | Reply::Flush(_)
        | Reply::Status(_)
        | Reply::Live(_)
        | Reply::Quota(_)
        | Reply::Snapshot(_)
        | Reply::Restored(_)
        | Reply::Trashed(_)
        | Reply::Trash(_)
        | Reply::Scrub(_)
        | Reply::Gc(_)
        | Reply::Where(_)
        | Reply::Seen(_)
        | Reply::Events(_)
        | Reply::Event(_)
        | Reply::Tracing
        | Reply::Call(_)
        | Reply::Lost(_) => ClientError::Broken {
            data_dir: data_dir.to_owned(),
            problem: "it answered another request".to_owned(),
        },
    }
}
