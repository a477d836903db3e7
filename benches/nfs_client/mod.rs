//! A small NFS client for measurements: one connection, calls pipelined, as little work of its own
//! as it can do. It knows what the benchmarks call and no more, and shares no code with the engine.

#![allow(dead_code, reason = "no benchmark needs all of it")]

mod replies;
mod xdr;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use tokio::io::Interest;
use tokio::net::TcpStream;

pub(crate) use xdr::Call;

use replies::Replies;
use xdr::Results;

/// Calls that are under way at the same time.
const DEPTH: usize = 32;
/// Bytes taken from the socket at once.
const INPUT_BYTES: usize = 256 << 10;
/// Bytes of a reply that are looked at: its header and status. The rest is counted.
const HEAD_BYTES: usize = 64;
/// Pieces handed to the socket at once.
const OUTPUT_PIECES: usize = 2 * DEPTH;

/// One connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    next_xid: u32,
    input: Vec<u8>,
}

/// A file handle.
#[derive(Clone)]
pub(crate) struct Handle(Vec<u8>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            next_xid: 1,
            input: vec![0; INPUT_BYTES],
        })
    }

    /// MOUNT of `/`.
    pub(crate) async fn mount(&mut self) -> io::Result<Handle> {
        let reply = self.call(Call::mount("/")).await?;
        Ok(Handle(Results::of(&reply)?.opaque()?))
    }

    pub(crate) async fn lookup(&mut self, directory: &Handle, name: &str) -> io::Result<Handle> {
        let reply = self.call(Call::lookup(directory, name)).await?;
        Ok(Handle(Results::of(&reply)?.opaque()?))
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

    /// The bytes that a READ gives.
    pub(crate) async fn read(
        &mut self,
        file: &Handle,
        offset: u64,
        count: u32,
    ) -> io::Result<Vec<u8>> {
        let reply = self.call(Call::read(file, offset, count)).await?;
        Results::of(&reply)?.read_data()
    }

    /// Makes one call and gives its reply, which has succeeded.
    async fn call(&mut self, call: Call<'_>) -> io::Result<Vec<u8>> {
        let mut call = Some(call);
        let mut replies = Replies::new(usize::MAX, 0);
        self.exchange(1, &mut replies, |_| call.take().expect("called once"))
            .await?;
        Ok(replies.into_last())
    }

    /// Makes `count` calls, of which up to [`DEPTH`] are under way at the same time, and returns when
    /// all have been answered. Fails if one did not succeed, or its reply has less than
    /// `reply_bytes`.
    pub(crate) async fn pipeline<'a>(
        &mut self,
        count: u64,
        reply_bytes: usize,
        next: impl FnMut(u64) -> Call<'a>,
    ) -> io::Result<()> {
        let mut replies = Replies::new(HEAD_BYTES, reply_bytes);
        self.exchange(count, &mut replies, next).await
    }

    async fn exchange<'a>(
        &mut self,
        count: u64,
        replies: &mut Replies,
        mut next: impl FnMut(u64) -> Call<'a>,
    ) -> io::Result<()> {
        let mut queue = VecDeque::with_capacity(DEPTH);
        let mut issued = 0;
        while replies.done() < count {
            while issued < count && replies.outstanding() < DEPTH {
                let mut call = next(issued);
                call.set_xid(self.next_xid);
                replies.expect(self.next_xid);
                queue.push_back(call);
                self.next_xid = self.next_xid.wrapping_add(1);
                issued += 1;
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
                self.receive(replies)?;
            }
        }
        Ok(())
    }

    /// Sends of the queue what the socket takes.
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

    /// Takes in what the socket has.
    fn receive(&mut self, replies: &mut Replies) -> io::Result<()> {
        match self.stream.try_read(&mut self.input) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => replies.take_in(&self.input[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}
