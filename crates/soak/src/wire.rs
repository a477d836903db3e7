//! A connection for data that no well-behaved client sends: raw bytes, replies read slowly or never.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

pub use forebay_client::LAST_FRAGMENT;

/// Time without progress of a send after which the client gives up.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// A raw connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Wire {
    /// Connects from `source`. A `receive_buffer` in bytes makes the kernel buffer little for a client that does not
    /// read.
    ///
    /// # Errors
    /// If the server does not take the connection.
    pub fn open(
        source: Ipv4Addr,
        address: SocketAddr,
        receive_buffer: Option<usize>,
    ) -> io::Result<Wire> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(&SocketAddr::new(IpAddr::V4(source), 0).into())?;
        socket.connect(&address.into())?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        Ok(Wire {
            stream,
            input: Vec::new(),
        })
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// If the connection is closed, or takes nothing for 2 s.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends as many of these bytes as the connection takes at once, and returns their number.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn offer(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let sent = at_once(self.stream.write(bytes));
        self.stream.set_nonblocking(false)?;
        sent
    }

    /// Receives at most `limit` bytes, drops them, and returns their number.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn sip(&mut self, limit: usize) -> io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let mut bytes = [0; 16 << 10];
        let mut taken = 0;
        let result = loop {
            let most = bytes.len().min(limit - taken);
            let place = bytes.get_mut(..most).unwrap_or_default();
            match self.stream.read(place) {
                Ok(0) if most > 0 => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => break Ok(taken),
                Ok(read) => taken += read,
                Err(error) => break at_once(Err(error)).map(|_| taken),
            }
        };
        self.stream.set_nonblocking(false)?;
        result
    }

    /// Whether the server still keeps the connection open; received bytes are dropped.
    pub fn is_open(&mut self) -> bool {
        self.sip(64 << 10).is_ok()
    }

    /// The next record without its marks; `None` if it does not arrive within `limit`.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn record(&mut self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(record) = self.whole_record() {
                return Ok(Some(record));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self
                    .input
                    .extend_from_slice(bytes.get(..read).unwrap_or_default()),
                Err(error) => {
                    at_once(Err(error))?;
                }
            }
        }
    }

    /// Takes a record of one fragment off the front; this server sends no others.
    fn whole_record(&mut self) -> Option<Vec<u8>> {
        let mark = self.input.first_chunk()?;
        let length = (u32::from_be_bytes(*mark) & !LAST_FRAGMENT) as usize;
        let record = self.input.get(4..4 + length)?.to_vec();
        self.input.drain(..4 + length);
        Some(record)
    }

    /// Closes the direction to the server, as a client does after its last call.
    pub fn finish(&mut self) {
        // A closed connection needs no closing.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Ends the connection with a reset, as a machine does after a loss of power.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        // Without this option the connection ends in order, which is less rude and no error.
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

/// Returns 0 for "would block", which is no error.
fn at_once(result: io::Result<usize>) -> io::Result<usize> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    match result {
        Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => Ok(0),
        other => other,
    }
}

/// One record of this message, in fragments of `bytes` bytes.
pub fn in_fragments(message: &[u8], bytes: usize) -> Vec<u8> {
    let mut record = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (fragment, behind) = rest.split_at(bytes.min(rest.len()));
        rest = behind;
        let last = if rest.is_empty() { LAST_FRAGMENT } else { 0 };
        record.extend_from_slice(&(last | fragment.len() as u32).to_be_bytes());
        record.extend_from_slice(fragment);
    }
    record
}
