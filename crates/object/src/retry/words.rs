//! The last refusals and failures of a store, for messages to people.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::sort::{Refusal, is_outage};

type Lasts = watch::Sender<Option<Refusal>>;

/// The last messages of one store.
#[derive(Debug)]
pub(crate) struct Words {
    last: Mutex<Option<(Instant, Refusal)>>,
    /// The last permanent refusal of a read.
    reads: Lasts,
    /// The same for writes. Deletes do not count: a volume can do without them.
    writes: Lasts,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            last: Mutex::default(),
            reads: watch::Sender::new(None),
            writes: watch::Sender::new(None),
        }
    }
}

impl Words {
    /// Notes a permanent failure of a read. An answer that is part of the protocol is no failure.
    pub(crate) fn note_read(&self, error: &object_store::Error) {
        self.note(error, &self.reads);
    }

    /// The same for a write.
    pub(crate) fn note_write(&self, error: &object_store::Error) {
        self.note(error, &self.writes);
    }

    fn note(&self, error: &object_store::Error, lasting: &Lasts) {
        // The request was not sent, so the error carries no message of the store.
        if is_outage(error) {
            return;
        }
        let refusal = Refusal::of(error);
        if refusal.fault.is_expected() {
            return;
        }
        if refusal.fault.is_lasting() {
            lasting.send_replace(Some(refusal.clone()));
        }
        *self.last.lock() = Some((Instant::now(), refusal));
    }

    /// The last message, if it did not come before `since`.
    pub(crate) fn since(&self, since: Instant) -> Option<Refusal> {
        let last = self.last.lock();
        let (at, refusal) = last.as_ref()?;
        (*at >= since).then(|| refusal.clone())
    }

    /// Observes permanent refusals from now on, of reads, and also of writes if `needs` includes them.
    pub(crate) fn lasting(&self, needs: Needs) -> Lasting {
        Lasting {
            reads: self.reads.subscribe(),
            writes: (needs == Needs::Writes).then(|| self.writes.subscribe()),
        }
    }
}

/// The kinds of requests that a task needs a store for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Reads. Writes may be refused.
    Reads,
    /// Reads and writes.
    Writes,
}

/// Permanent refusals, as they occur.
pub(crate) struct Lasting {
    reads: watch::Receiver<Option<Refusal>>,
    writes: Option<watch::Receiver<Option<Refusal>>>,
}

impl Lasting {
    /// Waits for the next one; `None` if the store was dropped.
    pub(crate) async fn next(&mut self) -> Option<Refusal> {
        let Some(writes) = &mut self.writes else {
            return next(&mut self.reads).await;
        };
        tokio::select! {
            refusal = next(&mut self.reads) => refusal,
            refusal = next(writes) => refusal,
        }
    }

    /// A refusal that has occurred already and was not seen.
    pub(crate) fn seen(&self) -> Option<Refusal> {
        seen(&self.reads).or_else(|| self.writes.as_ref().and_then(seen))
    }
}

async fn next(refusals: &mut watch::Receiver<Option<Refusal>>) -> Option<Refusal> {
    refusals.changed().await.ok()?;
    refusals.borrow_and_update().clone()
}

fn seen(refusals: &watch::Receiver<Option<Refusal>>) -> Option<Refusal> {
    let is_new = refusals.has_changed().unwrap_or(false);
    is_new.then(|| refusals.borrow().clone()).flatten()
}
