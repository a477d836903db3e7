//! A small NFS client for measurements: one connection, calls pipelined, and as little work of its own as possible. It
//! knows only the calls of the benchmarks, and shares no code with the engine.
//!
//! [`Work`] supplies the calls and also receives the answers, so that a call may depend on an earlier answer;
//! [`Client::pipeline`] is the simple case of independent calls.

#![allow(dead_code, reason = "no benchmark needs all of it")]

mod replies;
mod xdr;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

pub(crate) use xdr::{Call, Limits, Results};

use replies::Replies;

/// Calls in flight, unless [`Client::with_depth`] says otherwise.
pub(crate) const DEPTH: usize = 32;
/// Bytes read from the socket at once.
const INPUT_BYTES: usize = 256 << 10;
/// Bytes of a reply that [`Client::pipeline`] keeps: its header and status. The rest is only counted.
const HEAD_BYTES: usize = 64;
/// Pieces passed to the socket at once.
const OUTPUT_PIECES: usize = 2 * DEPTH;

/// One connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    next_xid: u32,
    depth: usize,
    input: Vec<u8>,
}

/// A file handle.
#[derive(Clone)]
pub(crate) struct Handle(Vec<u8>);

/// Calls that depend on earlier answers.
pub(crate) trait Work<'a> {
    /// The next call, and a number that identifies it among those in flight. `None` if there is none before another
    /// answer has arrived; the work has ended when there is none and no call is in flight.
    fn next(&mut self) -> Option<(u64, Call<'a>)>;

    /// The call of this number has succeeded. `results` has as much of the reply as `keep` of [`Client::run`] allows.
    fn answered(&mut self, number: u64, results: Results<'_>) -> io::Result<()>;
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::over(TcpStream::connect(address).await?)
    }

    /// Connects from an address of this machine, such as 127.0.0.2.
    pub(crate) async fn connect_from(source: IpAddr, address: SocketAddr) -> io::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source, 0))?;
        Client::over(socket.connect(address).await?)
    }

    fn over(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            next_xid: 1,
            depth: DEPTH,
            input: vec![0; INPUT_BYTES],
        })
    }

    /// The client with up to `depth` calls in flight.
    pub(crate) fn with_depth(self, depth: usize) -> Client {
        Client { depth, ..self }
    }

    /// MOUNT of `/`.
    pub(crate) async fn mount(&mut self) -> io::Result<Handle> {
        self.mount_export("/").await
    }

    /// MOUNT of an export.
    pub(crate) async fn mount_export(&mut self, path: &str) -> io::Result<Handle> {
        let reply = self.call(Call::mount(path)).await?;
        Ok(Handle(Results::of(&reply)?.opaque()?.to_vec()))
    }

    /// Most bytes of one READ and one WRITE.
    pub(crate) async fn limits(&mut self, root: &Handle) -> io::Result<Limits> {
        let reply = self.call(Call::fsinfo(root)).await?;
        Results::of(&reply)?.limits()
    }

    pub(crate) async fn lookup(&mut self, directory: &Handle, name: &str) -> io::Result<Handle> {
        let reply = self.call(Call::lookup(directory, name)).await?;
        Ok(Handle(Results::of(&reply)?.opaque()?.to_vec()))
    }

    /// CREATE and LOOKUP.
    pub(crate) async fn create(&mut self, directory: &Handle, name: &str) -> io::Result<Handle> {
        self.call(Call::create(directory, name)).await?;
        self.lookup(directory, name).await
    }

    /// MKDIR and LOOKUP.
    pub(crate) async fn mkdir(&mut self, directory: &Handle, name: &str) -> io::Result<Handle> {
        self.call(Call::mkdir(directory, name)).await?;
        self.lookup(directory, name).await
    }

    /// The bytes that a READ returns.
    pub(crate) async fn read(
        &mut self,
        file: &Handle,
        offset: u64,
        count: u32,
    ) -> io::Result<Vec<u8>> {
        let reply = self.call(Call::read(file, offset, count)).await?;
        Ok(Results::of(&reply)?.read_data()?.to_vec())
    }

    /// Names of everything in a directory but itself and its parent, listed with attributes.
    pub(crate) async fn list(&mut self, directory: &Handle) -> io::Result<Vec<Vec<u8>>> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
        loop {
            let call = Call::readdirplus(directory, cookie, verifier);
            let reply = self.call(call).await?;
            let page = Results::of(&reply)?.entries()?;
            let Some((last, _)) = page.entries.last() else {
                return Ok(names);
            };
            cookie = *last;
            verifier = page.verifier;
            let entries = page.entries.into_iter().map(|(_, name)| name);
            names.extend(entries.filter(|name| !matches!(&name[..], b"." | b"..")));
            if page.end {
                return Ok(names);
            }
        }
    }

    /// Makes one call and returns its reply, which must be a success.
    pub(crate) async fn call(&mut self, call: Call<'_>) -> io::Result<Vec<u8>> {
        let mut replies = Replies::new(usize::MAX, 0);
        self.exchange(&mut replies, &mut One(Some(call))).await?;
        Ok(replies.into_last())
    }

    /// Makes `count` calls, as many in flight as the client may have, and returns when all have been answered. Fails if one did
    /// not succeed, or its reply has less than `reply_bytes`.
    pub(crate) async fn pipeline<'a>(
        &mut self,
        count: u64,
        reply_bytes: usize,
        next: impl FnMut(u64) -> Call<'a>,
    ) -> io::Result<()> {
        let mut each = Each {
            count,
            issued: 0,
            next,
        };
        let mut replies = Replies::new(HEAD_BYTES, reply_bytes);
        self.exchange(&mut replies, &mut each).await
    }

    /// Executes all of a work, with as many calls in flight as the client may have. It receives `keep` bytes of each reply. Fails if a
    /// call does not succeed.
    pub(crate) async fn run<'a>(
        &mut self,
        keep: usize,
        work: &mut impl Work<'a>,
    ) -> io::Result<()> {
        self.exchange(&mut Replies::new(keep, 0), work).await
    }

    async fn exchange<'a>(
        &mut self,
        replies: &mut Replies,
        work: &mut impl Work<'a>,
    ) -> io::Result<()> {
        let mut queue = VecDeque::with_capacity(self.depth);
        loop {
            while replies.outstanding() < self.depth
                && let Some((number, mut call)) = work.next()
            {
                call.set_xid(self.next_xid);
                replies.expect(self.next_xid, number);
                queue.push_back(call);
                self.next_xid = self.next_xid.wrapping_add(1);
            }
            if replies.outstanding() == 0 {
                return Ok(());
            }
            let wanted = match queue.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = self.stream.ready(wanted).await?;
            if ready.is_writable() {
                self.send(&mut queue)?;
            }
            if ready.is_readable() {
                self.receive(replies, work)?;
            }
        }
    }

    /// Sends as much of the queue as the socket takes.
    fn send(&self, queue: &mut VecDeque<Call<'_>>) -> io::Result<()> {
        while !queue.is_empty() {
            let pieces: Vec<_> = queue
                .iter()
                .flat_map(Call::unsent)
                .take(OUTPUT_PIECES)
                .map(IoSlice::new)
                .collect();
            let mut sent = match self.stream.try_write_vectored(&pieces) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(call) = queue.front_mut() {
                if !call.advance(&mut sent) {
                    break;
                }
                queue.pop_front();
            }
        }
        Ok(())
    }

    /// Receives the bytes that the socket has.
    fn receive<'a>(&mut self, replies: &mut Replies, work: &mut impl Work<'a>) -> io::Result<()> {
        match self.stream.try_read(&mut self.input) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => replies.take_in(&self.input[..read], |number, results| {
                work.answered(number, results)
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A single call.
struct One<'a>(Option<Call<'a>>);

impl<'a> Work<'a> for One<'a> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        Some((0, self.0.take()?))
    }

    fn answered(&mut self, _number: u64, _results: Results<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A number of independent calls.
struct Each<F> {
    count: u64,
    issued: u64,
    next: F,
}

impl<'a, F: FnMut(u64) -> Call<'a>> Work<'a> for Each<F> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let number = self.issued;
        if number == self.count {
            return None;
        }
        self.issued += 1;
        Some((number, (self.next)(number)))
    }

    fn answered(&mut self, _number: u64, _results: Results<'_>) -> io::Result<()> {
        Ok(())
    }
}
