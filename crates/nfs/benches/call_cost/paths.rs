//! The code paths of a call that are measured without sockets, and how connections share their data.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use forebay_nfs::measuring::{Connected, Gateway, Replay};
use forebay_nfs::rpc::Credential;
use forebay_nfs::{Limits, record::MARK_BYTES};
use forebay_vfs::memory::MemoryFileSystem;
use forebay_vfs::permission::Owned;
use forebay_vfs::{Access, FileKind};

use crate::clock::{PerCall, thread_cpu};
use forebay_nfs::handle::Handle;

use crate::records::{self, GETATTR, SETATTR};

/// Threads that serve connections, as many as there are processors.
const THREADS: usize = 2;

/// Calls that a connection makes before the next one of its thread continues: as many as a client usually has
/// in flight.
const TURN: u64 = 32;

/// A path through the code, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// All of a GETATTR, from its record to its reply.
    Getattr,
    /// All of a SETATTR, whose reply is kept for repetitions.
    Setattr,
    /// Replay cache: the first execution of a call that must not be executed twice, in a full cache.
    ReplayFirst,
    /// Replay cache: a call that may be repeated.
    ReplayIdempotent,
    /// The export's rule, the credential, squashing and the mode bits.
    Permission,
    /// The part of that path that a GETATTR takes: the rule and the credential.
    Admission,
    /// The handle's authentication.
    Handle,
    /// The lookup of a client's rules by its address: once for each connection, not for each call.
    Address,
}

impl Path {
    pub(crate) const ALL: [Path; 8] = [
        Path::Getattr,
        Path::Setattr,
        Path::ReplayFirst,
        Path::ReplayIdempotent,
        Path::Permission,
        Path::Admission,
        Path::Handle,
        Path::Address,
    ];

    pub(crate) fn key(self) -> &'static str {
        match self {
            Path::Getattr => "getattr",
            Path::Setattr => "setattr",
            Path::ReplayFirst => "replay-first",
            Path::ReplayIdempotent => "replay-idempotent",
            Path::Permission => "permission",
            Path::Admission => "admission",
            Path::Handle => "handle",
            Path::Address => "address",
        }
    }

    pub(crate) fn find(key: &str) -> Option<Path> {
        Path::ALL.into_iter().find(|path| path.key() == key)
    }
}

/// State that connections share.
pub(crate) struct Common {
    gateway: Gateway<MemoryFileSystem>,
    replay: Replay,
}

impl Common {
    /// For this many calls: enough calls fill the replay cache first, as it is in steady state.
    pub(crate) fn new(calls: u64) -> Common {
        let limits = Limits::default();
        let common = Common {
            gateway: Gateway::new(finish(records::file_system()), &records::config()),
            replay: Replay::new(&limits),
        };
        let mut filler = Connection::new(&common, 0);
        // Twice the entries, because the shards do not fill at the same time.
        let full = limits.replay_entries as u64 * 2;
        (0..full.min(calls)).for_each(|_| filler.step(&common, Path::ReplayFirst));
        common
    }
}

/// A connection, with its client's own address and transaction ids.
pub(crate) struct Connection {
    connected: Connected<MemoryFileSystem>,
    peer: std::net::SocketAddr,
    getattr: Vec<u8>,
    setattr: Vec<u8>,
    handle: Handle,
    credential: Credential,
    buffer: Vec<u8>,
    /// As long as the reply to a SETATTR.
    reply: [u8; 144],
    xid: u32,
    now: Instant,
}

impl Connection {
    pub(crate) fn new(common: &Common, number: usize) -> Connection {
        let peer = records::peer(number);
        Connection {
            connected: common.gateway.connect(peer),
            peer,
            getattr: records::call(GETATTR),
            setattr: records::call(SETATTR),
            handle: records::handle(),
            credential: records::credential(),
            buffer: Vec::new(),
            reply: [0; 144],
            xid: 0,
            now: Instant::now(),
        }
    }

