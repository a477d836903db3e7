//! Random operations on a volume and on a reference model, with crashes, moves to other machines and a cache that is
//! too small. A failing history is shrunk and printed.

use crate::common::model::{Model, Op, draw};
use crate::common::*;
use crate::histories::try_all;
use crate::sealing::key_file;
use forebay_fs::{Dedup, Expected};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Do(Op),
    Flush,
    /// A flush that runs beside the next operations.
    FlushBeside,
    /// All clean blocks are evicted.
    Evict,
    /// All dirty bytes leave memory that the log has.
    Spill,
    /// kill -9, and a start with the same local folder.
    Crash,
    /// An orderly stop and a start.
    Stop,
    /// A flush, the loss of the machine, and a start elsewhere.
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => draw::op().prop_map(Event::Do),
        2 => Just(Event::Flush),
        2 => Just(Event::FlushBeside),
        1 => Just(Event::Evict),
        2 => Just(Event::Spill),
        1 => Just(Event::Crash),
        1 => Just(Event::Stop),
        1 => Just(Event::Lose),
    ]
}

fn run(dedup: Dedup, events: &[Event], expected: &Expected) {
    let bucket = Bucket::of(expected.clone());
    let small = |config: &mut forebay_fs::FsConfig| {
        config.dedup = dedup;
        config.memory_limit = 16 << 20;
        config.node_limit = 4;
        // Each truncation leaves block maps to be collected.
        config.maps_at_once = 1;
    };
    let mut config = bucket.config();
    small(&mut config);
    let mut life = bucket.start_with(config.clone());
    let mut model = Model::default();
    // So that short histories have objects to work on.
    for op in [Op::Create(0, 0), Op::Create(0, 1), Op::Mkdir(0, 2)] {
        model.step(&life, &op);
    }
    for event in events {
        match event {
            Event::Do(op) => model.step(&life, op),
            Event::Flush => life.flush(),
            Event::FlushBeside => {
                drop(life.spawn(|volume| async move { volume.flush().await }));
            }
            Event::Evict => evict_clean(&life),
            Event::Spill => life.spill(),
            Event::Crash => {
                life.crash();
                life = bucket.start_with(config.clone());
                model.check(&life);
            }
            Event::Stop => {
                life.stop();
                life = bucket.start_with(config.clone());
            }
            Event::Lose => {
                life.flush();
                life.crash();
                config.data_dir = bucket.folder.path().join(format!("other-{:x}", random()));
                life = bucket.start_with(taking_over(&config));
                model.check(&life);
            }
        }
    }
    model.check(&life);
    life.flush();
    model.check(&life);
    life.crash();
    model.check(&bucket.start_elsewhere(small));
}

/// Writes and removes a file as large as the cache.
fn evict_clean(life: &Life) {
    let inode = life.create(b"evictor");
    for i in 0..16 {
        life.write(
            inode,
            i << 20,
            &[7; 1 << 20],
            forebay_vfs::Stability::Unstable,
        );
    }
    life.remove(b"evictor");
    life.flush();
}

#[test]
fn a_volume_does_what_the_model_does() {
    try_histories(&Expected::NotSealed);
}

#[test]
fn a_sealed_volume_does_what_the_model_does() {
    try_histories(&Expected::Sealed(key_file(1)));
}

fn try_histories(expected: &Expected) {
    let dedup = prop_oneof![Just(Dedup::Off), Just(Dedup::Full), Just(Dedup::Fast)];
    let histories = (dedup, prop::collection::vec(event(), 10..120));
    try_all(&histories, |(dedup, events)| run(dedup, &events, expected));
}
