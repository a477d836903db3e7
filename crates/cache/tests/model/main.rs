//! Random operations against a model with a flag, a value and the position of a record for every byte.
//!
//! The file is accessed through two windows, one at its start and one around the boundary of its first two blocks, so
//! that operations overlap, cross the boundaries of granules, pieces and blocks, and use every size class.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod places;
mod reference;
mod run;

use forebay_cache::{BlockVersion, Cache, FileBlocks};
use forebay_types::{BlockIndex, CheckpointId, Inode};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_flag_and_a_value_for_every_byte(
        steps in prop::collection::vec(places::step(), 1..40),
    ) {
        let mut run = run::Run::new();
        for step in steps {
            run.apply(step)?;
        }
        run.end()?;
    }
}

#[test]
fn versions_are_never_used_twice() {
    let mut file = FileBlocks::new(Inode(1), Cache::new(64 << 20));
    let mut seen: Vec<BlockVersion> = Vec::new();
    for _ in 0..3 {
        file.write(0, b"x", CheckpointId(1), None);
        seen.extend(file.version(BlockIndex(0), CheckpointId(1)));
        file.clear(CheckpointId(1));
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}
