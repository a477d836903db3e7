//! Calls through the loopback: what one costs the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use forebay_nfs::Server;
use forebay_nfs::record::MARK_BYTES;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::clock::{PerCall, process_cpu, thread_cpu};
use crate::records;

/// Calls that a connection has under way at the same time.
pub(crate) const DEPTH: usize = 32;

/// A client's connection: it writes [`DEPTH`] calls at once, and reads all their replies.
struct Client {
    stream: TcpStream,
    calls: Vec<u8>,
    call_bytes: usize,
    replies: Vec<u8>,
    xid: u32,
}

impl Client {
    fn connect(address: SocketAddr, call: &[u8]) -> io::Result<Client> {
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
            calls: call.repeat(DEPTH),
            call_bytes: call.len(),
            replies: vec![0; (MARK_BYTES + reply.len()) * DEPTH],
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

/// About `calls` calls of this procedure over so many connections. The processor time is the server's alone:
/// that of the whole process without this thread, which is all clients.
pub(crate) fn measure(procedure: u32, connections: usize, calls: u64) -> io::Result<PerCall> {
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
    let mut clients = (0..connections)
        .map(|_| Client::connect(address, &call))
        .collect::<io::Result<Vec<_>>>()?;
    let rounds = (calls / (connections * DEPTH) as u64).max(1);
    let mut round = |rounds: u64| {
        for _ in 0..rounds {
            clients.iter_mut().try_for_each(Client::send)?;
            clients.iter_mut().try_for_each(Client::receive)?;
        }
        io::Result::Ok(())
    };
    round(rounds.div_ceil(10))?;
    let (begin, cpu, own) = (Instant::now(), process_cpu(), thread_cpu());
    round(rounds)?;
    let cpu = (process_cpu() - cpu).saturating_sub(thread_cpu() - own);
    let wall = begin.elapsed();
    drop(clients);
    // It serves until now.
    stop.send(())
        .map_err(|()| io::Error::other("the server has ended"))?;
    drop(servers.block_on(served));
    Ok(PerCall::new(
        rounds * (connections * DEPTH) as u64,
        wall,
        cpu,
    ))
}
