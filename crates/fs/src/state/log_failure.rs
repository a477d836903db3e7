//! What happens when a flush of the log fails.
//!
//! ```text
//!   flush fails -> poisoned -> everything in the bucket -> a new segment works -> writes go on
//!                    |  verifier rotates                     |  no: tried again, 100 ms to 5 s apart
//!                    |  noted in the local state             +--------------------------------------
//! ```
//!
//! After a failed flush it is unknown which bytes are on the disk, and a second flush that succeeds proves nothing
//! about them. So nothing that waited for the failed flush is acknowledged: callers that can repeat their request
//! without harm get [`Error::Delay`], the others an error. Memory still has every change; the publisher brings all of
//! them to the bucket before the log starts again in a fresh segment.
//!
//! A process that ends before that must not come back with a verifier under which unflushed writes were answered. So
//! the local state says for that whole time that something may be lost.

use std::sync::Arc;
use std::time::Duration;

use forebay_environment::state_file::{self, LocalState};
use forebay_environment::{backoff, draw};
use forebay_vfs::{Error, Verifier};
use forebay_wal::LogFailed;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::State;

/// Whether the log has failed, and the attempts to replace it since.
pub(crate) struct LogHealth {
    trouble: watch::Sender<Option<Trouble>>,
}

/// A log that has failed and is not replaced yet.
#[derive(Clone)]
struct Trouble {
    why: String,
    since: Instant,
    /// How many attempts to begin a new segment have failed.
    attempts: u32,
    next_attempt: Instant,
}

impl LogHealth {
    pub(crate) fn new() -> LogHealth {
        LogHealth {
            trouble: watch::Sender::new(None),
        }
    }

    /// Notes that the log has failed; returns whether this is the first report.
    fn failed(&self, failed: &LogFailed) -> bool {
        self.trouble.send_if_modified(|trouble| {
            let news = trouble.is_none();
            let now = Instant::now();
            trouble.get_or_insert_with(|| Trouble {
                why: failed.to_string(),
                since: now,
                attempts: 0,
                next_attempt: now,
            });
            news
        })
    }

    /// Notes that no new segment works yet, and when to try again. Returns whether the reason has changed.
    fn still_failed(&self, why: String, pause: impl FnOnce(u32) -> Duration) -> bool {
        let mut news = false;
        self.trouble.send_modify(|trouble| {
            if let Some(trouble) = trouble {
                trouble.attempts += 1;
                trouble.next_attempt = Instant::now() + pause(trouble.attempts);
                news = trouble.why != why;
                trouble.why = why;
            }
        });
        news
    }

    fn works(&self) {
        self.trouble.send_replace(None);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.trouble.borrow().is_some()
    }

    /// When the publisher should try to replace a failed log.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.trouble
            .borrow()
            .as_ref()
            .map(|trouble| trouble.next_attempt)
    }

    /// The failure, and its age.
    pub(crate) fn trouble(&self) -> Option<(String, Duration)> {
        self.trouble
            .borrow()
            .as_ref()
            .map(|trouble| (trouble.why.clone(), trouble.since.elapsed()))
    }
}

impl State {
    /// Notes that the log has failed: clients must send again the writes that it may have lost. The returned error
    /// makes the client try again: the log restarts as soon as everything is in the bucket.
    pub(crate) fn log_failed(&self, failed: &LogFailed) -> Error {
        // A caller that got a failure of the log may come here after the log was replaced.
        let fails = self.log().is_some_and(|log| log.failure().is_some());
        if fails && self.log_health.failed(failed) {
            *self.verifier.lock() = Verifier(draw(&*self.environment.random));
            tracing::error!(
                "{failed}; writes are refused until everything is in the bucket and a new log segment works. Check the disk of {}",
                self.environment.local.path().display()
            );
            self.signals.wake_publisher();
        }
        Error::Delay
    }

    /// Restarts the log if it has failed and the bucket has everything.
    pub(crate) async fn restart_log(self: &Arc<Self>) {
        if !self.log_health.has_failed() {
            return;
        }
        // The log refuses every change, and the changes that it took are in memory by now: no others can come to the
        // open checkpoint before the log restarts.
        {
            let open = self.checkpoint_lock.write();
            // A snapshot may have closed a checkpoint while the one before was published.
            if open.since().is_some() || self.waiting_checkpoints() > 0 {
                return;
            }
        }
        let state = self.clone();
        let restart = move || match state.log().filter(|log| log.failure().is_some()) {
            Some(log) => log.restart(log.next_lsn()),
            None => Ok(()),
        };
        let restarted = self.environment.compute.run(restart).await;
        match restarted.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked))) {
            Ok(()) => {
                self.log_health.works();
                tracing::info!("a new log segment works; writes are accepted again");
            }
            Err(error) => {
                let random = &*self.environment.random;
                let why = format!("no new log segment: {error}");
                let pause = |attempt| backoff(attempt, random);
                if self.log_health.still_failed(why.clone(), pause) {
                    tracing::error!(
                        "{why}; tried again until it works. Check the disk of {}",
                        self.environment.local.path().display()
                    );
                }
            }
        }
    }

    /// Watches for failures of the log, also of those that no caller waits for, and keeps the local state correct
    /// meanwhile. Never returns.
    pub(crate) async fn watch_log(self: Arc<State>, state: Arc<Mutex<LocalState>>) {
        let Some(log) = self.log() else {
            return std::future::pending().await;
        };
        let mut health = self.log_health.trouble.subscribe();
        loop {
            let failed = log.failed().await;
            self.log_failed(&failed);
            self.note(&state, |state| {
                state.boot = [0; 16];
                state.clean = false;
            })
            .await;
            // The sender lives as long as `self`.
            let _ = health.wait_for(Option::is_none).await;
            let verifier = self.verifier();
            let boot = self.environment.local.boot_id();
            self.note(&state, |state| {
                state.verifier = verifier;
                state.boot = boot;
            })
            .await;
        }
    }

    /// Changes the local state, and on the disk as well if that is possible.
    async fn note(&self, state: &Mutex<LocalState>, change: impl FnOnce(&mut LocalState)) {
        let changed = {
            let mut state = state.lock();
            change(&mut state);
            state.clone()
        };
        let local = self.environment.local.clone();
        let store = move || state_file::store(&*local, &changed);
        if let Ok(Err(error)) = self.environment.compute.run(store).await {
            tracing::error!("{error}");
        }
    }
}
