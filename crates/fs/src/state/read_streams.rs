//! How the reads of one file follow one another, and what to read ahead of them.

use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange};
use smallvec::{SmallVec, smallvec};

/// How the reads of one file follow one another. Knows no clock and does no I/O.
///
/// A file may have several readers, each with a stream of his own. A read that begins near where the ones of a stream ended
/// (clients send reads in parallel, and they arrive in any order) continues that one; the
/// window ahead of it grows with what was read, up to a limit. Any other read begins a stream, in the place of
/// one that has no reader any more. So random readers pay for nothing, and end nobody's stream.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// At least one.
    streams: SmallVec<[Stream; 1]>,
    /// Reads so far.
    reads: u64,
    /// Of the newest stream.
    last_number: u64,
}

/// Reads in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// What was read lies between these.
    begin: u64,
    end: u64,
    /// Bytes that were read.
    run: u64,
    /// Up to where blocks were asked for.
    asked: u64,
    /// Up to where it was looked up where they lie.
    mapped: u64,
    /// By which it is known from the others of its file.
    number: u64,
    /// Which of the file's reads was the last of this stream.
    last_read: u64,
    /// Reads that wait for the bucket.
    waiting: u32,
}

/// Streams of one file, at most.
const MAX_STREAMS: usize = 4;

/// How far from the end of a stream a read may begin that continues it: what a client has under way at once, at the most, such as 16
/// reads of 1 MiB.
const NEAR: u64 = 4 * BLOCK_SIZE;

/// A stream of which none of so many reads of its file was, and none of whose reads waits, has lost its reader: what was asked for
/// him is not wanted any more. Others that have everything in memory read as many in a millisecond.
const LOST_AFTER: u64 = 256;

/// A reader in a row has read at least this part of what lies between his first read and his last. Reads that happen to lie
/// near one another are no stream.
const DENSE: u64 = 2;

/// Bytes in a row that make a reader a sequential one.
const SEQUENTIAL: u64 = 256 << 10;

/// How far ahead to ask, of what was read in a row: enough that after two round trips to the bucket as much is
/// on its way as may be, and bounded by what a reader has read already when he stops early.
const WINDOW_PER_RUN: u64 = 8;

/// A stream that has not come so far yet waits for what it asks for: many small GETs at once arrive sooner than a few
/// of whole blocks, for a connection takes as long for 4 MiB as three round trips of 20 ms are.
const BEGINNING: u64 = 4 << 20;

/// How far ahead of what was asked for it is looked up where the blocks lie, all at once: 256 block maps are some 25 KB
/// of metadata. One after the other, each few of them would make those wait a round trip that are just asked for.
const MAPPED_AHEAD: u64 = 256 * BLOCK_SIZE;

/// What is fetched with one GET then.
const SMALL_STEP: u64 = 1 << 20;

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            streams: smallvec![Stream::default()],
            reads: 0,
            last_number: 0,
        }
    }
}

impl Streams {
    /// Notes a read, and gives its stream, with what should be fetched ahead of it, if anything.
    pub(crate) fn next(&mut self, read: ByteRange, limit: u64) -> (&mut Stream, Option<ByteRange>) {
        self.reads += 1;
        let away = |stream: &Stream| read.start.abs_diff(stream.end);
        let streams = self.streams.iter().enumerate();
        let near = streams.filter(|(_, stream)| away(stream) <= NEAR);
        let nearest = near.min_by_key(|(_, stream)| away(stream));
        let index = match nearest {
            Some((index, _)) => index,
            None => self.begin(),
        };
        let stream = &mut self.streams[index];
        stream.last_read = self.reads;
        let ahead = stream.go_on(read, limit);
        (stream, ahead)
    }

