//! What happens when a flush of the log fails.
//!
//! ```text
//!   flush fails -> poisoned -> everything in the bucket -> a new segment works -> writes go on
//!                    |  verifier rotates                     |  no: tried again, 100 ms to 5 s apart
//!                    |  noted in the local state             +--------------------------------------
//! ```
//!
//! After a failed flush nobody knows which bytes are on the disk, and a second flush that succeeds says
//! nothing about them. So nothing that waited for it is acknowledged: who can ask again without harm
//! is told to, the others get an error. Memory still has every change; the publisher brings all of
//! them to the bucket before the log begins anew in a fresh segment.
//!
//! A process that ends before that is done must not come back with a verifier under which unflushed
//! writes were answered. The local state therefore says as long as it lasts that something may be lost.

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

/// Whether the log has failed, and what was tried since.
pub(crate) struct LogHealth {
    trouble: watch::Sender<Option<Trouble>>,
}

/// A log that has failed and is not replaced yet.
#[derive(Clone)]
struct Trouble {
    why: String,
    since: Instant,
    /// How often a new segment was tried in vain.
    attempts: u32,
    next_attempt: Instant,
}

impl LogHealth {
    pub(crate) fn new() -> LogHealth {
        LogHealth {
            trouble: watch::Sender::new(None),
        }
    }

    /// Notes that the log has failed; says whether that is news.
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

    /// Notes that no new segment works yet, and when to try again. Says whether the reason is news.
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

    /// When the publisher should see to a failed log.
    pub(crate) fn next_attempt(&self) -> Option<Instant> {
        self.trouble
            .borrow()
            .as_ref()
            .map(|trouble| trouble.next_attempt)
    }

    /// What is wrong, and for how long.
    pub(crate) fn trouble(&self) -> Option<(String, Duration)> {
        self.trouble
            .borrow()
            .as_ref()
            .map(|trouble| (trouble.why.clone(), trouble.since.elapsed()))
    }
}

impl State {
    /// The log failed: clients must send again what it may have lost. What is refused is to be
    /// tried again: the log begins anew as soon as everything is in the bucket.
    pub(crate) fn log_failed(&self, failed: &LogFailed) -> Error {
        // Who was told of a failure may come here when it is over.
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

    /// Begins the log anew if it has failed and the bucket has everything.
    pub(crate) async fn restart_log(self: &Arc<Self>) {
        if !self.log_health.has_failed() {
            return;
        }
        // The log refuses every change, and whose record it took has made it by now: what is not in
        // the open checkpoint here never will be.
        if self.checkpoint_lock.write().since().is_some() {
            return;
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

    /// Learns of failures of the log, also of those that nobody waits for, and keeps the local state
    /// honest meanwhile. Never returns.
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

    /// Changes the local state, on the disk as well if that lets it.
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
