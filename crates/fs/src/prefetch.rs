//! Reading ahead of sequential readers.

use std::sync::Arc;

use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange, Inode};

use crate::core::Core;
use crate::node::Node;
use crate::read::FetchPlan;

/// How the reads of one file follow one another. Knows no clock and does no I/O.
///
/// A read that begins where the ones before ended, or at most one block away from there (clients
/// send reads in parallel, and they arrive in any order), continues the stream; the window ahead of it
/// grows with what was read, up to a limit. Any other read ends the stream, so random readers pay for
/// nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// End of the bytes that were read in a row.
    end: u64,
    /// Bytes that were read in a row.
    run: u64,
    /// Up to where blocks were asked for.
    asked: u64,
    /// Up to where it was looked up where they lie.
    mapped: u64,
    /// How many streams there were before.
    number: u64,
}

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

/// Block maps that are looked up with one scan.
const MAPS_AT_ONCE: usize = 128;

/// Extents of block maps after which no more are looked up ahead: those of a file that was written in small pieces would
/// push everything else out of the memory for metadata.
const EXTENTS_AHEAD: usize = 8192;

/// What is fetched with one GET then.
const SMALL_STEP: u64 = 1 << 20;

impl Stream {
    /// The number of the stream, by which one that has ended is known.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the reader for whom this range was to be fetched has not come to its end, and goes on.
    pub(crate) fn still_wants(&self, range: ByteRange, stream: u64) -> bool {
        self.number == stream && range.end > self.end
    }

    /// Bytes to be fetched with one GET; pieces of the file of this length, and aligned to it.
    fn step(&self) -> u64 {
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

    /// Notes a read and says what should be fetched ahead of it, if anything.
    pub(crate) fn next(&mut self, read: ByteRange, limit: u64) -> Option<ByteRange> {
        let near = self.end.saturating_sub(BLOCK_SIZE)..=self.end.saturating_add(BLOCK_SIZE);
        if !near.contains(&read.start) {
            *self = Stream {
                end: read.end,
                run: read.len(),
                number: self.number + 1,
                ..Stream::default()
            };
            return None;
        }
        self.run += read.len();
        self.end = self.end.max(read.end);
        if self.run < SEQUENTIAL || limit < BLOCK_SIZE {
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
fn steps(range: ByteRange, step: u64) -> impl Iterator<Item = ByteRange> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let stop = end.min((at / step + 1) * step);
        let part = (at < end).then(|| ByteRange::new(at, stop));
        at = stop;
        part
    })
}

impl Core {
    /// Fetches a range of a file into the cache in the background, in its order, for a reader who is so far in the
    /// file's stream. What is not his turn yet when he comes there he fetches himself.
    pub(crate) fn prefetch(self: &Arc<Self>, node: &Arc<Node>, range: ByteRange, stream: &Stream) {
        let (number, step) = (stream.number(), stream.step());
        for range in steps(range, step) {
            let Some(place) = self.packs.prefetch_place() else {
                return;
            };
            let (core, node) = (self.clone(), node.clone());
            tokio::spawn(async move {
                // It waits here: the semaphore is fair, so blocks come in the order in which they were asked for.
                let turn = core.packs.prefetch_turn().await;
                drop(place);
                core.prefetch_range(&node, range, number).await;
                drop(turn);
            });
        }
    }

    /// Has the metadata of these blocks at hand when they are asked for, unless enough others are at that.
    pub(crate) fn look_up_ahead(self: &Arc<Self>, inode: Inode, from: BlockIndex, blocks: usize) {
        let Some(place) = self.packs.look_up_place() else {
            return;
        };
        let core = self.clone();
        tokio::spawn(async move {
            let (mut from, end) = (from, from.0 + blocks as u64);
            let mut extents = 0;
            while from.0 < end && extents < EXTENTS_AHEAD {
                let count = MAPS_AT_ONCE.min((end - from.0) as usize);
                // A failure here is the reader's to report, when it comes that far.
                let maps = core.catalog.block_maps(inode, from, count).await;
                let Ok(maps) = maps else { break };
                extents += maps
                    .iter()
                    .map(|(_, map)| map.extents().len())
                    .sum::<usize>();
                match maps.last() {
                    Some((last, _)) if maps.len() == count => from = BlockIndex(last.0 + 1),
                    _ => break,
                }
            }
            drop(place);
        });
    }

