//! The gateway's side of the control socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_fs::Opening;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::events::{EventsRequest, follow};
use super::folder_lock::FolderLock;
use super::message::{Command, REQUEST_LIMIT, Reply, Request, read_line, to_line};
use super::trace::trace;
use super::{Control, FlushReport, FolderError, PathRefusal, TrashRequest};
use crate::logging::Events;

/// Maximum number of connections between their first byte and their last; more wait to be accepted. Those that wait
/// for a flush are not counted.
const CONNECTIONS: usize = 16;

/// Maximum number of connections that wait for a flush; all of them wait for the same uploads.
const FLUSHES: usize = 16;

/// Maximum number of connections that follow events.
const FOLLOWERS: usize = 8;

/// Maximum number of connections that trace calls.
const TRACES: usize = 8;
/// Maximum number of connections that wait for a walk; the volume makes few of them at a time.
const WALKS: usize = 8;

/// How often a client hears of the progress of a walk or a restore.
const PROGRESS: Duration = Duration::from_secs(1);

/// How long a client may take to send its line, and to take the reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a failed accept, as when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The control socket of a gateway, and its lock on `data_dir`. Dropping this removes the socket, and another gateway
/// may use the folder.
#[derive(Debug)]
pub struct Server {
    // Closed before the lock is released.
    listener: UnixListener,
    _folder_lock: FolderLock,
    limits: Limits,
    events: Events,
}

#[derive(Clone, Debug)]
struct Limits {
    connections: Arc<Semaphore>,
    flushes: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    traces: Arc<Semaphore>,
    walks: Arc<Semaphore>,
}

impl Server {
    /// Locks the folder, which is created if needed, and listens. Clients wait until [`Server::run`]. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// Another gateway uses the folder, or the folder cannot be used.
    pub fn bind(data_dir: &Path) -> Result<Server, FolderError> {
        let (folder_lock, listener) = FolderLock::take(data_dir)?;
        let limits = Limits {
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            flushes: Arc::new(Semaphore::new(FLUSHES)),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            traces: Arc::new(Semaphore::new(TRACES)),
            walks: Arc::new(Semaphore::new(WALKS)),
        };
        Ok(Server {
            listener,
            _folder_lock: folder_lock,
            limits,
            events: Events::default(),
        })
    }

    /// The same with the events that clients may ask for; none otherwise.
    pub fn with_events(self, events: Events) -> Server {
        Server { events, ..self }
    }

    /// Answers clients, until it is dropped; clients that still wait are disconnected then. Until `control` has a
    /// gateway, requests for its status are answered with the step of its opening, those for events as always, and all
    /// others wait.
    pub async fn run<C: Control>(
        &self,
        control: watch::Receiver<Option<Arc<C>>>,
        opening: &Opening,
    ) {
        let mut connections = JoinSet::new();
        loop {
            // The semaphore is never closed.
            let Ok(permit) = self.limits.connections.clone().acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let asked = Asked {
                        control: control.clone(),
                        opening: opening.clone(),
                        limits: self.limits.clone(),
                        events: self.events.clone(),
                    };
                    connections.spawn(converse(stream, asked, permit));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client of the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }
}

/// The data that a connection needs beside its stream.
struct Asked<C> {
    control: watch::Receiver<Option<Arc<C>>>,
    opening: Opening,
    limits: Limits,
    events: Events,
}

/// Handles one connection, from its request to its reply.
async fn converse<C: Control>(
    mut stream: UnixStream,
    asked: Asked<C>,
    permit: OwnedSemaphorePermit,
) {
    if !is_trusted(&stream) {
        return;
    }
    // A client that sends nothing in time, or disconnects, gets no reply.
    let Ok(Ok(line)) = timeout(TIMEOUT, receive(&mut stream)).await else {
        return;
    };
    let reply = match line {
        Ok(Command::Events(request)) if request.follow => {
            drop(permit);
            match asked.limits.followers.try_acquire() {
                Ok(_permit) => return follow(stream, &asked.events, request.after, TIMEOUT).await,
                Err(_) => Reply::Error(format!("{FOLLOWERS} other clients follow events already")),
            }
        }
        Ok(Command::Trace(request)) => {
            drop(permit);
            let control = asked.control.borrow().clone();
            match (control, asked.limits.traces.try_acquire()) {
                (None, _) => Reply::Opening(asked.opening.step().what),
                (_, Err(_)) => Reply::Error(format!("{TRACES} other clients trace calls already")),
                (Some(control), Ok(_permit)) => {
                    return trace(stream, &*control, &request, TIMEOUT).await;
                }
            }
        }
        Ok(command) => answer(&mut stream, command, asked, permit).await,
        Err(problem) => Reply::Error(problem),
    };
    if let Ok(line) = to_line(&reply) {
        // If bytes of the request were left unread, the close would become a reset, which may overtake the reply;
        // only a client that sends more than its request can notice.
        let _ = timeout(TIMEOUT, stream.write_all(&line)).await;
    }
}

/// Executes a client's request.
async fn answer<C: Control>(
    stream: &mut UnixStream,
    command: Command,
    asked: Asked<C>,
    permit: OwnedSemaphorePermit,
) -> Reply {
    let Asked {
        mut control,
        opening,
        limits,
        events,
    } = asked;
    let listed = |request: EventsRequest| Reply::Events(events.since(request.after));
    let opened = control.borrow().clone();
    if opened.is_none() {
        match command {
            Command::Status => return Reply::Opening(opening.step().what),
            Command::Events(request) => return listed(request),
            _ => {}
        }
    }
    let (control, permit) = match opened {
        Some(control) => (control, permit),
        None => {
            // It may take long, and other clients need the status of the gateway meanwhile.
            drop(permit);
            let Ok(permit) = limits.flushes.clone().try_acquire_owned() else {
                return Reply::Opening(opening.step().what);
            };
            match control.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(opened)) => (opened.clone(), permit),
                // The volume could not be opened, and the gateway ends.
                Ok(None) | Err(_) => return Reply::Opening(opening.step().what),
            }
        }
    };
    match command {
        Command::Events(request) => listed(request),
        // It has a conversation of its own.
        Command::Trace(_) => Reply::Error("a trace is not one answer".to_owned()),
        Command::Status => Reply::Status(Box::new(control.status().await)),
        Command::Exports => Reply::Exports(control.exports().await),
        Command::Flush => {
            drop(permit);
            flush(control.flush(), &limits.flushes).await
        }
        Command::FlushPath(path) => {
            drop(permit);
            let flushing = async { control.flush_path(path).await.map_err(PathRefusal::message) };
            flush(flushing, &limits.flushes).await
        }
        Command::Where(path) => {
            drop(permit);
            match limits.walks.try_acquire() {
                Ok(_permit) => {
                    let seen = Arc::new(AtomicU64::new(0));
                    let walking = control.whereabouts(path, seen.clone());
                    let walking = async move {
                        match walking.await {
                            Ok(report) => Reply::Where(Box::new(report)),
                            Err(refusal) => Reply::Error(refusal.message()),
                        }
                    };
                    with_progress(stream, walking, || seen.load(Ordering::Relaxed)).await
                }
                Err(_) => Reply::Error(format!("{WALKS} other requests wait for a walk already")),
            }
        }
        Command::Quota(request) => match control.quota(request).await {
            Ok(quotas) => Reply::Quota(quotas),
            Err(problem) => Reply::Error(problem),
        },
        Command::Snapshot(request) => match control.snapshot(request).await {
            Ok(snapshots) => Reply::Snapshot(snapshots),
            Err(problem) => Reply::Error(problem),
        },
        Command::Restore(order) => {
            // It may take long.
            drop(permit);
            let restoring = async {
                match control.restore(order).await {
                    Ok(report) => Reply::Restored(report),
                    Err(problem) => Reply::Error(problem),
                }
            };
            with_progress(stream, restoring, || control.restored_so_far()).await
        }
        Command::Trash(request) => {
            // It may take long, as for a tree of many files.
            drop(permit);
            trash(stream, &*control, request).await
        }
        Command::Scrub(request) => match control.scrub(request).await {
            Ok(report) => Reply::Scrub(Box::new(report)),
            Err(problem) => Reply::Error(problem),
        },
        Command::Live(request) => Reply::Live(Box::new(control.live(request.after).await)),
        Command::Gc(order) => match control.gc(order).await {
            Ok(report) => Reply::Gc(report),
            Err(problem) => Reply::Error(problem),
        },
    }
}

