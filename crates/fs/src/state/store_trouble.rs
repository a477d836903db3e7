//! Trouble with the bucket, as calls and background tasks have met it.

use std::future::Future;
use std::time::Duration;

use forebay_object::Health;
use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long background tasks send nothing after a reader had no answer.
const AFTER_A_READER: Duration = Duration::from_secs(1);

/// Objects that the volume consists of are not in the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    /// Their names.
    pub(crate) what: String,
    pub(crate) since: Instant,
}

/// A reader had no answer.
#[derive(Clone)]
struct ReadError {
    why: String,
    since: Instant,
    last: Instant,
}

impl ReadError {
    fn is_over(&self, last_answer: Option<Instant>) -> bool {
        last_answer.is_some_and(|answer| answer > self.last)
    }
}

/// Trouble with the bucket of one volume.
pub(crate) struct StoreTrouble {
    /// What the publisher waits for, and since when.
    publisher: Mutex<Option<(String, Instant)>>,
    reader: Mutex<Option<ReadError>>,
    /// Whether the bucket answers any request.
    health: Health,
    /// Replaced after each check that finds something missing.
    gone: watch::Sender<Option<Gone>>,
    /// A flush asks for a new check.
    recheck: Notify,
}

impl StoreTrouble {
    pub(crate) fn new(health: Health) -> StoreTrouble {
        StoreTrouble {
            publisher: Mutex::default(),
            reader: Mutex::default(),
            health,
            gone: watch::Sender::new(None),
            recheck: Notify::new(),
        }
    }

    /// Bytes a second that may go to the bucket now; none if there is no limit.
    pub(crate) fn upload_rate(&self) -> Option<u64> {
        self.health.upload_rate()
    }

    /// Notes that the bucket does not answer the publisher. `status` shows it.
    pub(crate) fn store_error(&self, why: &str) {
        let mut error = self.publisher.lock();
        let since = error
            .as_ref()
            .map_or_else(Instant::now, |(_, since)| *since);
        *error = Some((why.to_owned(), since));
    }

    /// Notes that the bucket answers the publisher.
    pub(crate) fn store_works(&self) {
        self.publisher.lock().take();
    }

    /// Notes that a reader had no answer from the bucket.
    pub(crate) fn read_error(&self, why: &str) {
        let now = Instant::now();
        let mut error = self.reader.lock();
        let since = error
            .as_ref()
            .filter(|error| !error.is_over(self.health.last_read()))
            .map_or(now, |error| error.since);
        *error = Some(ReadError {
            why: why.to_owned(),
            since,
            last: now,
        });
    }

    /// The trouble with the bucket, and its age. A reader's trouble ends with the next answer to a read; the
    /// publisher's, with the next answer to the publisher.
    pub(crate) fn current(&self) -> Option<(String, Duration)> {
        if let Some(gone) = self.gone() {
            return Some((gone.what, gone.since.elapsed()));
        }
        let of_publisher = self.publisher.lock().clone();
        if let Some((why, since)) = of_publisher {
            // The publisher may wait for something that never answers; the store has given the reason.
            let why = match self.health.words_since(since) {
                Some(said) => said.added_to(&why),
                None => why,
            };
            return Some((why, since.elapsed()));
        }
        if let Some(away) = self.health.outage() {
            return Some(away);
        }
        let answer = self.health.last_read();
        let error = self.reader.lock().clone();
        let error = error.filter(|error| !error.is_over(answer))?;
        Some((error.why, error.since.elapsed()))
    }

    /// Whether a background task may send a request that can wait. During an outage it may when a probe is due, and
    /// some time after a reader's error: if no client asks for anything, no other request can end such trouble.
    pub(crate) fn may_ask(&self) -> bool {
        let reader_failed = || {
            let error = self.reader.lock();
            let recent = error.as_ref().map(|error| error.last.elapsed());
            recent.is_some_and(|recent| recent < AFTER_A_READER)
        };
        self.gone().is_none()
            && self.publisher.lock().is_none()
            && self.health.takes_requests()
            && !reader_failed()
    }

    /// The missing objects; nothing is published before they are back.
    pub(crate) fn gone(&self) -> Option<Gone> {
        self.gone.borrow().clone()
    }

    /// Resolves with the next check that finds something missing, or still missing.
    pub(crate) fn next_gone(&self) -> impl Future<Output = String> + use<> {
        let mut gone = self.gone.subscribe();
        if gone.borrow().is_some() {
            self.recheck.notify_one();
        }
        async move {
            loop {
                if gone.changed().await.is_err() {
                    std::future::pending().await
                }
                if let Some(gone) = &*gone.borrow_and_update() {
                    return gone.what.clone();
                }
            }
        }
    }

    /// Returns when a flush asks for a new check.
    pub(crate) fn recheck_wanted(&self) -> Notified<'_> {
        self.recheck.notified()
    }

    /// Notes that something is missing. Logs it the first time.
    pub(crate) fn note_gone(&self, what: &str, explained: impl FnOnce() -> String) {
        let since = match self.gone() {
            Some(gone) => gone.since,
            None => {
                tracing::error!("{}", explained());
                Instant::now()
            }
        };
        let what = what.to_owned();
        self.gone.send_replace(Some(Gone { what, since }));
    }

    /// Notes that the missing objects are back.
    pub(crate) fn note_found(&self) {
        if let Some(gone) = self.gone.send_replace(None) {
            tracing::info!(
                "the objects that were gone from the bucket are back after {:?}; publishing continues",
                gone.since.elapsed()
            );
        }
    }
}
