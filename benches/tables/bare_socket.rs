//! READs answered by a bare loop over a socket: the rate that the socket and the client allow.
//!
//! One thread serves one connection. It reads the calls that have arrived, and answers all of them with one `writev`
//! from the memory of the file. Calls and replies have the lengths of those of a server, so that the same client makes
//! them; the loop decodes nothing but the last words of a call, and checks nothing.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpSocket;

/// Bytes read from the socket at once. A call is a small part of it.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of a reply before its data: the record mark, 7 words, the attributes and a word that announces them, 3 words.
const HEAD_BYTES: usize = 4 + 7 * 4 + 4 + ATTRIBUTES + 3 * 4;
const ATTRIBUTES: usize = 84;
/// Most pieces that one `writev` takes (`IOV_MAX`).
const PIECES: usize = 1024;

/// The server of one connection.
pub(crate) struct BareSocket {
    pub(crate) address: SocketAddr,
    served: JoinHandle<io::Result<()>>,
}

impl BareSocket {
    /// Serves one connection on a port of the loopback. `send_buffer` is that of the socket, before the kernel doubles
    /// it. Needs a runtime, which makes the socket and has no other part in it.
    pub(crate) fn start(file: Arc<Vec<u8>>, send_buffer: u32) -> io::Result<BareSocket> {
        let socket = TcpSocket::new_v4()?;
        // The connection inherits both.
        socket.set_send_buffer_size(send_buffer)?;
        socket.set_nodelay(true)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let listener = socket.listen(1)?.into_std()?;
        listener.set_nonblocking(false)?;
        let address = listener.local_addr()?;
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            serve(stream, &file)
        });
        Ok(BareSocket { address, served })
    }

    /// Waits for its end, which follows that of the connection.
    pub(crate) fn join(self) -> io::Result<()> {
        let ended = self.served.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the bare loop panicked")))
    }
}

fn serve(mut stream: TcpStream, file: &[u8]) -> io::Result<()> {
    let mut input = vec![0; INPUT_BYTES];
    let mut held = 0;
    loop {
        match stream.read(&mut input[held..]) {
            Ok(0) => return Ok(()),
            Ok(read) => held += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let (mut calls, mut taken) = (Vec::new(), 0);
        while let Some((call, bytes)) = ReadCall::of(&input[taken..held]) {
            calls.push(call);
            taken += bytes;
        }
        input.copy_within(taken..held, 0);
        held -= taken;
        for some in calls.chunks(PIECES / 2) {
            answer(&mut stream, some, file)?;
        }
    }
}

/// Writes the replies to these calls.
fn answer(stream: &mut TcpStream, calls: &[ReadCall], file: &[u8]) -> io::Result<()> {
    let heads: Vec<_> = calls.iter().map(ReadCall::head).collect();
    let mut pieces = Vec::with_capacity(2 * calls.len());
    for (head, call) in heads.iter().zip(calls) {
        let data = file.get(call.offset..call.offset + call.count);
        let data = data.ok_or_else(|| io::Error::other("a READ beyond the file"))?;
        pieces.extend([IoSlice::new(head), IoSlice::new(data)]);
    }
    let mut left = pieces.as_mut_slice();
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A READ of a multiple of four bytes: its data need no padding.
struct ReadCall {
    xid: [u8; 4],
    offset: usize,
    count: usize,
}

impl ReadCall {
    /// The first call of these bytes, and the bytes that it takes; none if it has not arrived as a whole.
    fn of(bytes: &[u8]) -> Option<(ReadCall, usize)> {
        let (mark, rest) = bytes.split_first_chunk::<4>()?;
        // The highest bit says that this is the last fragment, as it always is here.
        let len = (u32::from_be_bytes(*mark) & !(1 << 31)) as usize;
        let record = rest.get(..len)?;
        let (xid, _) = record.split_first_chunk()?;
        let (record, count) = record.split_last_chunk()?;
        let (_, offset) = record.split_last_chunk()?;
        let call = ReadCall {
            xid: *xid,
            offset: u64::from_be_bytes(*offset) as usize,
            count: u32::from_be_bytes(*count) as usize,
        };
        Some((call, 4 + len))
    }

    /// A success (RFC 5531, `accepted_reply`, and RFC 1813, `READ3resok`) with attributes that are all zero.
    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let mut put = |at: usize, word: u32| head[at..at + 4].copy_from_slice(&word.to_be_bytes());
        let count = self.count as u32;
        put(0, (HEAD_BYTES - 4 + self.count) as u32 | 1 << 31);
        // A reply; it is accepted, has no verifier, and is a success, which zeros say.
        put(8, 1);
        // Attributes follow.
        put(32, 1);
        put(HEAD_BYTES - 12, count);
        put(HEAD_BYTES - 4, count);
        head[4..8].copy_from_slice(&self.xid);
        head
    }
}
