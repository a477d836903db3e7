//! Calls in flight on one connection, with the behaviour of a hard mount when it breaks.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::reply::{Failure, Reply};
use crate::request::{Caller, LAST_FRAGMENT, Request};
use crate::xdr::Malformed;

/// The longest record that is accepted, in bytes: a reply to the largest READ with its header.
const RECORD_LIMIT: usize = 2 << 20;

/// Interval of the time checks while the link waits for a reply.
const TICK: Duration = Duration::from_millis(500);

/// Pause before a call that was answered JUKEBOX is repeated.
const JUKEBOX_PAUSE: Duration = Duration::from_millis(100);

/// Identifies a call of a [`Link`]; the same for all its transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

/// The current location of the server.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    /// Its address.
    pub address: SocketAddr,
    /// Whether unanswered calls are sent there again. If not, they are dropped.
    pub retransmit: bool,
}

/// Finds the server, when a link is made and whenever its connection has broken.
pub trait Reach {
    /// Returns when the server is reachable again; `None` to give up.
    fn reach(&mut self) -> Option<Reached>;
}

/// A server at a fixed address: a broken connection is not re-established.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    address: SocketAddr,
    used: bool,
}

impl Steady {
    /// Creates it for the server at this address.
    pub fn new(address: SocketAddr) -> Steady {
        Steady {
            address,
            used: false,
        }
    }
}

impl Reach for Steady {
    fn reach(&mut self) -> Option<Reached> {
        let first = !std::mem::replace(&mut self.used, true);
        first.then_some(Reached {
            address: self.address,
            retransmit: true,
        })
    }
}

/// Why a link cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// [`Reach`] gave up.
    #[error("the server is gone and is not waited for")]
    Gone,
    /// The server breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server answered a call that was not made, or answered one twice.
    #[error("a reply to call {0:#x}, which is not under way")]
    Unasked(u32),
    /// The server is reachable and does not answer.
    #[error("{name} (call {call:#x}) has had no answer for {seconds} s while the server was there")]
    Stuck {
        /// The procedure.
        name: &'static str,
        /// The transaction id.
        call: u32,
        /// Seconds since the call was sent.
        seconds: u64,
    },
    /// A call that must succeed has failed.
    #[error("{name}: {failure}")]
    Failed {
        /// The procedure.
        name: &'static str,
        /// The failure.
        failure: Failure,
    },
}

/// A reply, with the number of transmissions of its call.
#[derive(Debug)]
pub struct Answer {
    /// The call.
    pub call: CallId,
    /// How often the call was sent. If more than once, an earlier transmission may have been executed.
    pub sent: u32,
    /// The reply.
    pub reply: Reply,
}

struct Pending {
    name: &'static str,
    /// The record with its mark.
    record: Vec<u8>,
    sent: u32,
    since: Instant,
}

/// A client with calls in flight.
pub struct Link<R> {
    reach: R,
    stream: Option<TcpStream>,
    pending: BTreeMap<u32, Pending>,
    next: u32,
    time_limit: Duration,
    /// The address that it connects from; `None` leaves the choice to the system.
    source: Option<IpAddr>,
    caller: Caller,
    /// Bytes of an incomplete record.
    input: Vec<u8>,
    connections: u64,
}

impl<R: Reach> Link<R> {
    /// Creates a link whose transaction ids begin at `first`. Links of one client address must not use
    /// the same ids, because a server distinguishes calls by them. A call that has no answer for
    /// `time_limit` while the server is reachable ends the link with [`LinkError::Stuck`].
    pub fn new(reach: R, first: u32, time_limit: Duration) -> Link<R> {
        Link {
            reach,
            stream: None,
            pending: BTreeMap::new(),
            next: first,
            time_limit,
            source: None,
            caller: Caller::ROOT,
            input: Vec::new(),
            connections: 0,
        }
    }

    /// Connects from this address of the machine, so that the server sees the link as that client.
    pub fn from_address(mut self, source: IpAddr) -> Link<R> {
        self.source = Some(source);
        self
    }

    /// Makes the calls as this caller instead of root.
    pub fn in_the_name_of(mut self, caller: Caller) -> Link<R> {
        self.caller = caller;
        self
    }

    /// Number of calls without an answer.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Ids, procedures and ages of the calls without an answer.
    pub fn waiting(&self) -> Vec<(CallId, &'static str, Duration)> {
        let waiting = self.pending.iter();
        waiting
            .map(|(xid, call)| (CallId(*xid), call.name, call.since.elapsed()))
            .collect()
    }

    /// The server's finder.
    pub fn reach(&self) -> &R {
        &self.reach
    }

    /// Sends a call and does not wait for its answer. Once this has returned, even with an error, the call may have
    /// been executed.
    pub fn send(&mut self, request: &Request) -> Result<CallId, LinkError> {
        let call = self.reserve();
        self.send_as(call, request)?;
        Ok(call)
    }

    /// Reserves the id of a call that will be sent later.
    pub fn reserve(&mut self) -> CallId {
        let call = CallId(self.next);
        self.next = self.next.wrapping_add(1);
        call
    }

