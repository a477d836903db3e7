//! A writer: a client that changes its files and names at random, with several calls in flight, and behaves as a
//! kernel's client does: after a kill it repeats unanswered calls, and when a COMMIT shows another verifier it sends
//! again all data that were not on stable storage.

mod answer;
mod choose;
mod operation;
mod sequence;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_client::{CallId, Link, LinkError, Request, Verifier};

use crate::gate::{Gate, Shared, count};
use crate::ledger::{Ledger, Pending};
use crate::observe::TIMEOUT;
use crate::random::Random;

/// How a writer works.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Most calls in flight.
    pub window: usize,
    /// A sequencer does one operation after the other, in an order that the names and two files show.
    pub sequencer: bool,
    /// The longest write in bytes.
    pub longest_write: u64,
}

/// A ledger that the harness reads while its writer waits.
pub type SharedLedger = Arc<Mutex<Ledger>>;

/// Locks the ledger. After a panic it is used as the panic left it.
pub fn open_book(ledger: &SharedLedger) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A writer at work.
pub struct Writer {
    shared: Arc<Shared>,
    ledger: SharedLedger,
    link: Link<Gate>,
    random: Random,
    style: Style,
    /// The server's verifier in the newest answer.
    told: Option<Verifier>,
    /// Calls in flight that another server may have executed under another call number.
    repeated: BTreeSet<CallId>,
    /// Counter of the sequencer.
    turn: u64,
}

impl Writer {
    /// A writer that records into this ledger.
    pub fn new(shared: Arc<Shared>, ledger: SharedLedger, random: Random, style: Style) -> Writer {
        let number = open_book(&ledger).writer as u32;
        Writer {
            // 2^23 call numbers for each of 256 writers, apart from the observers' numbers.
            link: Link::new(Gate::new(shared.clone()), number << 23, TIMEOUT),
            shared,
            ledger,
            random,
            style,
            told: None,
            repeated: BTreeSet::new(),
            turn: 0,
        }
    }

    /// Works until `finishing` is set or an error is found, which it reports.
    pub fn run(mut self) {
        let result = self.work();
        let waiting = self.link.waiting();
        match result {
            Ok(()) | Err(Wrong::Link(LinkError::Gone)) => {}
            Err(wrong) => {
                let writer = open_book(&self.ledger).writer;
                self.shared
                    .fail(format!("writer {writer}: {wrong}; under way: {waiting:?}"));
            }
        }
        self.shared.end();
    }

    fn work(&mut self) -> Result<(), Wrong> {
        loop {
            while self.link.outstanding() < self.style.window {
                let Some((request, pending)) = self.choose() else {
                    break;
                };
                self.issue(&request, pending)?;
            }
            match self.link.receive()? {
                Some(answer) => self.answered(answer)?,
                None if self.is_done() => return Ok(()),
                // With no call in flight a writer does not notice the end of the server.
                None if self.shared.is_closed() => self.link.reconnect()?,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn is_done(&self) -> bool {
        let ledger = open_book(&self.ledger);
        self.shared.finishing.load(Ordering::Acquire)
            && ledger.pending.is_empty()
            && ledger.files.values().all(|file| file.unstable.is_empty())
    }

    /// Records a call and sends it.
    fn issue(&mut self, request: &Request, pending: Pending) -> Result<(), Wrong> {
        let call = self.link.reserve();
        if is_stable(&pending) {
            self.shared.stable_calls.fetch_add(1, Ordering::AcqRel);
        }
        {
            let mut ledger = open_book(&self.ledger);
            let now = self.shared.clock.tick();
            ledger.invoke(call, pending, now);
        }
        Ok(self.link.send_as(call, request)?)
    }

    /// Sends a call once more that was answered "later", under another call number.
    fn again(&mut self, call: CallId, pending: Pending, repeated: bool) -> Result<(), Wrong> {
        std::thread::sleep(Duration::from_millis(100));
        let request = {
            let ledger = open_book(&self.ledger);
            operation::request(&ledger, &pending).ok_or(Wrong::Lost(call))?
        };
        let call = self.link.reserve();
        if repeated {
            self.repeated.insert(call);
        }
        open_book(&self.ledger).pending.insert(call, pending);
        Ok(self.link.send_as(call, &request)?)
    }
}

/// Whether the answer to a call promises stable storage.
fn is_stable(pending: &Pending) -> bool {
    match pending {
        Pending::Name { .. } | Pending::Commit { .. } => true,
        Pending::Data { stable, .. } => *stable,
        Pending::Read { .. } => false,
    }
}

/// An error found by a writer.
#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{what}: {failure}")]
    Refused {
        what: String,
        failure: forebay_client::Failure,
    },
    #[error("{what}: {why}")]
    Answer { what: String, why: String },
    #[error("call {0:?} is not known to the writer")]
    Lost(CallId),
}

impl Writer {
    fn count_stable(&self, steps: usize) {
        count(&self.shared.counts.stable, steps as u64);
    }
}