/// Reads the request; the inner error is sent to the client.
async fn receive(stream: &mut UnixStream) -> std::io::Result<Result<Command, String>> {
    let line = match read_line(stream, REQUEST_LIMIT).await {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Ok(Err(format!("not a request: {error}")));
        }
        other => other?,
    };
    let request: Result<Request, _> = serde_json::from_slice(&line);
    Ok(request
        .map(|request| request.command)
        .map_err(|error| format!("not a request: {error}")))
}

async fn flush(
    flushing: impl Future<Output = Result<FlushReport, String>>,
    flushes: &Semaphore,
) -> Reply {
    let Ok(_permit) = flushes.try_acquire() else {
        return Reply::Error(format!(
            "{FLUSHES} other requests wait for a flush already; `forebay status` shows the reason for the delay"
        ));
    };
    match flushing.await {
        Ok(report) => Reply::Flush(report),
        Err(problem) => Reply::Error(problem),
    }
}

/// Waits for `work`, and sends the client each second how many objects it has `seen`. Ends when the client is gone.
async fn with_progress(
    stream: &mut UnixStream,
    work: impl Future<Output = Reply>,
    seen: impl Fn() -> u64,
) -> Reply {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(reply) = timeout(PROGRESS, work.as_mut()).await {
            return reply;
        }
        if !send_part(stream, &Reply::Seen(seen())).await {
            return Reply::Error("nobody listens".to_owned());
        }
    }
}

/// Executes a request about the trash, and sends the objects that it concerns as they come. It goes on when the client is gone.
async fn trash(stream: &mut UnixStream, control: &impl Control, request: TrashRequest) -> Reply {
    let (send, mut some) = mpsc::channel(1);
    let mut working = std::pin::pin!(control.trash(request, send));
    let mut is_heard = true;
    let done = loop {
        let rows = tokio::select! {
            biased;
            Some(rows) = some.recv() => rows,
            done = working.as_mut() => break done,
        };
        is_heard = is_heard && send_part(stream, &Reply::Trashed(rows)).await;
    };
    while let Ok(rows) = some.try_recv() {
        is_heard = is_heard && send_part(stream, &Reply::Trashed(rows)).await;
    }
    match done {
        Ok(report) => Reply::Trash(report),
        Err(problem) => Reply::Error(problem),
    }
}

/// Sends a part of an answer. Returns whether the client took it; if not, it gets nothing more, as its line may be cut.
async fn send_part(stream: &mut UnixStream, part: &Reply) -> bool {
    let line = to_line(part).unwrap_or_default();
    let is_taken = matches!(timeout(TIMEOUT, stream.write_all(&line)).await, Ok(Ok(())));
    if !is_taken {
        // All later writes fail, also that of the reply.
        let _ = stream.shutdown().await;
    }
    is_taken
}

/// Whether the peer is the user that runs this process, or root.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}