    /// Like [`Link::send`], under an id that was reserved.
    pub fn send_as(&mut self, call: CallId, request: &Request) -> Result<(), LinkError> {
        let pending = Pending {
            name: request.name,
            record: request.record(call.0, self.caller),
            sent: 0,
            since: Instant::now(),
        };
        let pending = self.pending.entry(call.0).insert_entry(pending).into_mut();
        match &mut self.stream {
            Some(stream) => {
                pending.sent = 1;
                if stream.write_all(&pending.record).is_err() {
                    self.stream = None;
                }
                Ok(())
            }
            // Connecting sends all unanswered calls, including this one.
            None => self.connected(),
        }
    }

    /// Receives the next answer, of any call. Reconnects and repeats calls as often as necessary.
    /// `None` when no calls are in flight.
    pub fn receive(&mut self) -> Result<Option<Answer>, LinkError> {
        while !self.pending.is_empty() {
            self.connected()?;
            if self.pending.is_empty() {
                break;
            }
            match self.receive_record() {
                Ok(Some(record)) => {
                    let (xid, reply) = Reply::parse(record)?;
                    let pending = self.pending.remove(&xid).ok_or(LinkError::Unasked(xid))?;
                    return Ok(Some(Answer {
                        call: CallId(xid),
                        sent: pending.sent,
                        reply,
                    }));
                }
                Ok(None) => self.look_at_clock()?,
                Err(_) => self.stream = None,
            }
        }
        Ok(None)
    }

    /// Makes one call and returns its reply; no other call may be in flight. Repeats the call while it is
    /// answered JUKEBOX.
    pub fn call(&mut self, request: &Request) -> Result<Reply, LinkError> {
        let began = Instant::now();
        loop {
            let call = self.send(request)?;
            let answer = self.receive()?.ok_or(LinkError::Gone)?;
            let later = Failure::Status(crate::Status::JUKEBOX);
            if answer.reply.clone().done() != Err(later) {
                return Ok(answer.reply);
            }
            if began.elapsed() > self.time_limit {
                return Err(stuck(call.0, request.name, began.elapsed()));
            }
            std::thread::sleep(JUKEBOX_PAUSE);
        }
    }

    /// Makes one call that must succeed.
    pub fn get<T>(
        &mut self,
        request: &Request,
        results: impl FnOnce(Reply) -> Result<T, Failure>,
    ) -> Result<T, LinkError> {
        let name = request.name;
        let reply = self.call(request)?;
        results(reply).map_err(|failure| LinkError::Failed { name, failure })
    }

    /// Closes the connection, and returns when there is a new one.
    pub fn reconnect(&mut self) -> Result<(), LinkError> {
        self.stream = None;
        self.connected()
    }

    /// How often the link has connected.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    fn look_at_clock(&self) -> Result<(), LinkError> {
        let oldest = self.pending.iter().min_by_key(|(_, call)| call.since);
        match oldest {
            Some((xid, call)) if call.since.elapsed() > self.time_limit => {
                Err(stuck(*xid, call.name, call.since.elapsed()))
            }
            _ => Ok(()),
        }
    }

    /// Ensures that there is a connection; a new one begins with the unanswered calls.
    fn connected(&mut self) -> Result<(), LinkError> {
        while self.stream.is_none() {
            self.input.clear();
            let reached = self.reach.reach().ok_or(LinkError::Gone)?;
            if !reached.retransmit {
                self.pending.clear();
            }
            let Ok(mut stream) = connect(self.source, reached.address) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            self.connections += 1;
            let mut sent = true;
            for pending in self.pending.values_mut() {
                pending.sent += 1;
                pending.since = Instant::now();
                sent = sent && stream.write_all(&pending.record).is_ok();
            }
            self.stream = sent.then_some(stream);
        }
        Ok(())
    }

    /// Receives one record; `None` if it has not arrived within a tick.
    fn receive_record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            if let Some(record) = take_record(&mut self.input)? {
                return Ok(Some(record));
            }
            let start = self.input.len();
            self.input.resize(start + (64 << 10), 0);
            let read = stream.read(self.input.get_mut(start..).unwrap_or_default());
            self.input.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

fn stuck(call: u32, name: &'static str, since: Duration) -> LinkError {
    LinkError::Stuck {
        name,
        call,
        seconds: since.as_secs(),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn connect(source: Option<IpAddr>, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect(&address.into())?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    // If the server accepts nothing for this time, the time limit of the calls reports it.
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Removes a whole record from the front of the received bytes.
fn take_record(input: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut record = Vec::new();
    let mut at = 0;
    loop {
        let Some(mark) = input.get(at..at + 4).and_then(|mark| mark.try_into().ok()) else {
            return Ok(None);
        };
        let mark = u32::from_be_bytes(mark);
        let length = (mark & !LAST_FRAGMENT) as usize;
        if record.len() + length > RECORD_LIMIT {
            return Err(io::Error::other("a reply that is too long"));
        }
        let Some(fragment) = input.get(at + 4..at + 4 + length) else {
            return Ok(None);
        };
        record.extend_from_slice(fragment);
        at += 4 + length;
        if mark & LAST_FRAGMENT != 0 {
            input.drain(..at);
            return Ok(Some(record));
        }
    }
}
