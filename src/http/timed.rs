//! A stream whose peer has to take what it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Fails writes with [`io::ErrorKind::TimedOut`] once the peer has left bytes untaken for `limit`: the time runs from
/// the first write that has to wait until everything is flushed, so a peer that takes a byte now and then gains none. Reads are
/// unchanged.
pub(super) struct Timed<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Timed<S> {
        Timed {
            stream,
            limit,
            waiting: None,
        }
    }

    /// Ends a wait that takes too long.
    fn or_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        let limit = self.limit;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_timeout(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.or_timeout(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written everything that it has.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if polled.is_ready() {
            self.waiting = None;
        }
        self.or_timeout(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_timeout(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_never_reads_ends_the_write() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut timed = Timed::new(ours, Duration::from_millis(1));
        let error = timed.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_that_reads_in_time_gets_everything() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut timed = Timed::new(ours, Duration::from_secs(3600));
        let write = async {
            timed.write_all(&[7; 64]).await.unwrap();
            timed.flush().await.unwrap();
            assert!(timed.waiting.is_none());
            timed.shutdown().await.unwrap();
        };
        let read = async {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, [7; 64]);
        };
        tokio::join!(write, read);
    }

    #[tokio::test]
    async fn a_peer_that_takes_a_byte_now_and_then_gains_no_time() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut timed = Timed::new(ours, Duration::from_millis(20));
        let write = async { timed.write_all(&[0; 1 << 20]).await.unwrap_err() };
        let trickle = async {
            let mut byte = [0];
            loop {
                theirs.read_exact(&mut byte).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let error = tokio::select! { error = write => error, () = trickle => unreachable!() };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