    async fn prefetch_range(&self, node: &Arc<Node>, range: ByteRange, stream: u64) {
        let (plan, missing) = {
            let Ok(state) = node.lock_live() else { return };
            let wanted = state.reads.still_wants(range, stream);
            let mut missing = Vec::new();
            state.blocks.uncovered(range, &mut missing);
            // All from the first to the last: that is one GET.
            let (Some(first), Some(last)) = (missing.first(), missing.last()) else {
                return;
            };
            if !wanted || !state.is_in_bucket() {
                return;
            }
            let missing = [ByteRange::new(first.start, last.end)];
            (FetchPlan::new(&state, &missing), missing)
        };
        // A failure here is the reader's to report, when it comes that far.
        let _ = self.fetch_missing(node, &missing, &plan, None).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 32 << 20;

    fn read(stream: &mut Stream, start: u64, len: u64) -> Option<ByteRange> {
        stream.next(ByteRange::at(start, len), LIMIT)
    }

    #[test]
    fn a_sequential_reader_gets_a_window_that_grows_to_the_limit() {
        let mut stream = Stream::default();
        let mut furthest = 0;
        for i in 0..128 {
            if let Some(ahead) = read(&mut stream, i << 20, 1 << 20) {
                assert!(ahead.start >= furthest, "asked twice for {ahead:?}");
                furthest = ahead.end;
            }
            assert!(furthest <= ((i + 1) << 20) + LIMIT);
        }
        assert!(furthest >= (127 << 20) + LIMIT / 2);
    }

    #[test]
    fn a_stream_begins_with_small_steps_and_goes_on_with_blocks() {
        let mut stream = Stream::default();
        let mut gets = Vec::new();
        for i in 0..8 {
            if let Some(ahead) = read(&mut stream, i << 20, 1 << 20) {
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
        let mut stream = Stream::default();
        let (mut mapped, mut scans) = (0, 0);
        for i in 0..SIZE >> 20 {
            read(&mut stream, i << 20, 1 << 20);
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

        let mut small = Stream::default();
        read(&mut small, 0, 1 << 20);
        assert_eq!(
            small.look_up(5 << 20),
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
        let mut stream = Stream::default();
        let mut asked = 0;
        for i in 0..64u64 {
            // Pairs arrive swapped.
            if let Some(ahead) = read(&mut stream, (i ^ 1) << 20, 1 << 20) {
                asked += ahead.len();
            }
        }
        assert!(asked >= 48 << 20);
    }

    #[test]
    fn what_a_reader_has_passed_or_left_is_not_wanted_any_more() {
        let mut stream = Stream::default();
        let ahead = loop {
            let end = stream.end;
            if let Some(ahead) = read(&mut stream, end, 1 << 20) {
                break ahead;
            }
        };
        let number = stream.number();
        assert!(stream.still_wants(ahead, number));
        while stream.end < ahead.end {
            let end = stream.end;
            read(&mut stream, end, 1 << 20);
        }
        assert!(!stream.still_wants(ahead, number), "the reader has it");
        read(&mut stream, 1 << 40, 4096);
        let behind = ByteRange::at(1 << 41, 4096);
        assert!(!stream.still_wants(behind, number), "he is elsewhere");
        assert!(stream.still_wants(behind, stream.number()));
    }

    #[test]
    fn a_random_reader_asks_for_nothing() {
        let mut stream = Stream::default();
        for i in 0..1000u64 {
            assert_eq!(
                read(&mut stream, (i * 7919 % 1000) * (64 << 20) + 4096, 4096),
                None
            );
        }
    }
}
