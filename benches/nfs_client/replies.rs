//! Splits the stream into replies, and checks that each is a success.

use std::io;

use super::xdr::Results;

/// Bit of a record mark: the fragment is the last one of its record (RFC 5531, section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// Replies to the calls in flight.
pub(super) struct Replies {
    /// Transaction numbers, and the numbers of the work.
    outstanding: Vec<(u32, u64)>,
    /// Number of bytes kept of each reply.
    keep: usize,
    /// Least length of each reply.
    least_bytes: usize,
    /// The record mark, as far as it has arrived.
    mark: Vec<u8>,
    /// Bytes of the fragment that have not arrived.
    fragment_left: usize,
    last_fragment: bool,
    /// Beginning of the reply that is arriving, and its length so far.
    reply: Vec<u8>,
    reply_bytes: usize,
    last: Vec<u8>,
}

impl Replies {
    pub(super) fn new(keep: usize, least_bytes: usize) -> Replies {
        Replies {
            outstanding: Vec::new(),
            keep,
            least_bytes,
            mark: Vec::with_capacity(4),
            fragment_left: 0,
            last_fragment: false,
            reply: Vec::new(),
            reply_bytes: 0,
            last: Vec::new(),
        }
    }

    pub(super) fn expect(&mut self, xid: u32, number: u64) {
        self.outstanding.push((xid, number));
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The kept bytes of the last reply.
    pub(super) fn into_last(self) -> Vec<u8> {
        self.last
    }

    /// Takes received bytes; passes each complete reply to `answered`.
    pub(super) fn take_in(
        &mut self,
        mut bytes: &[u8],
        mut answered: impl FnMut(u64, Results<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.fragment_left == 0 {
                let (mark, rest) = bytes.split_at(bytes.len().min(4 - self.mark.len()));
                self.mark.extend_from_slice(mark);
                bytes = rest;
                let Ok(mark) = <[u8; 4]>::try_from(&self.mark[..]) else {
                    continue;
                };
                self.mark.clear();
                let mark = u32::from_be_bytes(mark);
                self.fragment_left = (mark & !LAST_FRAGMENT) as usize;
                self.last_fragment = mark & LAST_FRAGMENT != 0;
            } else {
                let (part, rest) = bytes.split_at(bytes.len().min(self.fragment_left));
                let kept = part.len().min(self.keep - self.reply.len());
                self.reply.extend_from_slice(&part[..kept]);
                self.reply_bytes += part.len();
                self.fragment_left -= part.len();
                bytes = rest;
            }
            if self.fragment_left == 0 && self.last_fragment {
                self.end_of_reply(&mut answered)?;
            }
        }
        Ok(())
    }

    fn end_of_reply(
        &mut self,
        answered: &mut impl FnMut(u64, Results<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let results = Results::of(&self.reply)?;
        let waiting = |(xid, _): &(u32, u64)| *xid == results.xid;
        let place = self.outstanding.iter().position(waiting);
        let place = place.ok_or_else(|| io::Error::other("a reply to no call"))?;
        if self.reply_bytes < self.least_bytes {
            let problem = format!("a reply of only {} bytes", self.reply_bytes);
            return Err(io::Error::other(problem));
        }
        let (_, number) = self.outstanding.swap_remove(place);
        answered(number, results)?;
        self.last_fragment = false;
        self.reply_bytes = 0;
        std::mem::swap(&mut self.last, &mut self.reply);
        self.reply.clear();
        Ok(())
    }
}
