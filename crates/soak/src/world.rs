//! The state that all clients of a run share: the server's address, the end of the run, and the findings.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_client::{Handle, Reach, Reached};

use crate::ledger::Ledger;

/// Most different findings that are kept.
const MOST_FINDINGS: usize = 100;

/// The state that all clients of a run share.
#[derive(Debug)]
pub struct World {
    /// Address of the server, the same after a restart.
    pub address: SocketAddr,
    /// The root directory of the volume.
    pub root: Handle,
    /// The acknowledged data.
    pub ledger: Ledger,
    /// The longest pause between two turns of a rude client: tests shorten all of them.
    pub longest_pause: Duration,
    /// Turns after which a rude client ends by itself.
    pub turns: Option<u64>,
    next_link: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Number of starts of the server.
    opening: u64,
    /// Whether the server serves.
    open: bool,
    polite_ends: bool,
    all_end: bool,
    /// Each with the number of times it was found.
    findings: Vec<(String, u64)>,
}

impl State {
    fn finding(&mut self, what: String) {
        let has_room = self.findings.len() < MOST_FINDINGS;
        match self.findings.iter_mut().find(|(known, _)| *known == what) {
            Some((_, times)) => *times += 1,
            None if has_room => self.findings.push((what, 1)),
            None => {}
        }
    }
}

impl World {
    /// A server that serves at this address; `root` is the root of its volume.
    pub fn new(address: SocketAddr, root: Handle) -> World {
        World {
            address,
            root,
            ledger: Ledger::default(),
            longest_pause: Duration::MAX,
            turns: None,
            next_link: AtomicU32::new(1),
            state: Mutex::new(State {
                opening: 1,
                open: true,
                polite_ends: false,
                all_end: false,
                findings: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A client that panicked is a finding of its own; the state is consistent all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first transaction number of a new connection: far from those of all others.
    pub fn first_call(&self) -> u32 {
        let number = self.next_link.fetch_add(1, Ordering::Relaxed);
        number.wrapping_mul(0x9e37_79b1)
    }

    /// Called before the server is killed.
    pub fn close(&self) {
        self.state().open = false;
    }

    /// Called when the server serves again.
    pub fn reopen(&self) {
        let mut state = self.state();
        state.open = true;
        state.opening += 1;
        self.changed.notify_all();
    }

    /// Number of this start of the server, while it serves.
    pub fn opening(&self) -> Option<u64> {
        let state = self.state();
        state.open.then_some(state.opening)
    }

    /// Makes the well-behaved client end, with all its calls answered.
    pub fn end_polite(&self) {
        self.state().polite_ends = true;
        self.changed.notify_all();
    }

    /// Makes all clients end.
    pub fn end_all(&self) {
        let mut state = self.state();
        state.polite_ends = true;
        state.all_end = true;
        self.changed.notify_all();
    }

    /// Whether all clients are to end.
    pub fn is_ending(&self) -> bool {
        self.state().all_end
    }

    /// Records a violation; the run has failed.
    pub fn finding(&self, what: String) {
        self.state().finding(what);
    }

    /// The violations, each once.
    pub fn findings(&self) -> Vec<String> {
        let state = self.state();
        let findings = state.findings.iter().map(|(what, times)| match times {
            1 => what.clone(),
            times => format!("{what} ({times} times)"),
        });
        findings.collect()
    }

    /// Waits for this time; returns false as soon as all clients are to end.
    pub fn pause(&self, time: Duration) -> bool {
        self.wait(time, |state| state.all_end)
    }

    /// The same for the well-behaved client.
    pub fn pause_polite(&self, time: Duration) -> bool {
        self.wait(time, |state| state.polite_ends)
    }

    fn wait(&self, time: Duration, ends: impl Fn(&State) -> bool) -> bool {
        let wait = self
            .changed
            .wait_timeout_while(self.state(), time, |state| !ends(state));
        let (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        !ends(&state)
    }
}

/// Connects the well-behaved client to the server as a hard mount does: it waits and repeats.
#[derive(Debug)]
pub struct Door {
    world: Arc<World>,
    /// The start of the server at the last connection. The same start again means that a connection was lost.
    seen: Option<u64>,
}

impl Door {
    /// A door that was not used yet.
    pub fn new(world: Arc<World>) -> Door {
        Door { world, seen: None }
    }
}

impl Reach for Door {
    fn reach(&mut self) -> Option<Reached> {
        let mut state = self.world.state();
        let opening = loop {
            if state.all_end {
                return None;
            }
            if state.open {
                break state.opening;
            }
            let wait = self.world.changed.wait(state);
            state = wait.unwrap_or_else(PoisonError::into_inner);
        };
        if self.seen.replace(opening) == Some(opening) {
            state.finding("the server closed a connection of the well-behaved client".to_owned());
            drop(state);
            // No tight loop of attempts against a server that closes each connection at once.
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(Reached {
            address: self.world.address,
            retransmit: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn world() -> Arc<World> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 2049));
        Arc::new(World::new(address, Handle(vec![1])))
    }

    #[test]
    fn a_connection_is_lost_without_blame_only_by_a_restart() {
        let world = world();
        let mut door = Door::new(world.clone());
        assert!(door.reach().is_some());
        world.close();
        assert_eq!(world.opening(), None);
        world.reopen();
        assert!(door.reach().is_some());
        assert_eq!(world.findings(), [""; 0]);
        assert!(door.reach().is_some());
        assert_eq!(world.findings().len(), 1);
        assert!(door.reach().is_some());
        assert!(world.findings()[0].ends_with("(2 times)"));
    }

    #[test]
    fn a_closed_door_leads_nowhere_when_all_end() {
        let world = world();
        world.close();
        let mut door = Door::new(world.clone());
        let waits = std::thread::spawn(move || door.reach().is_none());
        world.end_all();
        assert!(waits.join().unwrap());
        assert!(!world.pause(Duration::MAX));
        assert!(!world.pause_polite(Duration::MAX));
    }
}
