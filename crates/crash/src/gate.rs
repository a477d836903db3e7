//! Where writers wait while the server is gone, and what they and the harness tell each other.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_client::{Reach, Reached, Verifier};

use crate::history::Clock;

/// What writers may do.
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

/// What all writers and the harness share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The clock of all histories.
    pub clock: Clock,
    phase: AtomicU8,
    /// Writers commit what they have, wait for all answers, and end.
    pub finishing: AtomicBool,
    /// Calls under way whose answer promises stable storage.
    pub stable_calls: AtomicU64,
    /// What was done.
    pub counts: Counts,
    doors: Mutex<Doors>,
    changed: Condvar,
}

/// What was done, in the end printed.
#[derive(Debug, Default)]
pub struct Counts {
    /// Operations answered.
    pub answered: AtomicU64,
    /// Operations of which the server said that they are on stable storage, those that a COMMIT made so
    /// included.
    pub stable: AtomicU64,
    /// COMMITs answered.
    pub commits: AtomicU64,
    /// Bytes that writers read back and compared while the server ran.
    pub read_back: AtomicU64,
    /// Writes that were sent again since a COMMIT had another verifier.
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
    /// Where the server is, while writers may go there.
    address: Option<SocketAddr>,
    /// Counts openings of the gate.
    opening: u64,
    /// Unanswered calls are repeated after this opening.
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
        // A writer that panicked is a failure of its own; the numbers are whole all the same.
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What writers may do from now on.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// What they may do.
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

    /// Keeps writers that lose their connection waiting.
    pub fn close(&self) {
        self.doors().address = None;
    }

    /// Whether it is closed now.
    pub fn is_closed(&self) -> bool {
        self.doors().address.is_none()
    }

    /// Ends all writers that wait, or will.
    pub fn give_up(&self) {
        self.doors().gave_up = true;
        self.changed.notify_all();
    }

    /// The verifier of the server that is open to writers.
    pub fn verifier(&self) -> Option<Verifier> {
        self.doors().verifier
    }

    /// Something is wrong with the server, or with what it answers.
    pub fn fail(&self, why: String) {
        self.doors().failures.push(why);
        self.changed.notify_all();
    }

    /// What went wrong so far.
    pub fn failures(&self) -> Vec<String> {
        self.doors().failures.clone()
    }

    /// A writer begins.
    pub fn begin(&self) {
        self.doors().running += 1;
    }

    /// A writer has ended.
    pub fn end(&self) {
        self.doors().running -= 1;
        self.changed.notify_all();
    }

    /// Waits until all writers that have not ended wait at the closed gate, at most so long; false
    /// if they do not, or something failed.
    pub fn all_wait(&self, limit: Duration) -> bool {
        self.until(limit, |doors| doors.waiting == doors.running)
    }

    /// Waits until all writers have ended, in the same way.
    pub fn all_ended(&self, limit: Duration) -> bool {
        self.until(limit, |doors| doors.running == 0)
    }

    /// Lets time pass; false if something fails meanwhile.
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

/// How a writer finds the server.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Shared>,
    seen: u64,
}

impl Gate {
    /// A writer's way to the server.
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
            // A connection that broke without a kill is repaired as a mount repairs it.
            retransmit: doors.retransmit || !first,
        })
    }
}
