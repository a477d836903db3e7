//! The replies of a connection that are not sent yet, and the charges of its calls and replies.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::rpc::Reply;
use crate::server::budget::{Allowance, Charge};
use crate::server::outbox::Outbox;
use crate::server::stream::Stream;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) allowance: Allowance,
    outbox: Outbox,
    /// The memory of a reply's head, for the next.
    buffer: Vec<u8>,
}

impl Replies {
    /// Returns memory in which the next reply is built.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Takes this memory back if no reply was built in it.
    pub(super) fn give_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Queues a reply. Reduces the call's charge to the length of the reply.
    pub(super) fn put(&mut self, reply: Reply, charge: Charge) {
        let charge = self.allowance.settle(charge, reply.len());
        self.buffer = self.outbox.put(reply, charge);
    }

    /// Sends as much as the stream accepts; returns the bytes accepted now, or `Pending` when there were none.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let written = match self.outbox.is_empty() {
            true => Poll::Ready(Ok(0)),
            false => {
                let socket = Pin::new(&mut *stream);
                self.outbox.poll_write(socket, &mut self.allowance, context)
            }
        };
        if stream.holds_back() {
            // TLS accepts more than the socket does.
            let flushed = Pin::new(&mut *stream).poll_flush(context)?;
            if flushed.is_pending() && !matches!(written, Poll::Ready(Ok(1..))) {
                return Poll::Pending;
            }
        }
        written
    }

    /// Bytes that the stream has not accepted.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Bytes that the stream has accepted in total.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.outbox.sent()
    }

    /// Whether the socket has every reply.
    pub(super) fn are_all_sent(&self, stream: &Stream) -> bool {
        self.outbox.is_empty() && !stream.holds_back()
    }
}
