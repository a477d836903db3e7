//! Reading ahead of sequential readers.

use std::sync::Arc;

use forebay_types::{BLOCK_SIZE, BlockIndex, ByteRange};

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
    /// How many streams there were before.
    number: u64,
}

/// Bytes in a row that make a reader a sequential one.
const SEQUENTIAL: u64 = 256 << 10;

/// How far ahead to ask, of what was read in a row: enough that after two round trips to the bucket as much is
/// on its way as may be, and bounded by what a reader has read already when he stops early.
const WINDOW_PER_RUN: u64 = 8;

impl Stream {
    /// The number of the stream, by which one that has ended is known.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the reader for whom this range was to be fetched has not come to its end, and goes on.
    pub(crate) fn still_wants(&self, range: ByteRange, stream: u64) -> bool {
        self.number == stream && range.end > self.end
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

impl Core {
    /// Fetches a range of a file into the cache in the background, in its order, for a reader who is so far in the
    /// file's stream. What is not his turn yet when he comes there he fetches himself.
    pub(crate) fn prefetch(self: &Arc<Self>, node: &Arc<Node>, range: ByteRange, stream: u64) {
        for (block, within) in BlockIndex::split(range) {
            let Some(place) = self.packs.prefetch_place() else {
                return;
            };
            let (core, node) = (self.clone(), node.clone());
            let range = ByteRange::at(block.start() + within.start, within.len());
            tokio::spawn(async move {
                // It waits here: the semaphore is fair, so blocks come in the order in which they were asked for.
                let turn = core.packs.prefetch_turn().await;
                drop(place);
                core.prefetch_range(&node, range, stream).await;
                drop(turn);
            });
        }
    }

    async fn prefetch_range(&self, node: &Arc<Node>, range: ByteRange, stream: u64) {
        let plan = {
            let Ok(state) = node.lock_live() else { return };
            let wanted = state.reads.still_wants(range, stream);
            if !wanted || !state.is_in_bucket() || state.blocks.is_covered(range) {
                return;
            }
            FetchPlan::new(&state, &[range])
        };
        // A failure here is the reader's to report, when it comes that far.
        let _ = self.fetch_missing(node, &[range], &plan, None).await;
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
