//! Record marking: how RPC messages are separated in a TCP stream (RFC 5531, section 11).
//!
//! A record is one message, sent as one or more fragments:
//!
//! ```text
//!  bit 31          bits 30..0               that many bytes
//! +---------------+------------------------+----------------- - - -
//! | last fragment | length of the fragment | a piece of the record
//! +---------------+------------------------+----------------- - - -
//! ```
//!
//! [`Assembler`] takes the stream in pieces of any size and returns records. It never allocates
//! merely because of a length in the stream: small records get a buffer of their length when a quarter of it has
//! arrived, large ones wait for a buffer that the owner of the assembler has to grant.

use forebay_types::{balance, bounded_u32};

/// Bytes of a fragment's header.
pub const MARK_BYTES: usize = 4;

/// The bit that marks the last fragment of a record.
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// A record up to this many bytes is collected without a grant; a longer one needs a granted buffer.
pub const SMALL_RECORD_BYTES: usize = 64 << 10;

/// Bytes of a large record that must have arrived before the assembler asks for a buffer, so that a
/// client cannot occupy a buffer by sending a header only.
const EARNEST_BYTES: usize = 16 << 10;

/// Bytes that are kept of a discarded record: the longest header of a call, and the arguments of WRITE up to its
/// data.
pub const HEAD_BYTES: usize = 1 << 10;

/// The header of a message of `length` bytes that is sent as a single fragment.
pub fn mark(length: usize) -> [u8; MARK_BYTES] {
    (bounded_u32(length) | LAST_FRAGMENT).to_be_bytes()
}

/// The stream violates record marking or its limits: the connection has to be closed, because record
/// boundaries after the violation are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Longer than the limit.
    #[error("a record of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// A fragment without bytes that is not the last. No correct client sends one; it would only keep the server
    /// busy.
    #[error("an empty fragment")]
    EmptyFragment,
}

/// Result of [`Assembler::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All input is used up and no record is complete.
    NeedInput,
    /// The current record needs a buffer of this capacity ([`Assembler::grant`]) before it can
    /// take more bytes.
    NeedBuffer(usize),
    /// A complete record. There may be input left.
    Record(Vec<u8>),
    /// The end of a discarded record ([`Assembler::discard`]): its first bytes. There may be input left.
    Discarded(Vec<u8>),
}

/// Puts records together from a stream.
#[derive(Debug)]
pub struct Assembler {
    limit: usize,
    mark: [u8; MARK_BYTES],
    /// Bytes of `mark` that have arrived.
    mark_filled: usize,
    /// Bytes of the current fragment that have not arrived, once its mark is complete.
    remaining: usize,
    last: bool,
    record: Vec<u8>,
    /// Bytes that `record` may hold without a further grant.
    allowance: usize,
    /// Bytes of the current record that were dropped, if it is discarded.
    discarded: Option<usize>,
    /// Returns a buffer of at least this many bytes for a record that has begun.
    buffers: fn(usize) -> Vec<u8>,
}

impl Assembler {
    /// For records of at most `limit` bytes.
    pub fn new(limit: usize) -> Assembler {
        Assembler::with_buffers(limit, Vec::with_capacity)
    }

    /// Like [`Assembler::new`]; `buffers` returns an empty buffer of at least the given number of bytes for a record
    /// that has begun. The number is the length of the record if a quarter of it has arrived.
    pub fn with_buffers(limit: usize, buffers: fn(usize) -> Vec<u8>) -> Assembler {
        Assembler {
            buffers,
            limit,
            mark: [0; MARK_BYTES],
            mark_filled: 0,
            remaining: 0,
            last: false,
            record: Vec::new(),
            allowance: SMALL_RECORD_BYTES,
            discarded: None,
        }
    }

    /// Whether the stream is in the middle of a record.
    pub fn is_midway(&self) -> bool {
        self.mark_filled > 0 || !self.record.is_empty()
    }

    /// Bytes of memory that the current record occupies.
    pub fn held_bytes(&self) -> usize {
        self.record.capacity()
    }

    /// Length in bytes of the record that lies whole at the front of `input`, as a single fragment, behind
    /// [`MARK_BYTES`]. A caller that uses it in place takes mark and record off `input` itself. `None` if the record is
    /// not whole, or if the stream is inside another one.
    pub fn whole(&self, input: &[u8]) -> Option<usize> {
        let (mark, rest) = input.split_first_chunk()?;
        let mark = u32::from_be_bytes(*mark);
        let length = (mark & !LAST_FRAGMENT) as usize;
        let is_whole = mark & LAST_FRAGMENT != 0 && length <= self.limit.min(rest.len());
        (is_whole && !self.is_midway()).then_some(length)
    }