    fn serve(&mut self, procedure: u32) {
        let record = match procedure {
            GETATTR => &mut self.getattr,
            _ => &mut self.setattr,
        };
        records::set_xid(record, self.xid);
        let buffer = std::mem::take(&mut self.buffer);
        let reply = self
            .connected
            .serve(&record[MARK_BYTES..], self.now, buffer);
        let reply = finish(reply).expect("an answer");
        // Accepted, and NFS3_OK.
        assert!(reply[MARK_BYTES + 20..][..8] == [0; 8], "{reply:?}");
        self.buffer = reply;
    }

    /// Checks the rights of one caller `calls` times; the header of the call is decoded once.
    fn permit(&self, calls: u64) {
        let object = Owned {
            kind: FileKind::Regular,
            mode: 0o640,
            uid: 7,
            gid: 100,
        };
        let claimed = self.connected.claimed(&self.credential);
        for _ in 0..calls {
            let (named, object) = black_box((records::named(), object));
            let granted = black_box(&claimed).permitted(named, object, Access(0x3f));
            assert!(granted == Some(Access::READ), "{granted:?}");
        }
    }

    /// Checks `calls` times whether a GETATTR of one caller may be answered.
    fn admit(&self, calls: u64) {
        let claimed = self.connected.claimed(&self.credential);
        for _ in 0..calls {
            let named = black_box(records::named());
            assert!(black_box(&claimed).admitted(named));
        }
    }

    /// Runs the path for one turn of a connection.
    pub(crate) fn turn(&mut self, common: &Common, path: Path, calls: u64) {
        match path {
            Path::Permission => self.permit(calls),
            Path::Admission => self.admit(calls),
            _ => (0..calls).for_each(|_| self.step(common, path)),
        }
    }

    /// Runs the path once.
    fn step(&mut self, common: &Common, path: Path) {
        self.xid = self.xid.wrapping_add(1);
        match path {
            Path::Getattr => self.serve(GETATTR),
            Path::Setattr => self.serve(SETATTR),
            Path::ReplayFirst | Path::ReplayIdempotent => {
                let procedure = match path {
                    Path::ReplayFirst => SETATTR,
                    _ => GETATTR,
                };
                records::set_xid(&mut self.setattr, self.xid);
                let record = &self.setattr[MARK_BYTES..];
                let address = self.peer.ip();
                let procedure = black_box(procedure);
                let pass = &common.replay;
                assert!(pass.pass(procedure, address, record, self.now, &self.reply));
            }
            Path::Permission => self.permit(1),
            Path::Admission => self.admit(1),
            Path::Handle => {
                let named = common.gateway.named(black_box(&self.handle));
                assert!(named.is_some());
            }
            Path::Address => {
                black_box(common.gateway.connect(black_box(self.peer)));
            }
        }
    }
}

/// Returns the output of a future that never waits.
fn finish<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("memory does not wait"),
    }
}

/// Whether threads share the data of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All connections use the parts of one server, as in production.
    One,
    /// Every thread has parts of its own: the cost of the same work on these processors when nothing is shared.
    EachItsOwn,
}

/// Runs a path about `calls` times, alternating between `connections` connections.
pub(crate) fn contend(path: Path, connections: usize, sharing: Sharing, calls: u64) -> PerCall {
    let threads = connections.min(THREADS);
    let commons: Vec<Common> = match sharing {
        Sharing::One => vec![Common::new(calls)],
        Sharing::EachItsOwn => (0..threads).map(|_| Common::new(calls)).collect(),
    };
    let barrier = Barrier::new(threads);
    let rounds = (calls / connections as u64 / TURN).max(1);
    let work = |thread: usize| {
        let common = &commons[thread % commons.len()];
        let numbers = (1..=connections).filter(|number| number % threads == thread);
        let mut own: Vec<_> = numbers
            .map(|number| Connection::new(common, number))
            .collect();
        barrier.wait();
        let (begin, cpu) = (Instant::now(), thread_cpu());
        for _ in 0..rounds {
            for connection in &mut own {
                connection.turn(common, path, TURN);
            }
        }
        (begin.elapsed(), thread_cpu() - cpu)
    };
    let times: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it ends"))
            .collect()
    });
    let calls = rounds * TURN * connections as u64;
    let wall = times
        .iter()
        .map(|(wall, _)| *wall)
        .max()
        .unwrap_or_default();
    PerCall::new(calls, wall, times.iter().map(|(_, cpu)| *cpu).sum())
}
