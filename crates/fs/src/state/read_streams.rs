//! The pattern of the reads of one file, and what to read ahead of them.

use forebay_types::balance::taken_u32;
use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, to_usize};
use smallvec::{SmallVec, smallvec};

/// The pattern of the reads of one file. It has no clock and does no I/O.
///
/// A file may have several readers, each with its own stream. A read that begins near the end of a stream's reads
/// (clients send reads in parallel, and they arrive in any order) continues that stream; the window ahead of it grows
/// with the bytes read, up to a limit. Any other read begins a stream, in the place of one that has lost its reader.
/// So random readers pay for nothing, and end no other reader's stream.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// At least one.
    streams: SmallVec<[Stream; 1]>,
    /// Number of reads.
    reads: u64,
    /// The number of the newest stream.
    last_number: u64,
}

/// Reads in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// All bytes that were read lie between these.
    begin: u64,
    end: u64,
    /// Number of bytes that were read.
    run: u64,
    /// Blocks were asked for up to this offset.
    asked: u64,
    /// Block maps were looked up to this offset.
    mapped: u64,
    /// Identifies the stream among those of its file.
    number: u64,
    /// The number of the file's read that was the last of this stream.
    last_read: u64,
    /// Number of reads that wait for the bucket.
    waiting: u32,
}

/// The most streams of one file.
const MAX_STREAMS: usize = 4;

/// How far from the end of a stream a read may begin that continues it: at most the bytes that a client has in flight
/// at once, such as 16 reads of 1 MiB.
const NEAR: u64 = 4 * BLOCK_SIZE;

/// A stream has lost its reader when none of this many reads of its file belongs to it, and none of its reads waits:
/// its read-ahead is not wanted any more. Other readers that have everything in memory read as often in a
/// millisecond.
const LOST_AFTER: u64 = 256;

/// A sequential reader has read at least this part of the bytes between its first read and its last: one half. Reads
/// that happen to lie near one another are not a stream.
const DENSE: u64 = 2;

/// Bytes in a row that make a reader sequential.
const SEQUENTIAL: u64 = 256 << 10;

/// How far ahead to read, as a multiple of the bytes read in a row: enough that after two round trips to the bucket
/// as much is in flight as may be, and bounded by the bytes already read when the reader stops early.
const WINDOW_PER_RUN: u64 = 8;

/// A stream that has read no more than this waits for the bytes that it asks for: many small GETs at once arrive
/// sooner than a few of whole blocks, because a connection takes three round trips of 20 ms for 4 MiB.
const BEGINNING: u64 = 4 << 20;

/// How far ahead of the read-ahead the block maps are looked up, all at once: 256 block maps are some 25 KB of
/// metadata. With single lookups, the blocks that are asked for next would wait a round trip for every few of them.
const MAPPED_AHEAD: u64 = 256 * BLOCK_SIZE;

/// Bytes that are fetched with one GET up to [`BEGINNING`].
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
    /// Notes a read. Returns its stream, and the range to fetch ahead of it, if any.
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

    /// Begins a stream, if need be in the place of one that is not in a row yet or has lost its reader; of several
    /// the one whose last read is the oldest.
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

    /// Notes whether a read of this stream waits for the bucket.
    pub(crate) fn waits(&mut self, stream: u64, waits: bool) {
        let known = self.streams.iter_mut();
        for stream in known.filter(|known| known.number == stream) {
            stream.waiting = match waits {
                true => stream.waiting + 1,
                false => taken_u32("reads of a stream that wait", stream.waiting, 1),
            };
        }
    }

    /// Whether the reader for which this range was to be fetched goes on, and has not passed it by more than its
    /// reads may be late.
    pub(crate) fn still_wants(&self, range: ByteRange, stream: u64) -> bool {
        let stream = self.streams.iter().find(|known| known.number == stream);
        stream.is_some_and(|stream| range.end + NEAR > stream.end && !stream.is_lost(self.reads))
    }
}

impl Stream {
    /// The number of the stream, which identifies it after its end too.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether enough was read in a row.
    fn is_in_a_row(&self) -> bool {
        self.run >= SEQUENTIAL && self.run >= (self.end - self.begin) / DENSE
    }

    /// Whether this reader has not read for too many reads of the file.
    fn is_lost(&self, reads: u64) -> bool {
        self.waiting == 0 && reads - self.last_read > LOST_AFTER
    }

    /// How many bytes to fetch with one GET; pieces of the file of this length, and aligned to it.
    pub(crate) fn step(&self) -> u64 {
        match self.run <= BEGINNING {
            true => SMALL_STEP,
            false => BLOCK_SIZE,
        }
    }

    /// The first block whose map should be looked up, and the number of blocks; they begin where nothing was asked
    /// for yet.
    pub(crate) fn look_up(&mut self, size: u64) -> Option<(BlockIndex, usize)> {
        let from = self.asked.max(self.mapped);
        let end = size.min(self.asked.saturating_add(MAPPED_AHEAD));
        let is_enough = self.mapped >= self.asked.saturating_add(MAPPED_AHEAD / 2);
        if self.run <= BEGINNING || is_enough || from >= end {
            return None;
        }
        self.mapped = end;
        let blocks = to_usize((end - from).div_ceil(BLOCK_SIZE));
        Some((BlockIndex::of(from), blocks))
    }

    /// Notes a read of this stream. Returns the range to fetch ahead of it, if any.
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

/// Splits a range into pieces of `step` bytes, a divisor of the block size, aligned to it.
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
            "no reader reads sequentially"
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

    /// Reads of these readers in turns, each from its own start, with `anywhere` reads elsewhere in between. Returns
    /// how far ahead of each was asked.
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
        // One after the other, each of which ends; and two at once in the end.
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
        assert!(!streams.still_wants(ahead, number + 1), "of no reader");
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
