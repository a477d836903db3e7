//! Which runs are made of the frames that a reader wants.

use forebay_types::{BLOCK_SIZE, BlockIndex, Inode};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const KIB: u64 = 1 << 10;
const BLOCK: BlockKey = BlockKey {
    inode: Inode(9),
    block: BlockIndex(0),
};

fn frame(pack: u64, offset: u64, len: u64) -> Stored {
    let reference = FrameRef {
        pack: PackId(pack),
        offset: offset as u32,
        stored_len: len as u32,
        start: 0,
        raw_len: len as u32,
        crc32: 0,
    };
    Stored {
        reference,
        block: BLOCK,
    }
}

/// The runs of a table, each once, by pack and offset.
fn runs(fetching: &Fetching) -> Vec<Arc<Run>> {
    let mut runs: Vec<Arc<Run>> = Vec::new();
    for run in fetching.values() {
        if !runs.iter().any(|own| Arc::ptr_eq(own, run)) {
            runs.push(Arc::clone(run));
        }
    }
    runs.sort_by_key(|run| run.frames[0].key());
    runs
}

/// Packs, offsets and numbers of frames.
fn shown(fetching: &Fetching) -> Vec<(u64, u32, usize)> {
    let runs = runs(fetching);
    let shown = runs.iter().map(|run| {
        let (pack, offset) = run.frames[0].key();
        (pack.0, offset, run.frames.len())
    });
    shown.collect()
}

/// A block of which every page was written again in one of four checkpoints.
#[test]
fn a_block_of_several_checkpoints_is_a_run_in_each_of_their_packs() {
    let page = 4 * KIB + 128;
    let mut ends = [0; 4];
    let frames: Vec<Stored> = (0..1024_u64)
        .map(|at| {
            let pack = at * 7 % 4;
            let end = &mut ends[pack as usize];
            let offset = std::mem::replace(end, *end + page);
            frame(pack, offset, page)
        })
        .collect();
    let mut fetching = Fetching::new();
    ask(&frames, &mut fetching);
    assert_eq!(shown(&fetching), [0, 1, 2, 3].map(|pack| (pack, 0, 256)));
}

#[test]
fn a_frame_that_its_table_names_otherwise_is_in_no_run() {
    let mut fetching = Fetching::new();
    ask(&[frame(1, 0, 100), frame(1, 100, 100)], &mut fetching);
    let run = &fetching[&(PackId(1), 100)];
    assert_eq!(run.index_of(&frame(1, 100, 100)), Some(1));
    assert_eq!(run.index_of(&frame(1, 100, 99)), None);
    assert_eq!(run.index_of(&frame(1, 50, 100)), None);
}

/// Frames of up to three packs in any order, some of them twice, and how many of them are under way before.
fn wanted() -> impl Strategy<Value = (Vec<Stored>, usize)> {
    let gap = prop_oneof![Just(0), 1..10 * KIB, 1..80 * KIB];
    let small = (gap.clone(), 1..5 * KIB, 1..3_usize);
    let large = (gap, 1..300 * KIB, 1..3_usize);
    let pack = prop_oneof![
        prop::collection::vec(small.clone(), 0..80),
        prop::collection::vec(prop_oneof![small, large], 0..80),
    ];
    let packs = prop::collection::vec(pack, 1..4);
    let frames = packs.prop_flat_map(|packs| {
        let mut all = Vec::new();
        for (pack, frames) in packs.into_iter().enumerate() {
            let mut at = 0;
            for (gap, len, times) in frames {
                let frame = frame(pack as u64, at + gap, len);
                all.extend(std::iter::repeat_n(frame, times));
                at += gap + len;
            }
        }
        Just(all).prop_shuffle()
    });
    frames.prop_flat_map(|frames| {
        let most = frames.len() / 3;
        (Just(frames), 0..=most)
    })
}

proptest! {
    // The same cases every time.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2), ..ProptestConfig::with_cases(256) })]

    #[test]
    fn each_frame_is_in_one_run_and_runs_are_within_their_bounds((frames, under_way) in wanted()) {
        let mut fetching = Fetching::new();
        ask(&frames[..under_way], &mut fetching);
        let before = fetching.clone();
        ask(&frames, &mut fetching);
        let distinct: HashSet<_> = frames.iter().map(Stored::key).collect();
        prop_assert_eq!(&fetching.keys().copied().collect::<HashSet<_>>(), &distinct);
        for frame in &frames {
            let run = &fetching[&frame.key()];
            let index = run.index_of(frame);
            prop_assert_eq!(index.map(|index| run.frames[index]), Some(*frame));
        }
        // What was under way is left as it was.
        for (key, run) in &before {
            prop_assert!(Arc::ptr_eq(run, &fetching[key]));
        }
        let runs = runs(&fetching);
        let in_runs: usize = runs.iter().map(|run| run.frames.len()).sum();
        prop_assert_eq!(in_runs, distinct.len());
        for run in &runs {
            let packs: HashSet<_> = run.frames.iter().map(|frame| frame.reference.pack).collect();
            prop_assert_eq!(packs.len(), 1);
            let ranges: Vec<_> = run.frames.iter().map(|frame| frame.place().1).collect();
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let gaps: Vec<u64> = ranges
                .windows(2)
                .map(|pair| pair[1].start - pair[0].end)
                .collect();
            let gap_bytes: u64 = gaps.iter().sum();
            prop_assert!(gaps.iter().all(|gap| *gap <= 64 * KIB));
            prop_assert!(gap_bytes <= bytes + 256 * KIB);
            prop_assert!(bytes + gap_bytes <= BLOCK_SIZE + 64 * KIB);
        }
    }
}
