//! Any sequence of calls, compared with the frames that were put: the cache may drop frames, but never returns other
//! bytes.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Disk, frame, key, salts};

#[derive(Clone, Debug)]
enum Step {
    /// Frames with numbers from the first one on: how many, and of how many bytes.
    Put(u32, u32, usize),
    Get(u32),
    Forget(u32),
    /// The process ends, cleanly or not, and another one opens the cache.
    Restart(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..400_u32, 1..30_u32, 0..300_000_usize)
            .prop_map(|(first, count, len)| Step::Put(first, count, len)),
        6 => (0..430_u32).prop_map(Step::Get),
        1 => (0..430_u32).prop_map(Step::Forget),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_cache_gives_what_was_put_or_nothing(steps in prop::collection::vec(step(), 1..200)) {
        let disk = Disk::new();
        let mut cache = disk.open();
        let mut model: HashMap<u32, Bytes> = HashMap::new();
        for (turn, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(first, count, len) => {
                    let numbers = first..first + count;
                    let frames = numbers.clone().map(|n| (key(n), frame(n ^ turn as u32, len)));
                    // Cached frames stay, and missing ones are cached afterwards: a batch is smaller than a region.
                    let missing: Vec<u32> = numbers.filter(|n| !cache.has(key(*n))).collect();
                    cache.put(frames, salts()).unwrap();
                    for n in missing {
                        prop_assert!(cache.has(key(n)));
                        model.insert(n, frame(n ^ turn as u32, len));
                    }
                }
                Step::Get(n) => {
                    let found = cache.get(key(n)).unwrap();
                    prop_assert_eq!(found.is_some(), cache.has(key(n)));
                    if let Some(found) = found {
                        prop_assert_eq!(Some(&found), model.get(&n));
                    }
                }
                Step::Forget(n) => {
                    cache.forget(key(n));
                    prop_assert!(!cache.has(key(n)));
                }
                Step::Restart(clean) => {
                    let had: Vec<u32> = (0..430).filter(|n| cache.has(key(*n))).collect();
                    if clean {
                        cache.close().unwrap();
                    }
                    drop(cache);
                    cache = disk.open();
                    for n in had {
                        prop_assert!(cache.has(key(n)), "frame {}", n);
                    }
                }
            }
        }
    }
}
