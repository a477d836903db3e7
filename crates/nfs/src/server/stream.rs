//! What a connection reads and writes: the socket, or TLS over it.
//!
//! ```text
//!  Plain --AUTH_TLS answered--> Handshaking --done--> Secure
//!                                    |                         (none leads back)
//!                                    +--failed--> Closed
//! ```
//!
//! The socket itself is asked first, by one comparison a system call; vectored writes reach it as they are.
//!
//! TLS holds bytes of its own: what has come and is no whole message yet, and what it has sealed and the socket has not
//! taken. [`Stream::held_bytes`] tells how many, so that they are counted in the share of their client.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConnection;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::Transport;
use crate::tls::{Tls, subject};

/// What a session of TLS takes while nothing is under way: its keys and state, and 4 KiB to read into.
const SESSION_BYTES: usize = 7 << 10;

/// Bytes that TLS seals ahead of the socket, at most.
const SEALED_BYTES: usize = 64 << 10;

/// See the module's documentation.
pub(super) enum Stream {
    /// In clear.
    Plain(TcpStream),
    /// On the way from there to TLS: nothing can be read or written.
    Handshaking(Box<Accept<Counted>>),
    /// In TLS.
    Secure(Box<Secure>),
    /// Nothing can be read or written any more.
    Closed,
}

/// A socket in TLS.
pub(super) struct Secure {
    stream: TlsStream<Counted>,
    /// Bytes of the client's certificates, which the session keeps.
    certificates: usize,
}

impl Secure {
    fn stream(&mut self) -> Pin<&mut TlsStream<Counted>> {
        Pin::new(&mut self.stream)
    }

    fn held_bytes(&self) -> usize {
        let (socket, session) = self.stream.get_ref();
        let sealed = if session.wants_write() {
            SEALED_BYTES
        } else {
            0
        };
        SESSION_BYTES + self.certificates + socket.pending + sealed
    }
}

/// A socket of which it is known how much TLS has read and may still hold.
pub(super) struct Counted {
    socket: TcpStream,
    /// Bytes that may not be taken up yet.
    pending: usize,
    /// Of these, what was read last.
    last: usize,
}

impl Counted {
    /// What was read has become bytes for the reader, and those are all taken. So the last part that was read had the end of a
    /// message: no more than that part can belong to one that is not complete. The handshake says nothing of the kind.
    fn taken_up(&mut self) {
        self.pending = self.last;
    }
}

/// How a client came out of the handshake.
pub(super) struct Secured {
    pub(super) transport: Transport,
    /// Who its certificate is of, if it has shown one.
    pub(super) subject: Option<String>,
}

impl Stream {
    /// Begins the handshake; whatever the socket gives from now on is taken for a part of it.
    pub(super) fn begin_handshake(&mut self, tls: &Tls) {
        *self = match std::mem::replace(self, Stream::Closed) {
            Stream::Plain(socket) => {
                let (pending, last) = (0, 0);
                let socket = Counted {
                    socket,
                    pending,
                    last,
                };
                let limited = |session: &mut ServerConnection| {
                    session.set_buffer_limit(Some(SEALED_BYTES));
                };
                let accept = TlsAcceptor::from(tls.0.clone()).accept_with(socket, limited);
                Stream::Handshaking(Box::new(accept))
            }
            other => other,
        };
    }

    /// Goes on with the handshake, if there is one: gives `None` if there is not.
    pub(super) fn poll_handshake(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Secured>>> {
        let Stream::Handshaking(accept) = self else {
            return Poll::Ready(Ok(None));
        };
        let stream = ready!(Pin::new(&mut **accept).poll(context));
        // A failed one must not be polled again.
        *self = Stream::Closed;
        let stream = stream?;
        let (_, session) = stream.get_ref();
        // There are some only when they were asked for and accepted.
        let chain = session.peer_certificates().unwrap_or_default();
        let certificates = chain.iter().map(|certificate| certificate.len()).sum();
        let first = chain.first();
        let secured = Secured {
            transport: match first {
                Some(_) => Transport::Mutual,
                None => Transport::Tls,
            },
            subject: first.and_then(|certificate| subject(certificate)),
        };
        *self = Stream::Secure(Box::new(Secure {
            stream,
            certificates,
        }));
        Poll::Ready(Ok(Some(secured)))
    }

    /// Whether something was taken for writing that the socket has not got yet: it needs a flush.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Secure(secure) => secure.stream.get_ref().1.wants_write(),
            Stream::Plain(_) | Stream::Handshaking(_) | Stream::Closed => false,
        }
    }

    /// Bytes of memory that TLS holds of this connection, as a bound that is not exceeded.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Stream::Plain(_) | Stream::Closed => 0,
            Stream::Handshaking(accept) => {
                let came = accept.get_ref().map_or(0, |socket| socket.pending);
                SESSION_BYTES + came
            }
            Stream::Secure(secure) => secure.held_bytes(),
        }
    }

    /// Says good-bye, as far as that is possible at once: in TLS with a closure alert (RFC 9289, section 5.1.1),
    /// so that the client sees that nobody has cut the connection short.
    pub(super) async fn close(mut self) {
        if let Stream::Secure(secure) = &mut self {
            std::future::poll_fn(|context| {
                // Whether it got out makes no difference: the connection is dropped next.
                let _ = secure.stream().poll_shutdown(context);
                Poll::Ready(())
            })
            .await;
        }
    }
}

fn not_open() -> Poll<io::Result<usize>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Stream::Secure(secure) => {
                let read = secure.stream().poll_read(context, buffer);
                let (socket, session) = secure.stream.get_mut();
                if read.is_ready() && session.wants_read() {
                    socket.taken_up();
                }
                read
            }
            Stream::Handshaking(_) | Stream::Closed => not_open().map_ok(drop),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Stream::Secure(secure) => secure.stream().poll_write(context, bytes),
            Stream::Handshaking(_) | Stream::Closed => not_open(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Stream::Secure(secure) => secure.stream().poll_write_vectored(context, slices),
            Stream::Handshaking(_) | Stream::Closed => not_open(),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(context),
            Stream::Secure(secure) => secure.stream().poll_flush(context),
            Stream::Handshaking(_) | Stream::Closed => not_open().map_ok(drop),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Stream::Secure(secure) => secure.stream().poll_shutdown(context),
            Stream::Handshaking(_) | Stream::Closed => not_open().map_ok(drop),
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let counted = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut counted.socket).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            counted.last = bytes;
            counted.pending += bytes;
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
