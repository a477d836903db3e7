//! Replies on their way into the socket.
//!
//! Small replies are gathered in one buffer; data of READ stays in the pieces that the file
//! system returned. All of it is sent with as few vectored writes as possible.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use forebay_types::{Lent, to_usize};
use tokio::io::AsyncWrite;

use super::budget::{Allowance, Charge};
use super::pool;
use crate::rpc::Reply;

/// Pieces passed to one write.
const MAX_PIECES: usize = 64;

/// A buffer of gathered replies is not filled beyond this.
const GATHER_BYTES: usize = 32 << 10;

/// Data shorter than this is cheaper to copy than to pass as a piece of its own.
const COPY_BYTES: usize = 1024;

enum Piece {
    Gathered { bytes: Vec<u8>, sent: usize },
    Data(Lent),
}

impl Piece {
    fn unsent(&self) -> &[u8] {
        match self {
            Piece::Gathered { bytes, sent } => bytes.get(*sent..).unwrap_or_default(),
            Piece::Data(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::Gathered { sent, .. } => *sent += count,
            Piece::Data(bytes) => bytes.advance(count),
        }
    }
}

/// Replies that are not sent yet.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes ever put in, and ever sent.
    put: u64,
    sent: u64,
    /// Charges of the replies, each with the value of `sent` at which the reply is sent.
    charges: VecDeque<(u64, Charge)>,
}

impl Outbox {
    /// Bytes not sent yet.
    pub(super) fn bytes(&self) -> usize {
        to_usize(self.put - self.sent)
    }

    /// Bytes that were ever sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether everything is sent.
    pub(super) fn is_empty(&self) -> bool {
        self.put == self.sent
    }

    /// Adds a reply. Returns the memory of its head for reuse.
    pub(super) fn put(&mut self, reply: Reply, charge: Charge) -> Vec<u8> {
        self.put += reply.len() as u64;
        self.charges.push_back((self.put, charge));
        let (head, data) = reply.finish();
        self.gather(&head);
        data.give(|piece| {
            if piece.len() < COPY_BYTES {
                self.gather(&piece);
            } else {
                self.pieces.push_back(Piece::Data(piece));
            }
        });
        head
    }

    fn gather(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if let Some(Piece::Gathered { bytes, .. }) = self.pieces.back_mut()
            && bytes.len() + data.len() <= GATHER_BYTES
        {
            bytes.extend_from_slice(data);
            return;
        }
        let mut bytes = pool::gathering();
        bytes.reserve(data.len().max(COPY_BYTES));
        bytes.extend_from_slice(data);
        self.pieces.push_back(Piece::Gathered { bytes, sent: 0 });
    }

    /// Writes until everything is sent, or the socket takes no more. Returns the bytes written now,
    /// or `Pending` if there were none.
    pub(super) fn poll_write(
        &mut self,
        mut socket: Pin<&mut impl AsyncWrite>,
        allowance: &mut Allowance,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let begin = self.sent;
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece.unsent());
                count += 1;
            }
            let (slices, _) = slices.split_at(count);
            let written = socket.as_mut().poll_write_vectored(context, slices);
            if written.is_pending() && self.sent > begin {
                break;
            }
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.advance(written, allowance),
            }
        }
        Poll::Ready(Ok(self.sent - begin))
    }

    fn advance(&mut self, mut written: usize, allowance: &mut Allowance) {
        self.sent += written as u64;
        while let Some(piece) = self.pieces.front_mut() {
            let unsent = piece.unsent().len();
            if written < unsent {
                piece.advance(written);
                break;
            }
            written -= unsent;
            if let Some(Piece::Gathered { bytes, .. }) = self.pieces.pop_front() {
                pool::give_gathering(bytes);
            }
        }
        while self
            .charges
            .front()
            .is_some_and(|(end, _)| *end <= self.sent)
        {
            if let Some((_, charge)) = self.charges.pop_front() {
                allowance.release(charge);
            }
        }
    }
}
