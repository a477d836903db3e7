//! Whatever is done and refused, the counts are those of a walk.

use proptest::prelude::*;

use super::*;
use crate::histories::try_all;

#[derive(Clone, Debug)]
enum Event {
    Write(u8, u64, usize),
    Cut(u8, u64),
    Create(u8, u8),
    Remove(u8, u8),
    Move(u8, u8, u8),
    Set(u8, u64),
    Unset(u8),
    Flush,
    Evict,
    Crash,
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    let (directory, name) = (0u8..4, 0u8..4);
    let place = prop_oneof![0u64..20_000, (1u64 << 22)..(1 << 22) + 20_000];
    prop_oneof![
        12 => (0u8..16, place.clone(), 1usize..30_000).prop_map(|(f, o, l)| Event::Write(f, o, l)),
        4 => (0u8..16, place).prop_map(|(f, size)| Event::Cut(f, size)),
        8 => (directory.clone(), name.clone()).prop_map(|(d, n)| Event::Create(d, n)),
        3 => (directory.clone(), name.clone()).prop_map(|(d, n)| Event::Remove(d, n)),
        3 => (directory.clone(), directory.clone(), name).prop_map(|(d, e, n)| Event::Move(d, e, n)),
        3 => (directory.clone(), 0u64..100_000).prop_map(|(d, limit)| Event::Set(d, limit)),
        1 => directory.prop_map(Event::Unset),
        3 => Just(Event::Flush),
        2 => Just(Event::Evict),
        2 => Just(Event::Crash),
        1 => Just(Event::Lose),
    ]
}

const DIRECTORIES: [&str; 4] = ["/a", "/a/b", "/c", "/c/d"];

/// Refusals are part of the game; whatever is done or refused, the counts are those of a walk.
fn play(events: &[Event]) {
    let bucket = Bucket::new();
    let mut config = bucket.config();
    config.memory_limit = 16 << 20;
    config.node_limit = 4;
    let mut life = bucket.start_with(config.clone());
    let a = life.mkdir(Inode::ROOT, b"a");
    let c = life.mkdir(Inode::ROOT, b"c");
    let directories = [a, life.mkdir(a, b"b"), c, life.mkdir(c, b"d")];
    let file = |life: &Life, number: u8| {
        let directory = directories[usize::from(number / 4)];
        let found = life.try_lookup(directory, &[b'0' + number % 4]);
        found.map(|found| found.inode)
    };
    for event in events {
        match event {
            Event::Write(number, at, len) => {
                if let Ok(inode) = file(&life, *number) {
                    let _ = life.try_write(inode, *at, &pattern(*at, *len));
                }
            }
            Event::Cut(number, size) => {
                if let Ok(inode) = file(&life, *number) {
                    life.truncate(inode, *size);
                }
            }
            Event::Create(directory, name) => {
                let directory = directories[usize::from(*directory)];
                if life.try_lookup(directory, &[b'0' + name]).is_err() {
                    life.create_in(directory, &[b'0' + name]);
                }
            }
            Event::Remove(directory, name) => {
                let _ = life.try_remove(directories[usize::from(*directory)], &[b'0' + name]);
            }
            Event::Move(from, to, name) => {
                let [from, to] = [from, to].map(|at| directories[usize::from(*at)]);
                let _ = life.rename((from, &[b'0' + name]), (to, &[b'0' + name]));
            }
            Event::Set(directory, limit) => {
                set(
                    &life,
                    DIRECTORIES[usize::from(*directory)],
                    Some(*limit),
                    None,
                );
            }
            Event::Unset(directory) => {
                let path = DIRECTORIES[usize::from(*directory)].as_bytes().to_vec();
                let _ = life.run(|volume| async move { volume.remove_quota(&path).await });
            }
            Event::Flush => life.flush(),
            Event::Evict => life.evict(),
            Event::Crash => {
                life.crash();
                life = bucket.start_with(config.clone());
            }
            Event::Lose => {
                life.flush();
                life.crash();
                config.data_dir = bucket.folder.path().join(format!("other-{:x}", random()));
                life = bucket.start_with(taking_over(&config));
            }
        }
        settled(&life);
        check_counts(&life);
    }
    life.flush();
    check_counts(&life);
    life.crash();
    check_counts(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn counts_are_those_of_a_walk_after_random_operations_crashes_and_takeovers() {
    let histories = prop::collection::vec(event(), 10..80);
    try_all(&histories, |events| play(&events));
}
