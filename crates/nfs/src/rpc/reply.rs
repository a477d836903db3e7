//! Building replies.

use bytes::Bytes;
use forebay_types::bounded_u32;
use forebay_vfs::Pieces;

use super::{AUTH_NONE, Denial, REPLY, RPC_VERSION, Rejection, STARTTLS};
use crate::record::{MARK_BYTES, mark};
use crate::xdr::{Writer, padding};

/// A reply, ready for the socket: a head that begins with the record mark, and for READ the data,
/// in the pieces that the file system returned, so that they are not copied.
#[derive(Debug, Default)]
pub struct Reply {
    head: Vec<u8>,
    data: Pieces,
    data_bytes: usize,
}

/// Length of the header of an accepted reply, after the record mark.
const ACCEPTED_BYTES: usize = 24;

/// The place of the record mark, until it is known.
const MARK: u32 = 0;

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// With results that begin with this status; 0 if there are no results.
    Status(u32),
    /// It was denied or rejected.
    Refused,
}

impl Reply {
    /// Begins the reply to an accepted call; append the results to [`Reply::results`]. Uses the memory
    /// of `buffer`.
    pub fn accepted(xid: u32, buffer: Vec<u8>) -> Reply {
        Reply::begin([MARK, xid, REPLY, 0, 0, 0, 0], buffer)
    }

    /// The answer to AUTH_TLS: after it the connection continues in TLS (RFC 9289, section 4.1).
    pub fn start_tls(xid: u32, buffer: Vec<u8>) -> Reply {
        let mut reply = Reply::begin([MARK, xid, REPLY, 0, AUTH_NONE], buffer);
        reply.results().opaque(&STARTTLS);
        reply.results().u32(0);
        reply
    }

    /// An accepted call without results.
    pub fn rejected(xid: u32, rejection: Rejection, buffer: Vec<u8>) -> Reply {
        let mut reply = Reply::begin([MARK, xid, REPLY], buffer);
        match rejection {
            Rejection::ProgramUnavailable => reply.write(&[0, 0, 0, 1]),
            Rejection::ProgramMismatch(low, high) => reply.write(&[0, 0, 0, 2, low, high]),
            Rejection::ProcedureUnavailable => reply.write(&[0, 0, 0, 3]),
            Rejection::GarbageArguments => reply.write(&[0, 0, 0, 4]),
            Rejection::SystemError => reply.write(&[0, 0, 0, 5]),
        }
        reply
    }

    /// A denied call.
    pub fn denied(xid: u32, denial: Denial, buffer: Vec<u8>) -> Reply {
        let mut reply = Reply::begin([MARK, xid, REPLY], buffer);
        match denial {
            Denial::RpcMismatch => reply.write(&[1, 0, RPC_VERSION, RPC_VERSION]),
            Denial::BadCredential => reply.write(&[1, 1, 1]),
            Denial::RejectedCredential => reply.write(&[1, 1, 2]),
            Denial::BadVerifier => reply.write(&[1, 1, 3]),
            Denial::TooWeak => reply.write(&[1, 1, 5]),
        }
        reply
    }

    /// Drops the results and replies with a rejection.
    pub fn turned_into(self, xid: u32, rejection: Rejection) -> Reply {
        Reply::rejected(xid, rejection, self.head)
    }

    /// Drops the results and denies the call.
    pub fn denied_after_all(self, xid: u32, denial: Denial) -> Reply {
        Reply::denied(xid, denial, self.head)
    }

    /// Returns the stored reply to a repeated call (the whole record).
    pub fn repeated(record: &[u8], mut buffer: Vec<u8>) -> Reply {
        buffer.clear();
        buffer.extend_from_slice(record);
        Reply {
            head: buffer,
            ..Reply::default()
        }
    }

    /// A reply that begins with these words, the first of which is the [`MARK`].
    fn begin<const N: usize>(words: [u32; N], mut head: Vec<u8>) -> Reply {
        head.clear();
        Writer::new(&mut head).words(words);
        Reply {
            head,
            ..Reply::default()
        }
    }

    fn write(&mut self, values: &[u32]) {
        let mut writer = self.results();
        values.iter().for_each(|value| writer.u32(*value));
    }

