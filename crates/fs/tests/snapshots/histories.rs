//! Random operations with snapshots among them: each snapshot stays what the model was when it was made.

use std::collections::BTreeMap;

use forebay_fs::{Dedup, Expected, FsConfig, RestoreRequest};
use proptest::prelude::*;

use super::{delete, eager, names, settled, snapshot};
use crate::common::model::{Model, Op, draw};
use crate::common::{Bucket, Life, eventually, random};
use crate::histories::try_all;
use crate::sealing::key_file;

#[derive(Clone, Debug)]
enum Event {
    Do(Op),
    Snapshot,
    /// Deletes one of the snapshots.
    Delete(u8),
    /// Restores all of one of the snapshots below a new name: later events change that, too.
    Restore(u8),
    Flush,
    /// A flush that runs beside the next operations.
    FlushBeside,
    /// The bucket takes no object from now on, until an event needs that.
    Hold,
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
        5 => Just(Event::Snapshot),
        2 => any::<u8>().prop_map(Event::Delete),
        1 => any::<u8>().prop_map(Event::Restore),
        2 => Just(Event::Flush),
        2 => Just(Event::FlushBeside),
        2 => Just(Event::Hold),
        1 => Just(Event::Crash),
        1 => Just(Event::Stop),
        1 => Just(Event::Lose),
    ]
}

fn check(life: &Life, snapshots: &BTreeMap<String, Model>) {
    assert_eq!(names(life), snapshots.keys().cloned().collect::<Vec<_>>());
    for (name, model) in snapshots {
        life.run(|volume| async move {
            let view = volume.open_snapshot(name).await;
            let view = view.unwrap_or_else(|error| panic!("{name}: {error}"));
            model.check_read_only(&*view).await;
        });
        let infos = super::all(life);
        let info = infos.iter().find(|one| one.name == *name).unwrap();
        assert_eq!(
            info.counts.unwrap().used_inodes,
            model.len() as u64,
            "{name}"
        );
    }
}

fn restore(life: &Life, snapshot: &str, to: &[u8]) {
    let request = RestoreRequest {
        snapshot: snapshot.to_owned(),
        path: b"/".to_vec(),
        to: Some([b"/", to].concat()),
        replace: false,
    };
    let restored = life.run(|volume| async move { volume.restore(request).await });
    restored.unwrap();
}

fn run(dedup: Dedup, events: &[Event], expected: &Expected) {
    let bucket = Bucket::of(expected.clone());
    let small = |config: &mut FsConfig| {
        eager(config);
        config.dedup = dedup;
        config.node_limit = 4;
        // Each truncation leaves block maps to be collected.
        config.maps_at_once = 1;
    };
    let mut config = bucket.config();
    small(&mut config);
    let mut life = bucket.start_with(config.clone());
    let mut model = Model::default();
    let (mut snapshots, mut made) = (BTreeMap::new(), 0);
    let mut free = [&b"restored 1"[..], b"restored 2", b"restored 3"].into_iter();
    // So that short histories have objects to work on.
    for op in [Op::Create(0, 0), Op::Create(0, 1), Op::Mkdir(0, 2)] {
        model.step(&life, &op);
    }
    life.flush();
    for event in events {
        if !matches!(event, Event::Do(_) | Event::Snapshot | Event::FlushBeside) {
            bucket.controls.meta_puts.open();
        }
        match event {
            Event::Do(op) => model.step(&life, op),
            Event::Snapshot => {
                made += 1;
                let name = format!("s{made:03}");
                snapshot(&life, &name);
                snapshots.insert(name, model.clone());
            }
            Event::Delete(number) => {
                life.flush();
                let number = usize::from(*number) % snapshots.len().max(1);
                if let Some(name) = snapshots.keys().nth(number).cloned() {
                    delete(&life, &name).unwrap();
                    snapshots.remove(&name);
                }
            }
            Event::Restore(number) => {
                life.flush();
                let number = usize::from(*number) % snapshots.len().max(1);
                if let Some((name, then)) = snapshots.iter().nth(number)
                    && let Some(to) = free.next()
                {
                    restore(&life, name, to);
                    model.adopt(&life, then, to);
                }
            }
            Event::Flush => life.flush(),
            Event::FlushBeside => {
                drop(life.spawn(|volume| async move { volume.flush().await }));
            }
            Event::Hold => bucket.controls.meta_puts.close(),
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
                life = bucket.start_with(crate::common::taking_over(&config));
                model.check(&life);
            }
        }
    }
    bucket.controls.meta_puts.open();
    life.flush();
    model.check(&life);
    check(&life, &snapshots);
    settled(&life, &bucket);
    check(&life, &snapshots);
    life.crash();
    let life = bucket.start_elsewhere(small);
    check(&life, &snapshots);
    for name in snapshots.keys() {
        delete(&life, name).unwrap();
    }
    eventually("nothing is held", || {
        settled(&life, &bucket);
        life.volume.status().held_bytes == 0
    });
    model.check(&life);
    life.stop();
}

#[test]
fn every_snapshot_stays_what_the_model_was() {
    try_histories(&Expected::NotSealed);
}

#[test]
fn every_snapshot_of_a_sealed_volume_stays_what_the_model_was() {
    try_histories(&Expected::Sealed(key_file(1)));
}

fn try_histories(expected: &Expected) {
    let dedup = prop_oneof![Just(Dedup::Off), Just(Dedup::Full), Just(Dedup::Fast)];
    let histories = (dedup, prop::collection::vec(event(), 10..100));
    try_all(&histories, |(dedup, events)| run(dedup, &events, expected));
}
