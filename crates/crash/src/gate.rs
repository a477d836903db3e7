//! The gate where writers wait while the server is down, and the state that writers and harness share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_client::{Reach, Reached, Verifier};

use crate::history::Clock;

/// Operations that writers may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Everything.
    Any,
    /// Only WRITE UNSTABLE.
    Unstable,
    /// Only COMMIT: nothing else flushes the log.
    Commits,
    /// Only WRITE with DATA_SYNC and FILE_SYNC.
    StableWrites,
    /// Only operations on names.
    Names,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Any,
        Phase::Unstable,
        Phase::Commits,
        Phase::StableWrites,
        Phase::Names,
    ];
}

/// State that all writers and the harness share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The clock of all histories.
    pub clock: Clock,
    phase: AtomicU8,
    /// Set when writers are to commit their data, wait for all answers, and end.
    pub finishing: AtomicBool,
    /// Calls in flight whose answer promises stable storage.
    pub stable_calls: AtomicU64,
    /// Counts of the writers' operations.
    pub counts: Counts,
    doors: Mutex<Doors>,
    changed: Condvar,
}

/// Counts, printed at the end.
#[derive(Debug, Default)]
pub struct Counts {
    /// Operations answered.
    pub answered: AtomicU64,
    /// Operations that are on stable storage by the server's answer, including those that a COMMIT made stable.
    pub stable: AtomicU64,
    /// COMMITs answered.
    pub commits: AtomicU64,
    /// Bytes that writers read back and compared while the server ran.
    pub read_back: AtomicU64,
    /// Writes that were sent again because a COMMIT had another verifier.
    pub resent: AtomicU64,
    /// Calls that were sent to more than one server.
    pub repeated: AtomicU64,
    /// Of these, calls answered EXIST or NOENT that had been executed before the kill.
    pub known_repeats: AtomicU64,
}

/// Adds to a count.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

#[derive(Debug, Default)]
struct Doors {
    /// Address of the server while the gate is open.
    address: Option<SocketAddr>,
    /// Number of times that the gate was opened.
    opening: u64,
    /// Whether unanswered calls are repeated after this opening.
    retransmit: bool,
    /// The write verifier of the server.
    verifier: Option<Verifier>,
    waiting: usize,
    running: usize,
    gave_up: bool,
    failures: Vec<String>,
}

impl Shared {
    fn doors(&self) -> MutexGuard<'_, Doors> {
        // A panicked writer is reported separately; the fields are consistent all the same.
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the operations that writers may start from now on.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The operations that they may start.
    pub fn phase(&self) -> Phase {
        let number = usize::from(self.phase.load(Ordering::Acquire));
        Phase::ALL.get(number).copied().unwrap_or(Phase::Any)
    }

    /// Lets writers connect to a server.
    pub fn open(&self, address: SocketAddr, verifier: Verifier, retransmit: bool) {
        let mut doors = self.doors();
        doors.address = Some(address);
        doors.opening += 1;
        doors.retransmit = retransmit;
        doors.verifier = Some(verifier);
        self.changed.notify_all();
    }

    /// Makes writers wait that lose their connection.
    pub fn close(&self) {
        self.doors().address = None;
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.doors().address.is_none()
    }

    /// Ends all writers that wait, now or later.
    pub fn give_up(&self) {
        self.doors().gave_up = true;
        self.changed.notify_all();
    }

    /// The verifier of the server that is open to writers.
    pub fn verifier(&self) -> Option<Verifier> {
        self.doors().verifier
    }

    /// Records an error of the server, or of its answers.
    pub fn fail(&self, why: String) {
        self.doors().failures.push(why);
        self.changed.notify_all();
    }

    /// The errors recorded so far.
    pub fn failures(&self) -> Vec<String> {
        self.doors().failures.clone()
    }

    /// Called when a writer begins.
    pub fn begin(&self) {
        self.doors().running += 1;
    }

    /// Called when a writer has ended.
    pub fn end(&self) {
        self.doors().running -= 1;
        self.changed.notify_all();
    }

    /// Waits for at most `limit` until all writers that have not ended wait at the closed gate. Returns false if they
    /// do not, or something failed.
    pub fn all_wait(&self, limit: Duration) -> bool {
        self.until(limit, |doors| doors.waiting == doors.running)
    }

    /// Waits for at most `limit` until all writers have ended. Returns false if they have not, or something failed.
    pub fn all_ended(&self, limit: Duration) -> bool {
        self.until(limit, |doors| doors.running == 0)
    }

    /// Sleeps; returns false if something fails meanwhile.
    pub fn sleep(&self, time: Duration) -> bool {
        self.until(time, |_| false);
        self.doors().failures.is_empty()
    }

    fn until(&self, limit: Duration, done: impl Fn(&Doors) -> bool) -> bool {
        let (doors, _) = self
            .changed
            .wait_timeout_while(self.doors(), limit, |doors| {
                doors.failures.is_empty() && !done(doors)
            })
            .unwrap_or_else(PoisonError::into_inner);
        doors.failures.is_empty() && done(&doors)
    }
}

/// Connects a writer to the server that is behind the gate.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Shared>,
    seen: u64,
}

impl Gate {
    /// A gate for one writer.
    pub fn new(shared: Arc<Shared>) -> Gate {
        Gate { shared, seen: 0 }
    }
}

impl Reach for Gate {
    fn reach(&mut self) -> Option<Reached> {
        let mut doors = self.shared.doors();
        doors.waiting += 1;
        self.shared.changed.notify_all();
        let mut doors = self
            .shared
            .changed
            .wait_while(doors, |doors| doors.address.is_none() && !doors.gave_up)
            .unwrap_or_else(PoisonError::into_inner);
        doors.waiting -= 1;
        if doors.gave_up {
            return None;
        }
        let first = doors.opening != std::mem::replace(&mut self.seen, doors.opening);
        doors.address.map(|address| Reached {
            address,
            // A connection that broke without a kill is restored as a mount restores it: by repeating calls.
            retransmit: doors.retransmit || !first,
        })
    }
}