    /// A new stream, if need be in the place of the one that has the least claim to be one: not yet in a row, or without a reader; of
    /// several the one that was read last the longest ago.
    fn begin(&mut self) -> usize {
        self.last_number += 1;
        let new = Stream {
            number: self.last_number,
            ..Stream::default()
        };
        if self.streams.len() < MAX_STREAMS {
            self.streams.push(new);
            return self.streams.len() - 1;
        }
        let claim = |stream: &Stream| {
            let is_stream = stream.is_in_a_row() && !stream.is_lost(self.reads);
            (is_stream, stream.last_read)
        };
        let streams = self.streams.iter().enumerate();
        let least = streams.min_by_key(|(_, stream)| claim(stream));
        let index = least.map_or(0, |(index, _)| index);
        self.streams[index] = new;
        index
    }

    /// Notes that a read of this stream waits for the bucket from now on, or does no more.
    pub(crate) fn waits(&mut self, stream: u64, waits: bool) {
        let known = self.streams.iter_mut();
        for stream in known.filter(|known| known.number == stream) {
            stream.waiting = match waits {
                true => stream.waiting + 1,
                false => stream.waiting.saturating_sub(1),
            };
        }
    }

    /// Whether the reader for whom this range was to be fetched goes on, and has not passed it by more than reads of his may be late.
    pub(crate) fn still_wants(&self, range: ByteRange, stream: u64) -> bool {
        let stream = self.streams.iter().find(|known| known.number == stream);
        stream.is_some_and(|stream| range.end + NEAR > stream.end && !stream.is_lost(self.reads))
    }
}

impl Stream {
    /// The number of the stream, by which one that has ended is known.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether enough was read in a row.
    fn is_in_a_row(&self) -> bool {
        self.run >= SEQUENTIAL && self.run >= (self.end - self.begin) / DENSE
    }

    /// Whether nobody has read on, after so many reads of the file.
    fn is_lost(&self, reads: u64) -> bool {
        self.waiting == 0 && reads - self.last_read > LOST_AFTER
    }

    /// Bytes to be fetched with one GET; pieces of the file of this length, and aligned to it.
    pub(crate) fn step(&self) -> u64 {
        match self.run <= BEGINNING {
            true => SMALL_STEP,
            false => BLOCK_SIZE,
        }
    }

    /// The blocks of a file of this size of which should be looked up where they lie, and how many; they begin where
    /// nothing was asked for yet.
    pub(crate) fn look_up(&mut self, size: u64) -> Option<(BlockIndex, usize)> {
        let from = self.asked.max(self.mapped);
        let end = size.min(self.asked.saturating_add(MAPPED_AHEAD));
        let is_enough = self.mapped >= self.asked.saturating_add(MAPPED_AHEAD / 2);
        if self.run <= BEGINNING || is_enough || from >= end {
            return None;
        }
        self.mapped = end;
        let blocks = (end - from).div_ceil(BLOCK_SIZE) as usize;
        Some((BlockIndex::of(from), blocks))
    }

    /// Notes a read of this stream, and says what should be fetched ahead of it, if anything.
    fn go_on(&mut self, read: ByteRange, limit: u64) -> Option<ByteRange> {
        if self.run == 0 {
            self.begin = read.start;
        }
        self.run += read.len();
        self.begin = self.begin.min(read.start);
        self.end = self.end.max(read.end);
        if !self.is_in_a_row() || limit < BLOCK_SIZE {
            return None;
        }
        let window = (self.run * WINDOW_PER_RUN).clamp(BLOCK_SIZE, limit);
        let from = self.asked.max(self.end);
        let to = BlockIndex::of(self.end.saturating_add(window)).start();
        if to <= from {
            return None;
        }
        self.asked = to;
        Some(ByteRange::new(from, to))
    }
}

