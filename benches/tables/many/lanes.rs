//! The work of a turn, divided into lanes: each has one call in flight, on a file and a directory of its own. The work
//! does not depend on the connection that carries a lane.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::nfs_client::{Call, Client, Handle, Results, Work};
use crate::surroundings::next_random;

pub(super) const KIB_4: u64 = 4 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// Bytes of a file that calls of 4 KiB read and write, anywhere in them.
pub(super) const RANDOM_BYTES: u64 = 256 << 10;
/// WRITEs of a stream before its COMMIT, from the beginning of the file.
const STREAM_WRITES: u64 = 3;
/// Bytes of each reply that are kept: the header of a READ, and some of its data.
const KEPT: usize = 160;

#[derive(Clone, Copy)]
pub(super) enum Load {
    Read,
    Write,
    Mixed,
    Stream,
}

impl Load {
    /// The parts of a turn; everything is published between them.
    pub(super) fn parts(self) -> usize {
        match self {
            Load::Stream => 4,
            _ => 1,
        }
    }
}

/// The objects of a lane.
pub(super) struct Target {
    pub(super) file: Handle,
    pub(super) directory: Handle,
}

struct Lane<'a> {
    target: &'a Target,
    random: u64,
    /// Number of the next call.
    step: u64,
    /// The mixed load has made a file, and has not removed it.
    made: bool,
    asked: Instant,
    /// The call in flight is a READ.
    reads: bool,
}

