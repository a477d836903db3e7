//! Spans: frames of a pack that one GET fetches, with the gaps between them.

use std::ops::Range;

use forebay_meta::FrameAddress;
use forebay_types::{BLOCK_SIZE, PackId};

/// The most bytes of a pack that one GET for several frames fetches: a whole block, uncompressed, with the headers of
/// its frames.
pub const MOST_SPAN: u64 = BLOCK_SIZE + (64 << 10);
/// Gaps up to this size are fetched with the frames around them: a request costs more.
const MOST_GAP: u64 = 64 << 10;
/// By how many bytes the gaps of a reader's GET may exceed its frames.
const SPARE: u64 = 256 << 10;

/// How many bytes of gaps one GET may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// As many as its frames have, and 256 KiB: for readers, whose memory they take.
    Limited,
    /// Any number: for copying what is left of packs that are mostly dead.
    Unlimited,
}

/// Frames of a pack that one GET fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// The pack.
    pub pack: PackId,
    /// The bytes of the pack from the first frame to the end of the last one.
    pub range: Range<u64>,
    /// The frames, at least one, by their offsets.
    pub frames: Vec<T>,
    /// Bytes of the range that belong to none of the frames.
    pub gap_bytes: u64,
}

impl<T> Span<T> {
    /// The gap between the span and a frame that begins at or behind its first byte; `None` if the frame does not
    /// belong into the span.
    fn gap_before(&self, pack: PackId, range: &Range<u64>, gaps: Gaps) -> Option<u64> {
        let gap = range.start.saturating_sub(self.range.end);
        let len = self.range.end.max(range.end) - self.range.start;
        let gap_bytes = self.gap_bytes + gap;
        let is_worth_it = match gaps {
            Gaps::Limited => gap_bytes <= len - gap_bytes + SPARE,
            Gaps::Unlimited => true,
        };
        let belongs = self.pack == pack && gap <= MOST_GAP && len <= MOST_SPAN;
        (belongs && is_worth_it).then_some(gap)
    }
}

/// Groups frames into few GETs. `place` returns the pack of a frame and its range there. Each frame is in one span;
/// the spans are in the order of packs and offsets.
pub fn spans<T>(
    mut frames: Vec<T>,
    place: impl Fn(&T) -> (PackId, Range<u64>),
    gaps: Gaps,
) -> Vec<Span<T>> {
    frames.sort_by_key(|frame| {
        let (pack, range) = place(frame);
        (pack, range.start)
    });
    let mut spans: Vec<Span<T>> = Vec::new();
    for frame in frames {
        let (pack, range) = place(&frame);
        let last = spans.last_mut();
        let last = last.and_then(|span| Some((span.gap_before(pack, &range, gaps)?, span)));
        match last {
            Some((gap, span)) => {
                span.range.end = span.range.end.max(range.end);
                span.gap_bytes += gap;
                span.frames.push(frame);
            }
            None => spans.push(Span {
                pack,
                range,
                frames: vec![frame],
                gap_bytes: 0,
            }),
        }
    }
    spans
}