    /// Takes bytes off the front of `input` until a record is complete or something is missing.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Step, RecordError> {
        loop {
            if self.mark_filled < MARK_BYTES {
                if !self.take_mark(input)? {
                    return Ok(Step::NeedInput);
                }
                continue;
            }
            let total = self.record.len() + self.remaining;
            let available = self.remaining.min(input.len());
            if self.discarded.is_some() {
                self.drop_bytes(input, available);
                if self.remaining > 0 {
                    return Ok(Step::NeedInput);
                }
                self.mark_filled = 0;
                if self.last {
                    return Ok(Step::Discarded(self.complete()));
                }
                continue;
            }
            if total > self.allowance && self.record.len() + available > EARNEST_BYTES {
                return Ok(Step::NeedBuffer(total));
            }
            let Some((piece, rest)) = input.split_at_checked(available) else {
                return Ok(Step::NeedInput);
            };
            if self.record.is_empty() && self.record.capacity() < available {
                // Usually the whole record is here, or most of one that the end of a read has cut.
                let is_earnest = self.last && total <= self.allowance.min(4 * available);
                self.record = (self.buffers)(if is_earnest { total } else { available });
            }
            if available == self.remaining && self.last {
                self.record.reserve_exact(available);
            }
            self.record.extend_from_slice(piece);
            *input = rest;
            self.remaining -= available;
            if self.remaining > 0 {
                return Ok(Step::NeedInput);
            }
            self.mark_filled = 0;
            if self.last {
                return Ok(Step::Record(self.complete()));
            }
        }
    }

    /// Gives the current record a buffer of the capacity that [`Step::NeedBuffer`] asked for. Copies into it
    /// the bytes collected so far.
    pub fn grant(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.record);
        self.allowance = buffer.capacity().max(SMALL_RECORD_BYTES);
        self.record = buffer;
    }

    /// Discards the current record: only its first [`HEAD_BYTES`] are kept. This answers
    /// [`Step::NeedBuffer`] as well as a grant does: the stream continues after the record.
    pub fn discard(&mut self) {
        let kept = self.record.len().min(HEAD_BYTES);
        let (head, dropped) = self.record.split_at(kept);
        self.discarded = Some(dropped.len());
        self.record = head.to_vec();
    }

    /// Keeps bytes of the head of a discarded record and drops the rest.
    fn drop_bytes(&mut self, input: &mut &[u8], count: usize) {
        let (piece, rest) = input.split_at(count);
        let room = HEAD_BYTES.saturating_sub(self.record.len());
        let (kept, dropped) = piece.split_at(room.min(piece.len()));
        self.record.extend_from_slice(kept);
        self.discarded = self.discarded.map(|before| before + dropped.len());
        self.remaining -= count;
        *input = rest;
    }

    /// Takes a buffer for the next record, to save an allocation. If that record has begun, the buffer is dropped.
    pub fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.record.is_empty() {
            buffer.clear();
            self.record = buffer;
        }
    }

    /// Returns a buffer for reading the next bytes of the stream directly, and their maximum number, when a large
    /// record lacks many. [`Assembler::take`] has to be called afterwards.
    pub fn direct(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let wanted = self.remaining;
        let worth_it = self.mark_filled == MARK_BYTES
            && wanted >= EARNEST_BYTES
            && self.record.len() + wanted <= self.record.capacity()
            && self.allowance > SMALL_RECORD_BYTES;
        worth_it.then_some((&mut self.record, wanted))
    }

    /// Notes that `bytes` bytes were read into the buffer from [`Assembler::direct`], and returns
    /// the record if it is complete.
    pub fn advance(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.remaining = balance::taken_count("bytes of a fragment", self.remaining, bytes);
        if self.remaining > 0 {
            return None;
        }
        self.mark_filled = 0;
        self.last.then(|| self.complete())
    }

    fn complete(&mut self) -> Vec<u8> {
        self.allowance = SMALL_RECORD_BYTES;
        self.discarded = None;
        std::mem::take(&mut self.record)
    }

    /// Takes the fragment's header; returns false while it is incomplete.
    fn take_mark(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        let wanted = MARK_BYTES - self.mark_filled;
        let (piece, rest) = input.split_at(wanted.min(input.len()));
        for (to, from) in self.mark.iter_mut().skip(self.mark_filled).zip(piece) {
            *to = *from;
        }
        self.mark_filled += piece.len();
        *input = rest;
        if self.mark_filled < MARK_BYTES {
            return Ok(false);
        }
        let mark = u32::from_be_bytes(self.mark);
        self.last = mark & LAST_FRAGMENT != 0;
        self.remaining = (mark & !LAST_FRAGMENT) as usize;
        let before = self.record.len() + self.discarded.unwrap_or(0);
        if self.remaining > self.limit.saturating_sub(before) {
            return Err(RecordError::TooLong { limit: self.limit });
        }
        if self.remaining == 0 && !self.last {
            return Err(RecordError::EmptyFragment);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1 << 20;

    /// Feeds a stream in pieces of at most `piece` bytes and grants every buffer.
    fn assemble(stream: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut assembler = Assembler::new(LIMIT);
        let mut records = Vec::new();
        for mut input in stream.chunks(piece) {
            loop {
                match assembler.take(&mut input)? {
                    Step::NeedInput => break,
                    Step::NeedBuffer(bytes) => assembler.grant(Vec::with_capacity(bytes)),
                    Step::Record(record) => records.push(record),
                    Step::Discarded(_) => panic!("nothing was discarded"),
                }
            }
            assert!(input.is_empty());
        }
        Ok(records)
    }

    #[test]
    fn a_record_is_seen_where_it_lies_if_it_lies_there_whole_and_alone() {
        let mut assembler = Assembler::new(100);
        let wire = [fragment(&[1; 100], true), fragment(&[2; 9], true)].concat();
        assert_eq!(assembler.whole(&wire), Some(100));
        assert_eq!(assembler.whole(&wire[104..]), Some(9));
        assert_eq!(assembler.whole(&wire[..104]), Some(100));
        for cut in [0, 3, 4, 103] {
            assert_eq!(assembler.whole(&wire[..cut]), None);
        }
        assert_eq!(assembler.whole(&fragment(&[1; 101], true)), None);
        assert_eq!(assembler.whole(&fragment(&[1; 10], false)), None);
        // In the middle of a mark, and of a record.
        for cut in [2, 50] {
            let mut assembler = Assembler::new(100);
            let mut begun = &wire[..cut];
            assert_eq!(assembler.take(&mut begun), Ok(Step::NeedInput));
            assert_eq!(assembler.whole(&wire), None);
        }
        assembler.reuse(Vec::with_capacity(100));
        assert_eq!(assembler.whole(&wire), Some(100));
    }

    #[test]
    fn a_buffer_is_used_again_for_the_next_record_and_never_for_one_that_has_begun() {
        let mut assembler = Assembler::new(LIMIT);
        assembler.reuse(vec![9; 300]);
        assert!(!assembler.is_midway());
        let wire = fragment(&[1; 100], true);
        let (begin, rest) = wire.split_at(50);
        let mut input = begin;
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedInput));
        assembler.reuse(vec![8; 300]);
        let mut input = rest;
        let Ok(Step::Record(record)) = assembler.take(&mut input) else {
            panic!("it is complete");
        };
        assert_eq!(record, [1; 100]);
        assert_eq!(record.capacity(), 300);
    }

    #[test]
    fn a_record_of_which_a_quarter_is_here_is_given_a_buffer_of_its_length() {
        let buffers = |bytes| Vec::with_capacity(bytes + 77);
        let wire = fragment(&[1; 4000], true);
        for (here, capacity) in [(4000, 4077), (1000, 4077), (999, 1076)] {
            let mut assembler = Assembler::with_buffers(LIMIT, buffers);
            let (mut input, mut rest) = wire.split_at(MARK_BYTES + here);
            let step = assembler.take(&mut input).unwrap();
            assert_eq!(step == Step::NeedInput, here < 4000);
            if here < 4000 {
                assert_eq!(assembler.record.capacity(), capacity);
                let step = assembler.take(&mut rest).unwrap();
                assert_eq!(step, Step::Record(vec![1; 4000]));
            }
        }
        // A record that needs a grant gets no more than the bytes that have arrived.
        let wire = fragment(&vec![1; 100 << 10], true);
        let mut assembler = Assembler::with_buffers(LIMIT, buffers);
        let mut input = &wire[..MARK_BYTES + EARNEST_BYTES];
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedInput));
        assert_eq!(assembler.record.capacity(), EARNEST_BYTES + 77);
    }

    fn fragment(data: &[u8], last: bool) -> Vec<u8> {
        let flag = if last { LAST_FRAGMENT } else { 0 };
        let mut wire = (data.len() as u32 | flag).to_be_bytes().to_vec();
        wire.extend_from_slice(data);
        wire
    }

    #[test]
    fn of_a_discarded_record_the_head_is_kept_and_the_stream_goes_on_behind_it() {
        let long: Vec<u8> = (0..LIMIT).map(|i| i as u8).collect();
        let (one, other) = long.split_at(300_000);
        let mut stream = fragment(one, false);
        stream.extend(fragment(other, true));
        stream.extend(fragment(b"next", true));
        for piece in [1000, 20_000, stream.len()] {
            let mut assembler = Assembler::new(LIMIT);
            let (mut heads, mut records) = (Vec::new(), Vec::new());
            for mut input in stream.chunks(piece) {
                loop {
                    match assembler.take(&mut input).unwrap() {
                        Step::NeedInput => break,
                        Step::NeedBuffer(_) => assembler.discard(),
                        Step::Record(record) => records.push(record),
                        Step::Discarded(head) => heads.push(head),
                    }
                    assert!(assembler.held_bytes() <= 2 * EARNEST_BYTES);
                }
            }
            assert_eq!(heads, [&long[..HEAD_BYTES]]);
            assert_eq!(records, [b"next"]);
            assert!(!assembler.is_midway());
        }
    }

    #[test]
    fn a_discarded_record_has_the_same_limit() {
        let mut assembler = Assembler::new(LIMIT);
        let piece = fragment(&vec![1; LIMIT / 2 + 1], false);
        let mut input = &piece[..];
        assert!(matches!(
            assembler.take(&mut input),
            Ok(Step::NeedBuffer(_))
        ));
        assembler.discard();
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedInput));
        let mut input = &piece[..];
        let too_long = RecordError::TooLong { limit: LIMIT };
        assert_eq!(assembler.take(&mut input), Err(too_long));
    }

    #[test]
    fn golden_mark() {
        assert_eq!(mark(40), [0x80, 0, 0, 40]);
    }

    #[test]
    fn a_record_of_two_gibibytes_is_refused_at_its_header() {
        let mut assembler = Assembler::new(LIMIT);
        let mut input = &[0xff, 0xff, 0xff, 0xff][..];
        let too_long = RecordError::TooLong { limit: LIMIT };
        assert_eq!(assembler.take(&mut input), Err(too_long));
        assert_eq!(assembler.record.capacity(), 0);
    }

    #[test]
    fn fragments_together_longer_than_the_limit_are_refused() {
        let mut stream = fragment(&vec![1; LIMIT / 2], false);
        stream.extend(fragment(&vec![1; LIMIT / 2 + 1], true));
        let too_long = RecordError::TooLong { limit: LIMIT };
        assert_eq!(assemble(&stream, 4096), Err(too_long));
    }

    #[test]
    fn empty_fragments_cannot_keep_the_server_busy() {
        let stream = fragment(b"", false);
        assert_eq!(assemble(&stream, 4), Err(RecordError::EmptyFragment));
        assert_eq!(assemble(&fragment(b"", true), 4), Ok(vec![vec![]]));
    }

    #[test]
    fn a_header_alone_holds_no_buffer() {
        let mut assembler = Assembler::new(LIMIT);
        let stream = fragment(&vec![7; LIMIT], true);
        let mut input = &stream[..MARK_BYTES + 100];
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedInput));
        assert!(assembler.record.capacity() < 4096);
        assert!(assembler.direct().is_none());
        let mut input = &stream[MARK_BYTES + 100..];
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedBuffer(LIMIT)));
    }

    #[test]
    fn a_large_record_is_read_straight_into_its_buffer() {
        let mut assembler = Assembler::new(LIMIT);
        let stream = fragment(&vec![7; LIMIT], true);
        let mut input = &stream[..SMALL_RECORD_BYTES];
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedBuffer(LIMIT)));
        assembler.grant(Vec::with_capacity(LIMIT));
        assert_eq!(assembler.take(&mut input), Ok(Step::NeedInput));
        let (buffer, wanted) = assembler.direct().unwrap();
        assert_eq!(wanted, LIMIT + MARK_BYTES - SMALL_RECORD_BYTES);
        buffer.extend_from_slice(&stream[SMALL_RECORD_BYTES..]);
        assert_eq!(assembler.advance(wanted), Some(vec![7; LIMIT]));
        assert!(!assembler.is_midway());
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in_however_they_are_cut(
            records in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..4), 0..6),
            large in prop::option::of(SMALL_RECORD_BYTES..3 * SMALL_RECORD_BYTES),
            piece in 1usize..70_000,
        ) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for fragments in &records {
                for (index, data) in fragments.iter().enumerate() {
                    stream.extend(fragment(data, index + 1 == fragments.len()));
                }
                expected.push(fragments.concat());
            }
            if let Some(bytes) = large {
                stream.extend(fragment(&vec![3; bytes], true));
                expected.push(vec![3; bytes]);
            }
            prop_assert_eq!(assemble(&stream, piece), Ok(expected));
        }

        #[test]
        fn random_bytes_never_panic(stream: Vec<u8>, piece in 1usize..50) {
            let _ = assemble(&stream, piece);
        }
    }
}
