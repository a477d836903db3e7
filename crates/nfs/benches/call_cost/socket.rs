//! Calls over loopback: the cost of one for the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use forebay_nfs::Server;
use forebay_nfs::record::MARK_BYTES;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::{PerCall, process_cpu, thread_cpu};
use crate::records;

/// Calls that a connection of a busy client has in flight.
pub(crate) const DEPTH: usize = 32;

/// A client's connection: it writes some calls at once, and reads all their replies.
struct Client {
    stream: TcpStream,
    calls: Vec<u8>,
    call_bytes: usize,
    replies: Vec<u8>,
    xid: u32,
}

impl Client {
    fn connect(address: SocketAddr, call: &[u8], depth: usize) -> io::Result<Client> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(call)?;
        let mut mark = [0; MARK_BYTES];
        stream.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & !forebay_nfs::record::LAST_FRAGMENT;
        let mut reply = vec![0; length as usize];
        stream.read_exact(&mut reply)?;
        // Accepted, and NFS3_OK.
        assert!(reply[20..28] == [0; 8], "{reply:?}");
        Ok(Client {
            stream,
            calls: call.repeat(depth),
            call_bytes: call.len(),
            replies: vec![0; (MARK_BYTES + reply.len()) * depth],
            xid: 1,
        })
    }

    fn send(&mut self) -> io::Result<()> {
        for call in self.calls.chunks_exact_mut(self.call_bytes) {
            records::set_xid(call, self.xid);
            self.xid = self.xid.wrapping_add(1);
        }
        self.stream.write_all(&self.calls)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.stream.read_exact(&mut self.replies)
    }
}

/// A server and its clients; all clients run on one thread.
pub(crate) struct Exchange {
    servers: Runtime,
    served: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    clients: Vec<Client>,
}

impl Exchange {
    /// For calls of this procedure over this many connections, each with `depth` calls in flight.
    pub(crate) fn start(procedure: u32, connections: usize, depth: usize) -> io::Result<Exchange> {
        let servers = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let server = servers.block_on(async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            Server::bind(any, records::file_system().await, records::config()).await
        })?;
        let address = server.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let served = servers.spawn(server.serve(async { stopped.await.unwrap_or_default() }));
        let call = records::call(procedure);
        let clients = (0..connections).map(|_| Client::connect(address, &call, depth));
        Ok(Exchange {
            clients: clients.collect::<io::Result<_>>()?,
            servers,
            served,
            stop,
        })
    }

    /// Makes `count` times `depth` calls over each connection.
    pub(crate) fn rounds(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.clients.iter_mut().try_for_each(Client::send)?;
            self.clients.iter_mut().try_for_each(Client::receive)?;
        }
        Ok(())
    }

    pub(crate) fn stop(self) -> io::Result<()> {
        drop(self.clients);
        let ended = || io::Error::other("the server has ended");
        self.stop.send(()).map_err(|()| ended())?;
        self.servers.block_on(self.served).map_err(io::Error::other)
    }
}

/// Measures the cost of about `calls` calls. The processor time is that of the server only: that of the whole process
/// minus this thread, which runs the clients.
pub(crate) fn measure(
    procedure: u32,
    connections: usize,
    depth: usize,
    calls: u64,
) -> io::Result<PerCall> {
    let mut exchange = Exchange::start(procedure, connections, depth)?;
    let rounds = (calls / (connections * depth) as u64).max(1);
    exchange.rounds(rounds.div_ceil(10))?;
    let (begin, cpu, own) = (Instant::now(), process_cpu(), thread_cpu());
    exchange.rounds(rounds)?;
    let cpu = (process_cpu() - cpu).saturating_sub(thread_cpu() - own);
    let wall = begin.elapsed();
    exchange.stop()?;
    let calls = rounds * (connections * depth) as u64;
    Ok(PerCall::new(calls, wall, cpu))
}
