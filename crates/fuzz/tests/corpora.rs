//! Runs every target with the corpus of the repository and a bounded number of mutations of it.
//!
//! Each run has other mutations. The seed is printed when one fails; `FUZZ_SEED=<seed>` repeats the run.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_fuzz::{TARGETS, corpus, find, harness};

/// Number of mutations of each target, and the time after which it stops: slow machines try fewer.
const MUTATIONS: usize = 2000;
const TIME: Duration = Duration::from_millis(1500);

fn seed() -> u64 {
    if let Ok(text) = std::env::var("FUZZ_SEED") {
        return text.parse().expect("FUZZ_SEED is a number");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock past 1970").as_nanos() as u64
}

/// Replays a target's corpus, then mutates it.
fn holds(name: &str) {
    let target = find(name).expect("a target");
    let inputs = corpus::load(target).expect("its corpus");
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    for (file, input) in &inputs {
        if let Err(failure) = harness::attempt(target, input) {
            panic!("{name}, {file}: {}\nat {}", failure.message, failure.place);
        }
    }
    let inputs: Vec<_> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    let (seed, began) = (seed(), Instant::now());
    for round in 0..MUTATIONS as u64 / 100 {
        if began.elapsed() > TIME {
            break;
        }
        let round_seed = seed.wrapping_add(round);
        if let Err(failure) = harness::try_mutations(target, &inputs, round_seed, 100) {
            panic!(
                "{name}: {}\nat {}\ninput: {:02x?}\nagain: FUZZ_SEED={round_seed} cargo test -p forebay-fuzz {name}",
                failure.message, failure.place, failure.input,
            );
        }
    }
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(#[test] fn $name() { holds(stringify!($name)) })+

        #[test]
        fn every_target_is_here() {
            let here = [$(stringify!($name)),+];
            let there: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(here[..], there);
        }
    };
}

targets! {
    record_marking rpc nfs_calls control log_recovery sealed_log log_payloads local_state disk_cache_region pack_frame
    pack_index key_ring metadata metadata_objects volume_descriptor config_file settings
}

#[test]
fn the_seeds_in_the_repository_are_what_the_encoders_make() {
    for target in TARGETS {
        let there: Vec<_> = corpus::load(target)
            .expect("its corpus")
            .into_iter()
            .filter(|(name, _)| name.starts_with("seed-"))
            .collect();
        let mut made: Vec<_> = (target.seeds)()
            .into_iter()
            .map(|(name, bytes)| (corpus::seed_name(name), bytes))
            .collect();
        made.sort();
        assert!(
            there == made,
            "{}: run `cargo run -p forebay-fuzz -- seeds`",
            target.name
        );
    }
}

#[test]
fn the_corpora_stay_small() {
    let bytes: usize = TARGETS
        .iter()
        .flat_map(|target| corpus::load(target).expect("its corpus"))
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert!(bytes < 500 << 10, "{bytes} bytes");
}