    /// The writer that appends results.
    pub fn results(&mut self) -> Writer<'_> {
        Writer::new(&mut self.head)
    }

    /// How a reply answers a call, if results begin with a status, as those of NFS do.
    #[inline]
    pub(crate) fn answered(&self) -> Answered {
        const WITH_STATUS: usize = MARK_BYTES + ACCEPTED_BYTES + 4;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u32::from_be_bytes(*word));
        let accepted = |head: &[u8]| (word(&head[12..]), word(&head[24..])) == (Some(0), Some(0));
        match self.head.first_chunk::<WITH_STATUS>() {
            Some(head) if accepted(head) => Answered::Status(word(&head[28..]).unwrap_or(0)),
            None if self.head.len() == MARK_BYTES + ACCEPTED_BYTES && accepted(&self.head) => {
                Answered::Status(0)
            }
            Some(_) | None => Answered::Refused,
        }
    }

    /// Number of bytes of results, without data.
    pub fn result_bytes(&self) -> usize {
        self.head.len().saturating_sub(MARK_BYTES + ACCEPTED_BYTES)
    }

    /// Truncates the results to the first `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        self.head.truncate(MARK_BYTES + ACCEPTED_BYTES + bytes);
    }

    /// Appends opaque data of variable length as the last of the results.
    pub fn data(&mut self, data: Pieces) {
        self.data_bytes = data.iter().map(|piece| piece.len()).sum();
        // A call asks for a number of bytes that has 32 bits.
        let length = bounded_u32(self.data_bytes);
        self.results().u32(length);
        self.data = data;
        let padding = padding(self.data_bytes);
        if padding > 0 {
            self.data.push(Bytes::from_static(&[0; 3][..padding]));
            self.data_bytes += padding;
        }
    }

    /// Bytes of the whole reply, including its mark.
    pub fn len(&self) -> usize {
        self.head.len() + self.data_bytes
    }

    /// Always false: a reply has at least its header.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Sets the record mark and returns the pieces: the head, then the data.
    pub fn finish(mut self) -> (Vec<u8>, Pieces) {
        let length = self.len().saturating_sub(MARK_BYTES);
        if let Some(to) = self.head.first_chunk_mut() {
            *to = mark(length);
        }
        (self.head, self.data)
    }

    /// The whole record as one slice, for the replay cache; `None` when it has data pieces.
    pub fn record(&mut self) -> Option<&[u8]> {
        let length = self.head.len().saturating_sub(MARK_BYTES);
        *self.head.first_chunk_mut()? = mark(length);
        self.data.is_empty().then_some(&self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: Reply) -> Vec<u8> {
        let (mut head, data) = reply.finish();
        data.iter().for_each(|piece| head.extend_from_slice(piece));
        head
    }

    #[test]
    fn golden_accepted_reply_with_padded_data() {
        let mut reply = Reply::accepted(7, vec![1, 2, 3]);
        reply.results().u32(9);
        reply.data(Pieces::from_iter([
            Bytes::from_static(b"ab"),
            Bytes::from_static(b"cde"),
        ]));
        assert_eq!(reply.len(), 44);
        assert_eq!(
            bytes(reply),
            [
                0x80, 0, 0, 40, // mark
                0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, // xid, reply, accepted
                0, 0, 0, 0, 0, 0, 0, 0, // verifier
                0, 0, 0, 0, // success
                0, 0, 0, 9, 0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0,
            ]
        );
    }

    #[test]
    fn a_reply_shows_how_it_answers() {
        let status = |status| {
            let mut reply = Reply::accepted(7, Vec::new());
            reply.results().u32(status);
            reply.answered()
        };
        assert_eq!(status(0), Answered::Status(0));
        assert_eq!(status(10008), Answered::Status(10008));
        // Of NULL.
        let empty = Reply::accepted(7, Vec::new());
        assert_eq!(empty.answered(), Answered::Status(0));
        let denied = Reply::denied(7, Denial::TooWeak, Vec::new());
        assert_eq!(denied.answered(), Answered::Refused);
        let rejections = [
            Rejection::GarbageArguments,
            Rejection::ProgramMismatch(3, 3),
        ];
        for rejection in rejections {
            let rejected = Reply::rejected(7, rejection, Vec::new());
            assert_eq!(rejected.answered(), Answered::Refused);
        }
    }

    #[test]
    fn golden_rejections() {
        let rejected = |rejection| bytes(Reply::rejected(7, rejection, Vec::new()));
        let mismatch = rejected(Rejection::ProgramMismatch(3, 3));
        assert_eq!(mismatch[..4], [0x80, 0, 0, 32]);
        assert_eq!(mismatch[24..], [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3]);
        assert_eq!(rejected(Rejection::ProgramUnavailable)[24..], [0, 0, 0, 1]);
        assert_eq!(
            rejected(Rejection::ProcedureUnavailable)[24..],
            [0, 0, 0, 3]
        );
        assert_eq!(rejected(Rejection::GarbageArguments)[24..], [0, 0, 0, 4]);
    }

    #[test]
    fn golden_answer_to_auth_tls() {
        assert_eq!(
            bytes(Reply::start_tls(7, Vec::new())),
            [
                &[0x80, 0, 0, 32][..],     // mark
                &[0, 0, 0, 7, 0, 0, 0, 1], // xid, reply
                &[0, 0, 0, 0, 0, 0, 0, 0], // accepted, AUTH_NONE
                &[0, 0, 0, 8],
                b"STARTTLS",
                &[0, 0, 0, 0], // success
            ]
            .concat()
        );
    }

    #[test]
    fn golden_denials() {
        let denied = |denial| bytes(Reply::denied(7, denial, Vec::new()));
        assert_eq!(
            denied(Denial::RpcMismatch)[8..],
            [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2]
        );
        assert_eq!(
            denied(Denial::TooWeak),
            [
                0x80, 0, 0, 20, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5
            ]
        );
    }
}
