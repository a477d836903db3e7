//! Messages that the lock manager sends in addition to its replies: grants, results of asynchronous calls, and
//! notices of its own restart.

use std::sync::Arc;
use std::time::Duration;

use forebay_lock::Grant;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::notification::{Callback, Notification};
use super::{LockManager, Notifications, Peer};
use crate::metrics::Metrics;
use crate::nlm::{self, Status};
use crate::nsm;
use crate::outgoing::Program;
use crate::xdr::Malformed;

/// Calls at the same time.
const PARALLEL: usize = 64;

/// Results that wait to be sent; more are dropped, as their clients ask again.
const MAX_RESULTS: usize = 1024;

/// How long the server tries to notify an owner of its lock before the next waiter gets the lock. This is longer than
/// the 30 s after which Linux asks again by itself, so that a client that cannot be called (because of a firewall)
/// still gets its locks.
const GRANT_TIMEOUT: Duration = Duration::from_secs(40);

/// How long the server tries to notify a client of a restart.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Pause between attempts; it doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const NLM: Program = Program {
    number: nlm::PROGRAM,
    version: nlm::VERSION,
};
const NSM: Program = Program {
    number: nsm::PROGRAM,
    version: nsm::VERSION,
};

/// Sends notifications until it is dropped.
pub(crate) async fn run(
    manager: Arc<LockManager>,
    notifications: Notifications,
    metrics: Arc<Metrics>,
) {
    let Notifications {
        mut receiver,
        previous,
    } = notifications;
    let parallel = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = JoinSet::new();
    let results_waiting = Arc::new(());
    for peer in previous {
        tasks.spawn(notify(manager.clone(), peer, parallel.clone()));
    }
    loop {
        tokio::select! {
            Some(_) = tasks.join_next() => {}
            () = manager.work_left.notified() => {
                if let Some(grants) = manager.table.go_on() {
                    manager.notify_granted(grants);
                }
                // One step at a time, so that calls run between them.
                tokio::task::yield_now().await;
            }
            notification = receiver.recv() => match notification {
                Some(Notification::Granted(grant)) => {
                    let call = call_back(manager.clone(), grant, parallel.clone(), metrics.clone());
                    tasks.spawn(call);
                }
                Some(Notification::Results { remote, procedure, results }) => {
                    // Each task that waits has a copy.
                    if Arc::strong_count(&results_waiting) <= MAX_RESULTS {
                        let (copy, parallel) = (results_waiting.clone(), parallel.clone());
                        tasks.spawn(async move {
                            let _permit = parallel.acquire().await;
                            if let Err(failure) = remote.call(NLM, procedure, &results).await {
                                tracing::debug!(client = %remote.host, %failure, "could not send the results of a lock call");
                            }
                            drop(copy);
                        });
                    }
                }
                None => return,
            },
        }
    }
}

/// Paces the attempts, until the time limit is over.
struct Attempts {
    end: Instant,
    pause: Duration,
}

impl Attempts {
    fn new(time_limit: Duration) -> Attempts {
        Attempts {
            end: Instant::now() + time_limit,
            pause: FIRST_PAUSE,
        }
    }

    /// Waits for the next attempt; `false` if there is none.
    async fn next(&mut self) -> bool {
        let at = Instant::now() + self.pause;
        if at > self.end {
            return false;
        }
        tokio::time::sleep_until(at).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// Notifies an owner that it has its lock; the owner's answer decides what happens to the lock.
async fn call_back(
    manager: Arc<LockManager>,
    grant: Grant<Callback>,
    parallel: Arc<Semaphore>,
    metrics: Arc<Metrics>,
) {
    let host = grant.lock.owner.client.host;
    let remote = manager.remote((host, grant.tag.local));
    let arguments = nlm::granted_arguments(&grant);
    let mut attempts = Attempts::new(GRANT_TIMEOUT);
    let wants_it = loop {
        // If the message arrived after the owner has returned the lock and waits for it again, the owner would take it
        // for the new grant.
        if !manager.table.is_unsettled(&grant) {
            return;
        }
        let answer = {
            let _permit = parallel.acquire().await;
            remote.call(NLM, nlm::GRANTED, &arguments).await
        };
        match answer.as_deref().map(nlm::granted_answer) {
            Ok(Ok(Status::GRANTED)) => break true,
            Ok(Ok(Status::DENIED)) => break false,
            Ok(Ok(status)) => {
                tracing::debug!(client = %host, ?status, "a client did not answer the callback for its lock");
            }
            Ok(Err(Malformed)) => {
                tracing::debug!(client = %host, "a client's answer about its lock is malformed");
            }
            Err(failure) => {
                tracing::debug!(client = %host, %failure, "cannot call a client back about its lock");
            }
        }
        if !attempts.next().await {
            metrics.lock_callbacks_failed.add(1);
            tracing::warn!(
                client = %host,
                "the callback for a granted lock failed, and the lock goes to the next waiter: check that the client's ports for rpcbind (111) and lockd are open for this server"
            );
            break false;
        }
    };
    manager.notify_granted(if wants_it {
        metrics.lock_callbacks.add(1);
        tracing::debug!(client = %host, "a client accepted the lock that it waited for");
        manager.table.confirm(&grant)
    } else {
        manager.table.refuse(&grant)
    });
}

/// Notifies a client that the server has restarted, so that it reclaims the locks that it held.
async fn notify(manager: Arc<LockManager>, peer: Peer, parallel: Arc<Semaphore>) {
    let host = peer.client.host;
    let remote = manager.remote((host, peer.local));
    let mut attempts = Attempts::new(NOTICE_TIMEOUT);
    // A client knows its server by the text that its users wrote into the mount command: usually an address (Linux
    // matches by address, whatever the text was), or a name.
    let names = [peer.local.to_string(), manager.name.clone()];
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.retain(|name| !name.is_empty());
    loop {
        let mut failed = None;
        for name in &names {
            let _permit = parallel.acquire().await;
            let arguments = nsm::notice(name, manager.state());
            if let Err(failure) = remote.call(NSM, nsm::NOTIFY, &arguments).await {
                failed = Some(failure);
                break;
            }
        }
        let Some(failure) = failed else {
            tracing::debug!(client = %host, "a client knows of the restart");
            return;
        };
        tracing::debug!(client = %host, %failure, "cannot notify a client of the restart");
        if !attempts.next().await {
            tracing::warn!(
                client = %host,
                "the notification of the restart failed: if the client still runs, it assumes locks that it does not hold; mount again on that client"
            );
            return;
        }
    }
}