/// A range in pieces of `step` bytes, a divisor of a block's, aligned to it.
pub(crate) fn steps(range: ByteRange, step: u64) -> impl Iterator<Item = ByteRange> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let stop = end.min((at / step + 1) * step);
        let part = (at < end).then(|| ByteRange::new(at, stop));
        at = stop;
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 32 << 20;

    fn read(streams: &mut Streams, start: u64, len: u64) -> Option<ByteRange> {
        streams.next(ByteRange::at(start, len), LIMIT).1
    }

    #[test]
    fn a_sequential_reader_gets_a_window_that_grows_to_the_limit() {
        let mut streams = Streams::default();
        let mut furthest = 0;
        for i in 0..128 {
            if let Some(ahead) = read(&mut streams, i << 20, 1 << 20) {
                assert!(ahead.start >= furthest, "asked twice for {ahead:?}");
                furthest = ahead.end;
            }
            assert!(furthest <= ((i + 1) << 20) + LIMIT);
        }
        assert!(furthest >= (127 << 20) + LIMIT / 2);
    }

    #[test]
    fn a_stream_begins_with_small_steps_and_goes_on_with_blocks() {
        let mut streams = Streams::default();
        let mut gets = Vec::new();
        for i in 0..8 {
            if let (stream, Some(ahead)) = streams.next(ByteRange::at(i << 20, 1 << 20), LIMIT) {
                gets.push(steps(ahead, stream.step()).count() as u64);
                assert!(
                    steps(ahead, stream.step()).all(|range| {
                        BlockIndex::of(range.start) == BlockIndex::of(range.end - 1)
                    })
                );
            }
        }
        // Up to the last whole block in a window of eight times what was read, and at most of 32 MiB.
        assert_eq!(gets, [7, 8, 8, 12, 1]);
        let all: Vec<_> = steps(ByteRange::new(5, 10), 4).collect();
        assert_eq!(all, [ByteRange::new(5, 8), ByteRange::new(8, 10)]);
        assert_eq!(steps(ByteRange::new(5, 5), 4).count(), 0);
    }

    #[test]
    fn where_blocks_lie_is_looked_up_once_and_long_before_they_are_asked_for() {
        const SIZE: u64 = 4 << 30;
        let mut streams = Streams::default();
        let (mut mapped, mut scans) = (0, 0);
        for i in 0..SIZE >> 20 {
            read(&mut streams, i << 20, 1 << 20);
            let stream = &mut streams.streams[0];
            if stream.run <= BEGINNING {
                assert_eq!(stream.look_up(SIZE), None, "it may end soon");
                continue;
            }
            if let Some((from, blocks)) = stream.look_up(SIZE) {
                assert!(
                    scans == 0 || from.start() == mapped,
                    "none twice, none left out"
                );
                mapped = from.start() + blocks as u64 * BLOCK_SIZE;
                scans += 1;
            }
            assert!(mapped >= SIZE.min(stream.asked + MAPPED_AHEAD / 2));
        }
        // 1 GiB at first, and then half as much each time.
        assert_eq!((mapped, scans), (SIZE, 7));

        let mut small = Streams::default();
        read(&mut small, 0, 1 << 20);
        assert_eq!(
            small.streams[0].look_up(5 << 20),
            None,
            "all of it is asked for already"
        );
        assert_eq!(
            Stream::default().look_up(SIZE),
            None,
            "nobody reads in a row"
        );
    }

    #[test]
    fn reads_that_arrive_out_of_order_keep_the_stream() {
        // Pairs arrive swapped, four and sixteen backwards; and 32 reads of 64 KiB.
        for (len, shuffle) in [
            (1 << 20, 1_u64),
            (1 << 20, 3),
            (1 << 20, 15),
            (64 << 10, 31),
        ] {
            let mut streams = Streams::default();
            let mut asked = 0;
            let reads = (64 << 20) / len;
            for i in 0..reads {
                if let Some(ahead) = read(&mut streams, (i ^ shuffle) * len, len) {
                    asked += ahead.len();
                }
            }
            assert!(asked >= 48 << 20, "{asked} bytes with {shuffle}");
            assert_eq!(streams.streams.len(), 1);
        }
    }

    /// Reads of these readers in turns, each from his place on, with as many reads anywhere between two. Gives how far
    /// ahead of each was asked.
    fn in_turns(readers: &[u64], anywhere: u64, rounds: u64) -> Vec<u64> {
        let mut streams = Streams::default();
        let mut asked = vec![0; readers.len()];
        let mut random = 0;
        for round in 0..rounds {
            for (reader, asked) in readers.iter().zip(&mut asked) {
                if let Some(ahead) = read(&mut streams, reader + (round << 20), 1 << 20) {
                    assert!(
                        ahead.start > *reader && ahead.end <= reader + (round << 20) + 2 * LIMIT
                    );
                    *asked += ahead.len();
                }
            }
            for _ in 0..anywhere {
                random = (random + 7919) % 1000;
                assert_eq!(
                    read(&mut streams, (1 << 40) + random * (64 << 20), 4096),
                    None
                );
            }
        }
        asked
    }

    #[test]
    fn several_readers_of_one_file_have_a_window_each() {
        let far = 1 << 32;
        for readers in [&[0, far][..], &[far, 2 * far, 3 * far, 4 * far]] {
            for asked in in_turns(readers, 0, 64) {
                assert!(asked >= 64 << 20, "{asked} bytes");
            }
        }
    }

    #[test]
    fn reads_anywhere_end_no_stream_of_others() {
        for asked in in_turns(&[0, 1 << 32], 5, 64) {
            assert!(asked >= 64 << 20, "{asked} bytes");
        }
    }

    #[test]
    fn streams_without_a_reader_make_room_for_new_ones() {
        let mut streams = Streams::default();
        let mut asked = 0;
        // One after the other, each of which leaves; and two at once in the end.
        for reader in 0..20 {
            for i in 0..300 {
                read(&mut streams, (reader << 32) + (i << 20), 1 << 20);
            }
        }
        for i in 0..64 {
            for reader in [30_u64, 31] {
                let ahead = read(&mut streams, (reader << 32) + (i << 20), 1 << 20);
                asked += ahead.map_or(0, |ahead| ahead.len());
            }
        }
        assert!(asked >= 128 << 20, "{asked} bytes");
        assert_eq!(streams.streams.len(), MAX_STREAMS);
    }

    #[test]
    fn what_a_reader_has_passed_or_left_is_not_wanted_any_more() {
        let mut streams = Streams::default();
        let mut at = 0;
        let mut go_on = |streams: &mut Streams| {
            at += 1 << 20;
            let (stream, ahead) = streams.next(ByteRange::at(at - (1 << 20), 1 << 20), LIMIT);
            ahead.map(|ahead| (ahead, stream.number(), stream.end))
        };
        let (ahead, number, mut end) = loop {
            if let Some(asked) = go_on(&mut streams) {
                break asked;
            }
        };
        assert!(streams.still_wants(ahead, number));
        assert!(!streams.still_wants(ahead, number + 1), "nobody's");
        while end < ahead.end + NEAR {
            assert!(streams.still_wants(ahead, number), "a read may be late");
            go_on(&mut streams);
            end += 1 << 20;
        }
        assert!(!streams.still_wants(ahead, number), "the reader has it");

        let behind = ByteRange::at(end, 4096);
        let mut elsewhere = 0;
        streams.waits(number, true);
        for _ in 0..2 * LOST_AFTER {
            elsewhere += 1;
            read(&mut streams, (1 << 40) + (elsewhere << 30), 4096);
        }
        assert!(streams.still_wants(behind, number), "he waits");
        streams.waits(number, false);
        assert!(!streams.still_wants(behind, number), "he is elsewhere");
    }

    #[test]
    fn a_random_reader_asks_for_nothing() {
        // All over 64 GiB, and all over 64 MiB, where many happen to lie near one another.
        for apart in [64 << 20, 64 << 10] {
            let mut streams = Streams::default();
            for i in 0..5000u64 {
                let at = (i * 7919 % 1000) * apart;
                assert_eq!(read(&mut streams, at, 4096), None, "{apart} bytes apart");
            }
        }
    }
}