/// The most bytes of gaps that one GET of a reader fetches, if it wants these frames, or those of them that no other
/// reader fetches; then the bytes of the others are not included.
pub fn most_gap_bytes<'a>(frames: impl Iterator<Item = &'a FrameAddress>) -> u64 {
    let mut places: Vec<(PackId, u64, u64)> = frames
        .map(|frame| {
            let (start, len) = (u64::from(frame.offset), u64::from(frame.stored_len));
            (frame.pack, start, start + len)
        })
        .collect();
    places.sort_unstable();
    let frame_bytes: u64 = places.iter().map(|(_, start, end)| end - start).sum();
    let pairs = places.iter().zip(places.iter().skip(1));
    let gaps = pairs.filter_map(|((pack, _, end), (next_pack, next, _))| {
        let gap = next.saturating_sub(*end);
        (pack == next_pack && gap <= MOST_GAP).then_some(gap)
    });
    let gaps: u64 = gaps.sum();
    gaps.min(frame_bytes + SPARE).min(MOST_SPAN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    type Place = (u64, Range<u64>);

    fn spans_of(frames: Vec<Place>, gaps: Gaps) -> Vec<Span<Place>> {
        let place = |(pack, range): &Place| (PackId(*pack), range.clone());
        spans(frames, place, gaps)
    }

    /// Pack, range and number of frames of each span.
    fn shown(spans: &[Span<Place>]) -> Vec<(u64, Range<u64>, usize)> {
        let spans = spans.iter();
        spans
            .map(|span| (span.pack.0, span.range.clone(), span.frames.len()))
            .collect()
    }

    #[test]
    fn frames_that_lie_near_one_another_come_with_one_get() {
        let at = |pack, start: u64| (pack, start..start + 1000);
        let near = 1000 + MOST_GAP;
        let far = near + 1000 + MOST_GAP + 1;
        let frames = vec![at(2, 0), at(1, far), at(1, near), at(1, 0), at(1, 0)];
        for gaps in [Gaps::Limited, Gaps::Unlimited] {
            let spans = spans_of(frames.clone(), gaps);
            let first = (1, 0..near + 1000, 3);
            let others = [(1, far..far + 1000, 1), (2, 0..1000, 1)];
            let [second, third] = others;
            assert_eq!(shown(&spans), [first, second, third]);
            assert_eq!(spans[0].gap_bytes, MOST_GAP);
        }
    }

    #[test]
    fn one_get_brings_no_more_than_memory_was_taken_for() {
        let frames: Vec<Place> = (0..8).map(|at| (1, at * MIB..(at + 1) * MIB)).collect();
        for gaps in [Gaps::Limited, Gaps::Unlimited] {
            let spans = spans_of(frames.clone(), gaps);
            assert_eq!(
                shown(&spans),
                [(1, 0..4 * MIB, 4), (1, 4 * MIB..8 * MIB, 4)]
            );
        }
    }

    /// What is left of a pack after most of it was written again.
    #[test]
    fn readers_do_not_fetch_many_times_what_they_want() {
        let frames: Vec<Place> = (0..60)
            .map(|at| (1, at * 64 * KIB..at * 64 * KIB + 4 * KIB))
            .collect();
        let copied = spans_of(frames.clone(), Gaps::Unlimited);
        assert_eq!(copied.len(), 1);
        let read = spans_of(frames, Gaps::Limited);
        // Four gaps of 60 KiB are within 256 KiB and five frames, a fifth one is not.
        assert_eq!(read.len(), 12);
        assert!(read.iter().all(|span| span.gap_bytes == 240 * KIB));
    }

    #[test]
    fn half_of_a_pack_comes_with_one_get() {
        // Every second frame was written again: the gaps are as large as the frames.
        let frames = (0..500).map(|at| (1, at * 8 * KIB..at * 8 * KIB + 4 * KIB));
        let spans = spans_of(frames.collect(), Gaps::Limited);
        assert_eq!(shown(&spans), [(1, 0..499 * 8 * KIB + 4 * KIB, 500)]);
    }

    #[test]
    fn frames_over_one_another_are_no_gap() {
        let frames = vec![(1, 0..1000), (1, 100..200), (1, 900..1500), (1, 1600..1700)];
        let spans = spans_of(frames, Gaps::Limited);
        assert_eq!(shown(&spans), [(1, 0..1700, 4)]);
        assert_eq!(spans[0].gap_bytes, 100);
    }

    fn address((pack, range): &Place) -> FrameAddress {
        FrameAddress {
            pack: PackId(*pack),
            offset: range.start as u32,
            stored_len: (range.end - range.start) as u32,
            raw_len: 1,
            raw_start: 0,
            crc32: 0,
            origin: None,
        }
    }

    /// Frames of up to three packs, none over another, in any order, each with whether it is left out.
    fn packs() -> impl Strategy<Value = Vec<(Place, bool)>> {
        let gap = prop_oneof![Just(0), 1..10 * KIB, 1..80 * KIB];
        let small = (gap.clone(), 1..5 * KIB, any::<bool>());
        let large = (gap, 1..300 * KIB, any::<bool>());
        let pack = prop_oneof![
            prop::collection::vec(small.clone(), 0..120),
            prop::collection::vec(prop_oneof![small, large], 0..120),
        ];
        let packs = prop::collection::vec(pack, 1..4);
        packs.prop_flat_map(|packs| {
            let mut all = Vec::new();
            for (pack, frames) in packs.into_iter().enumerate() {
                let mut at = 0;
                for (gap, len, left_out) in frames {
                    let start = at + gap;
                    at = start + len;
                    all.push(((pack as u64, start..at), left_out));
                }
            }
            Just(all).prop_shuffle()
        })
    }

    fn bytes<'a>(places: impl IntoIterator<Item = &'a Place>) -> u64 {
        let lengths = places.into_iter().map(|(_, range)| range.end - range.start);
        lengths.sum()
    }

    proptest! {
        // The same cases every time.
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(256) })]

        #[test]
        fn each_frame_is_in_one_span_and_spans_are_within_their_bounds(packs in packs()) {
            let frames: Vec<Place> = packs.iter().map(|(place, _)| place.clone()).collect();
            let mut sorted = frames.clone();
            sorted.sort_by_key(|(pack, range)| (*pack, range.start));
            for gaps in [Gaps::Limited, Gaps::Unlimited] {
                let spans = spans_of(frames.clone(), gaps);
                // Sorted frames cut into pieces: each is in exactly one.
                let within: Vec<Place> =
                    spans.iter().flat_map(|span| span.frames.clone()).collect();
                prop_assert_eq!(&within, &sorted);
                for span in &spans {
                    prop_assert!(span.frames.iter().all(|(pack, _)| PackId(*pack) == span.pack));
                    let (first, last) = (&span.frames[0].1, &span.frames[span.frames.len() - 1].1);
                    prop_assert_eq!(&span.range, &(first.start..last.end));
                    let len = span.range.end - span.range.start;
                    let wanted = bytes(&span.frames);
                    prop_assert_eq!(span.gap_bytes, len - wanted);
                    prop_assert!(len <= MOST_SPAN);
                    prop_assert!(gaps == Gaps::Unlimited || span.gap_bytes <= wanted + SPARE);
                    let pairs = span.frames.iter().zip(&span.frames[1..]);
                    for ((_, one), (_, next)) in pairs {
                        prop_assert!(next.start - one.end <= MOST_GAP);
                    }
                }
                // No two neighbours could be one.
                for (one, next) in spans.iter().zip(spans.iter().skip(1)) {
                    let (pack, range) = &next.frames[0];
                    prop_assert_eq!(one.gap_before(PackId(*pack), range, gaps), None);
                }
            }
        }

        #[test]
        fn memory_for_the_gaps_is_enough_whichever_frames_are_left_out(packs in packs()) {
            let addresses: Vec<FrameAddress> =
                packs.iter().map(|(place, _)| address(place)).collect();
            let most = most_gap_bytes(addresses.iter());
            let out = packs.iter().filter(|(_, left_out)| *left_out);
            let out = bytes(out.map(|(place, _)| place));
            let wanted = packs.iter().filter(|(_, left_out)| !left_out);
            let wanted = wanted.map(|(place, _)| place.clone()).collect();
            for span in spans_of(wanted, Gaps::Limited) {
                prop_assert!(span.gap_bytes <= most + out);
            }
        }
    }
}
