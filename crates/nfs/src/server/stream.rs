//! The byte stream of a connection: the socket, or TLS over it.
//!
//! ```text
//!  Plain --AUTH_TLS answered--> Handshaking --done--> Secure
//!                                    |                         (none leads back)
//!                                    +--failed--> Closed
//! ```
//!
//! Without TLS, the only overhead is one comparison per system call; vectored writes reach the socket unchanged.
//!
//! TLS holds bytes of its own: received bytes that are not a whole message yet, and sealed bytes that the socket has
//! not accepted. [`Stream::held_bytes`] returns their number, so that they count in the share of their client.

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

/// Memory of an idle TLS session: its keys and state, and 4 KiB to read into.
const SESSION_BYTES: usize = 7 << 10;

/// Most bytes that TLS seals ahead of the socket.
const SEALED_BYTES: usize = 64 << 10;

/// See the module's documentation.
pub(super) enum Stream {
    /// In clear.
    Plain(TcpStream),
    /// Switching from `Plain` to `Secure`: nothing can be read or written.
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

/// A socket that counts the bytes that TLS has read and may still hold.
pub(super) struct Counted {
    socket: TcpStream,
    /// Bytes that TLS may not have consumed yet.
    pending: usize,
    /// Of these, the bytes of the last read.
    last: usize,
}

impl Counted {
    /// To be called when the reader has consumed all plaintext. The last read had the end of a message, so only bytes
    /// of that read can belong to an incomplete message. This does not hold during the handshake.
    fn taken_up(&mut self) {
        self.pending = self.last;
    }
}

/// Result of a successful handshake.
pub(super) struct Secured {
    pub(super) transport: Transport,
    /// The subject of the client's certificate, if it has shown one.
    pub(super) subject: Option<String>,
}

impl Stream {
    /// Begins the handshake; all further bytes from the socket are part of it.
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

    /// Continues the handshake; returns `None` if there is none.
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
        // Present only if certificates were requested and accepted.
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

    /// Whether bytes were accepted for writing that the socket does not have yet: they need a flush.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Secure(secure) => secure.stream.get_ref().1.wants_write(),
            Stream::Plain(_) | Stream::Handshaking(_) | Stream::Closed => false,
        }
    }

    /// Upper bound for the bytes of memory that TLS holds for this connection.
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

    /// Closes the connection, as far as that is possible at once: in TLS with a closure alert (RFC 9289, section
    /// 5.1.1), so that the client sees that no attacker has truncated the stream.
    pub(super) async fn close(mut self) {
        if let Stream::Secure(secure) = &mut self {
            std::future::poll_fn(|context| {
                // It makes no difference whether the alert was sent: the connection is dropped next.
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
