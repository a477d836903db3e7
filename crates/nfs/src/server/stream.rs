//! What a connection reads and writes: the socket, or TLS over it.
//!
//! ```text
//!  Plain --AUTH_TLS answered--> Handshaking --done--> Secure
//!                                    |                         (none leads back)
//!                                    +--failed--> Closed
//! ```
//!
//! The socket itself is asked first, by one comparison a system call; vectored writes reach it as they are.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::Transport;
use crate::tls::{Tls, subject};

/// See the module's documentation.
pub(super) enum Stream {
    /// In clear.
    Plain(TcpStream),
    /// On the way from there to TLS: nothing can be read or written.
    Handshaking(Box<Accept<TcpStream>>),
    /// In TLS.
    Secure(Box<TlsStream<TcpStream>>),
    /// Nothing can be read or written any more.
    Closed,
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
                let accept = TlsAcceptor::from(tls.0.clone()).accept(socket);
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
        let first = session.peer_certificates().and_then(|chain| chain.first());
        let secured = Secured {
            transport: match first {
                Some(_) => Transport::Mutual,
                None => Transport::Tls,
            },
            subject: first.and_then(|certificate| subject(certificate)),
        };
        *self = Stream::Secure(Box::new(stream));
        Poll::Ready(Ok(Some(secured)))
    }

    /// Whether something was taken for writing that the socket has not got yet: it needs a flush.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Secure(stream) => stream.get_ref().1.wants_write(),
            Stream::Plain(_) | Stream::Handshaking(_) | Stream::Closed => false,
        }
    }

    /// Says good-bye, as far as that is possible at once: in TLS with a closure alert (RFC 9289, section 5.1.1),
    /// so that the client sees that nobody has cut the connection short.
    pub(super) async fn close(mut self) {
        if let Stream::Secure(stream) = &mut self {
            std::future::poll_fn(|context| {
                // Whether it got out makes no difference: the connection is dropped next.
                let _ = Pin::new(&mut **stream).poll_shutdown(context);
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
            Stream::Secure(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
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
            Stream::Secure(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
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
            Stream::Secure(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
            Stream::Handshaking(_) | Stream::Closed => not_open(),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(context),
            Stream::Secure(stream) => Pin::new(&mut **stream).poll_flush(context),
            Stream::Handshaking(_) | Stream::Closed => not_open().map_ok(drop),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Stream::Secure(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            Stream::Handshaking(_) | Stream::Closed => not_open().map_ok(drop),
        }
    }
}