impl<'a> Lane<'a> {
    fn next(&mut self, load: Load, payload: &'a [u8]) -> Call<'a> {
        let Target { file, directory } = self.target;
        let step = self.step;
        self.step += 1;
        let offset = next_random(&mut self.random) % (RANDOM_BYTES / KIB_4) * KIB_4;
        self.reads = false;
        match (load, step % 20) {
            (Load::Stream, _) => match step % (STREAM_WRITES + 1) {
                STREAM_WRITES => Call::commit(file),
                piece => Call::write(file, piece * MIB, payload),
            },
            (Load::Write, _) | (Load::Mixed, 2 | 7 | 12 | 17) => {
                Call::write(file, offset, &payload[..KIB_4 as usize])
            }
            (Load::Mixed, 5) => Call::getattr(file),
            (Load::Mixed, 15) => {
                self.made = !self.made;
                match self.made {
                    true => Call::create(directory, "made"),
                    false => Call::remove(directory, "made"),
                }
            }
            (Load::Read | Load::Mixed, _) => {
                self.reads = true;
                Call::read(file, offset, KIB_4 as u32)
            }
        }
    }
}

/// A client, as the turn sees it.
struct Seen {
    waiting: usize,
    answered: u64,
    /// Its last answer, or the call after a time without any in flight.
    last: Instant,
    /// The longest time without an answer while calls were in flight.
    silence: Duration,
}

/// The state that all connections of a turn share. One thread serves all of them.
pub(super) struct Turn<'a> {
    load: Load,
    /// 1 MiB.
    payload: &'a [u8],
    /// Calls that no lane has taken. The faster lanes take more of them.
    left: Cell<u64>,
    clients: RefCell<Vec<Seen>>,
    micros: RefCell<Vec<f64>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(load: Load, payload: &'a [u8], clients: usize) -> Turn<'a> {
        let seen = || Seen {
            waiting: 0,
            answered: 0,
            last: Instant::now(),
            silence: Duration::ZERO,
        };
        Turn {
            load,
            payload,
            left: Cell::new(0),
            clients: RefCell::new((0..clients).map(|_| seen()).collect()),
            micros: RefCell::default(),
        }
    }

    /// The durations of all calls, in ascending order.
    pub(super) fn micros(&self) -> Vec<f64> {
        let mut micros = self.micros.take();
        micros.sort_by(f64::total_cmp);
        micros
    }

    /// The longest time that a client with calls in flight was without an answer.
    pub(super) fn longest_silence(&self) -> Duration {
        let clients = self.clients.borrow();
        let silences = clients.iter().map(|seen| seen.silence);
        silences.max().unwrap_or_default()
    }

    /// Jain's index of the clients' numbers of calls: 1 if all are the same, and the reciprocal of the number of clients
    /// if one has made them all.
    pub(super) fn fairness(&self) -> f64 {
        let clients = self.clients.borrow();
        let counts = clients.iter().map(|seen| seen.answered as f64);
        let (sum, squares) = counts.fold((0.0, 0.0), |(sum, squares), count| {
            (sum + count, squares + count * count)
        });
        sum * sum / (squares * clients.len() as f64)
    }

    /// Makes this number of calls. With a limit, fails if a client with calls in flight gets no answer for that time.
    pub(super) async fn run(
        &self,
        connections: &mut [(Client, Connection<'_>)],
        calls: u64,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        self.left.set(calls);
        self.micros.borrow_mut().reserve(calls as usize);
        let each = connections.iter_mut();
        let all = try_join_all(each.map(|(client, work)| client.run(KEPT, work)));
        let Some(limit) = limit else {
            return all.await.map(drop);
        };
        tokio::select! {
            done = all => drop(done?),
            () = self.silence_of(limit) => return Err(silent(limit)),
        }
        match self.longest_silence() > limit {
            true => Err(silent(limit)),
            false => Ok(()),
        }
    }

    /// Waits until a client has been without an answer for this time.
    async fn silence_of(&self, limit: Duration) {
        let is_silent = |seen: &Seen| seen.waiting > 0 && seen.last.elapsed() > limit;
        while !self.clients.borrow().iter().any(is_silent) {
            tokio::time::sleep(limit / 10).await;
        }
    }
}

fn silent(limit: Duration) -> io::Error {
    io::Error::other(format!("a client got no answer for {limit:?}"))
}

/// The lanes of a connection.
pub(super) struct Connection<'a> {
    turn: &'a Turn<'a>,
    client: usize,
    lanes: Vec<Lane<'a>>,
    /// Lanes without a call in flight.
    idle: VecDeque<usize>,
}

impl<'a> Connection<'a> {
    /// A connection of the client with this number. Lanes count from `first`.
    pub(super) fn new(
        turn: &'a Turn<'a>,
        client: usize,
        first: usize,
        targets: &'a [Target],
    ) -> Connection<'a> {
        let lane = |(number, target): (u64, &'a Target)| Lane {
            target,
            random: number + 1,
            step: match turn.load {
                Load::Stream => 0,
                // So that lanes are not in step.
                _ => number,
            },
            made: false,
            asked: Instant::now(),
            reads: false,
        };
        Connection {
            turn,
            client,
            lanes: (first as u64..).zip(targets).map(lane).collect(),
            idle: (0..targets.len()).collect(),
        }
    }
}

impl<'a> Work<'a> for Connection<'a> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let left = self.turn.left.get().checked_sub(1)?;
        let number = self.idle.pop_front()?;
        self.turn.left.set(left);
        let lane = &mut self.lanes[number];
        let call = lane.next(self.turn.load, self.turn.payload);
        lane.asked = Instant::now();
        let seen = &mut self.turn.clients.borrow_mut()[self.client];
        if seen.waiting == 0 {
            seen.last = lane.asked;
        }
        seen.waiting += 1;
        Some((number as u64, call))
    }

    fn answered(&mut self, number: u64, results: Results<'_>) -> io::Result<()> {
        let now = Instant::now();
        let number = number as usize;
        let lane = &self.lanes[number];
        if lane.reads && results.read_begun()?.0 != KIB_4 as usize {
            return Err(io::Error::other("a READ returned less than was asked for"));
        }
        let taken = now.duration_since(lane.asked);
        self.turn
            .micros
            .borrow_mut()
            .push(taken.as_secs_f64() * 1e6);
        let seen = &mut self.turn.clients.borrow_mut()[self.client];
        seen.silence = seen.silence.max(now.duration_since(seen.last));
        seen.last = now;
        seen.waiting -= 1;
        seen.answered += 1;
        self.idle.push_back(number);
        Ok(())
    }
}
