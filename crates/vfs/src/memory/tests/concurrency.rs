//! Calls from several threads at the same time.

use std::sync::Arc;
use std::thread;

use super::*;

#[test]
fn renames_in_opposite_directions_neither_lock_up_nor_lose_a_name() {
    const TURNS: usize = 2000;
    let fs = Arc::new(MemoryFileSystem::new());
    let (one, two) = (
        fs.directory(Inode::ROOT, "one"),
        fs.directory(Inode::ROOT, "two"),
    );
    let (a, b) = (fs.file(one, "a"), fs.file(two, "b"));
    let mover = |name: &'static str, from: Inode, to: Inode| {
        let fs = fs.clone();
        thread::spawn(move || {
            for _ in 0..TURNS {
                fs.move_to((from, name), (to, name)).unwrap();
                assert_eq!(
                    fs.names(to, 100)
                        .iter()
                        .filter(|found| *found == name)
                        .count(),
                    1
                );
                fs.move_to((to, name), (from, name)).unwrap();
            }
        })
    };
    let movers = [mover("a", one, two), mover("b", two, one)];
    movers.into_iter().for_each(|mover| mover.join().unwrap());
    assert_eq!((fs.find(one, "a"), fs.find(two, "b")), (Ok(a), Ok(b)));
    assert_eq!((fs.names(one, 10).len(), fs.names(two, 10).len()), (3, 3));
}

#[test]
fn one_of_many_wins_an_exclusive_name() {
    let fs = Arc::new(MemoryFileSystem::new());
    for round in 0..200 {
        let name = format!("round {round}");
        let attempts: Vec<_> = (0..4)
            .map(|number| {
                let (fs, name) = (fs.clone(), name.clone());
                thread::spawn(move || {
                    let mode = CreateMode::Exclusive([number; 8]);
                    now(fs.create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)).is_ok()
                })
            })
            .collect();
        let won = attempts.into_iter().map(|attempt| attempt.join().unwrap());
        assert_eq!(won.filter(|won| *won).count(), 1);
    }
}

#[test]
fn a_read_beside_writes_sees_each_write_whole_or_not_at_all() {
    let fs = Arc::new(MemoryFileSystem::new());
    let file = fs.file(Inode::ROOT, "file");
    fs.put(file, 0, &[0; 100_000]);
    let writer = {
        let fs = fs.clone();
        thread::spawn(move || (1..=200).for_each(|byte| fs.put(file, 0, &[byte; 100_000])))
    };
    let mut last = 0;
    while last < 200 {
        let bytes = fs.get(file, 0, 100_000);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        assert!(bytes[0] >= last);
        last = bytes[0];
    }
    writer.join().unwrap();
}
