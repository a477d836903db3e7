//! Dirty bytes that are in the log alone: read, rewritten, cut, published, and found again after a kill.

use crate::common::disk::Disk;
use crate::common::*;
use crate::sealing::key_file;
use forebay_fs::{Dedup, Expected, FsConfig, LogConfig};
use forebay_types::Inode;
use forebay_vfs::{Error, FileSystem, Stability};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A gateway with little memory.
fn small(bucket: &Bucket) -> Life {
    bucket.start(|config| config.memory_limit = 16 << 20)
}

/// Writes with gaps, rewrites, a rewrite in one piece, and a cut, with nothing dirty left in memory after each.
fn written(life: &Life) -> (Inode, Vec<u8>) {
    let inode = life.create(b"file");
    let mut expected = pattern(1, 9 * MIB);
    for at in (0..9).step_by(2).chain((1..9).step_by(2)) {
        let part = &expected[at * MIB..(at + 1) * MIB];
        life.write(inode, (at * MIB) as u64, part, Stability::Unstable);
        life.spill();
    }
    for (round, at) in [100, 4 * MIB - 300, 6 * MIB + 5].into_iter().enumerate() {
        let news = pattern(10 + round as u64, 70_000);
        life.write(inode, at as u64, &news, Stability::FileSync);
        expected[at..at + news.len()].copy_from_slice(&news);
        life.spill();
    }
    life.truncate(inode, 8 * MIB as u64 + 77);
    expected.truncate(8 * MIB + 77);
    life.spill();
    (inode, expected)
}

fn is_in_memory(life: &Life, inode: Inode, offset: u64) -> bool {
    let read = life.run(|volume| async move { volume.read_in_memory(&ROOT, inode, offset, 100) });
    read.is_some()
}

fn all_volumes(test: impl Fn(&Bucket, Dedup)) {
    for dedup in [Dedup::Off, Dedup::Full] {
        test(&Bucket::new(), dedup);
    }
    test(&Bucket::of(Expected::Sealed(key_file(7))), Dedup::Fast);
}

#[test]
fn what_is_in_the_log_alone_is_read_and_published_as_it_was_written() {
    all_volumes(|bucket, dedup| {
        let life = bucket.start(|config| {
            config.memory_limit = 16 << 20;
            config.dedup = dedup;
        });
        let (inode, expected) = written(&life);
        assert!(
            !is_in_memory(&life, inode, 3 * MIB as u64),
            "it was not spilled"
        );
        assert_bytes(&life.read(inode, 0, 9 * MIB), &expected);
        assert!(
            is_in_memory(&life, inode, 3 * MIB as u64),
            "it was not kept"
        );
        life.spill();
        life.flush();
        assert_bytes(&life.read(inode, 0, 9 * MIB), &expected);
        life.crash();
        let other = bucket.start_elsewhere(|config| config.dedup = dedup);
        assert_bytes(&other.read(inode, 0, 9 * MIB), &expected);
        other.crash();
    });
}

#[test]
fn a_kill_loses_nothing_of_what_is_in_the_log_alone() {
    all_volumes(|bucket, _| {
        let life = small(bucket);
        let (inode, expected) = written(&life);
        life.crash();
        let life = small(bucket);
        assert_bytes(&life.read(inode, 0, 9 * MIB), &expected);
        life.crash();
    });
}

#[test]
fn the_file_is_the_same_while_it_is_published() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let (inode, mut expected) = written(&life);
    bucket.controls.pack_puts.close();
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("an upload is under way", || {
        bucket.controls.pack_puts.held() > 0
    });
    let before = expected.clone();
    let news = pattern(30, 200_000);
    life.write(inode, 2 * MIB as u64 - 9, &news, Stability::Unstable);
    expected[2 * MIB - 9..2 * MIB - 9 + news.len()].copy_from_slice(&news);
    life.spill();
    assert_bytes(&life.read(inode, 0, 9 * MIB), &expected);
    life.spill();
    bucket.controls.pack_puts.open();
    life.join(flush);
    assert_bytes(&life.read(inode, 0, 9 * MIB), &expected);
    let copy = bucket.copy();
    let other = copy.start_elsewhere(|_| {});
    assert_bytes(&other.read(inode, 0, 9 * MIB), &before);
    other.crash();
    life.crash();
}

#[test]
fn bytes_that_the_log_cannot_return_are_an_error_and_hinder_no_others() {
    let bucket = Bucket::new();
    let disk = Disk::default();
    let life = bucket.start_on(&disk, |config| config.memory_limit = 16 << 20);
    let inode = life.create(b"file");
    let bytes = pattern(1, 3 * MIB);
    for at in 0..3 {
        life.write(
            inode,
            (at * MIB) as u64,
            &bytes[at * MIB..(at + 1) * MIB],
            Stability::FileSync,
        );
    }
    life.spill();
    // A byte of the second record, which begins with inode and offset.
    let log = disk.log_files();
    let needle = [inode.0, MIB as u64].map(u64::to_le_bytes).concat();
    let mut damaged = 0;
    for name in disk.names() {
        log.edit(&name, |file| {
            let mut windows = file.windows(needle.len());
            if let Some(at) = windows.position(|window| window == needle) {
                file[at + 5000] ^= 1;
                damaged += 1;
            }
        });
    }
    assert_eq!(damaged, 1);
    assert!(!is_in_memory(&life, inode, MIB as u64));
    assert_eq!(life.try_read(inode, MIB as u64, 100), Err(Error::Io));
    for at in [0, 2] {
        assert_bytes(
            &life.read(inode, (at * MIB) as u64, MIB),
            &bytes[at * MIB..(at + 1) * MIB],
        );
    }
    life.crash();
}

/// With a log for the burst and memory for a part of it.
fn bursting(config: &mut FsConfig) {
    config.memory_limit = 64 << 20;
    config.checkpoint_bytes = 8 << 20;
    // Packs on their way take memory too.
    config.upload_parallel = 1;
    config.log = LogConfig::Disk {
        limit: 1 << 30,
        segment: 16 << 20,
    };
    config.room_wait = Duration::from_secs(5);
}

fn bursts(bucket: &Bucket) -> Life {
    bucket.start(bursting)
}

/// Six times the memory, while the bucket takes nothing: no writer waits for it, and nothing is lost by a kill.
#[test]
fn a_burst_larger_than_memory_is_taken_while_the_bucket_is_away() {
    const FILES: u64 = 24;
    let bucket = Bucket::new();
    let life = bursts(&bucket);
    bucket.controls.pack_puts.close();
    let content = |file: u64| pattern(file + 1, 16 * MIB);
    let mut inodes = Vec::new();
    for file in 0..FILES {
        let inode = life.create(format!("file {file}").as_bytes());
        life.write(inode, 0, &content(file), Stability::Unstable);
        let status = life.volume.status();
        assert!(
            status.memory_bytes <= status.memory_limit,
            "{}",
            status.memory_bytes
        );
        inodes.push(inode);
    }
    let all_of = |life: &Life| {
        for (file, inode) in (0..).zip(&inodes) {
            assert_bytes(&life.read(*inode, 0, 17 * MIB), &content(file));
        }
        let status = life.volume.status();
        assert!(
            status.memory_bytes <= status.memory_limit,
            "{}",
            status.memory_bytes
        );
    };
    all_of(&life);
    life.crash();
    // The start does not wait for the bucket either, and goes on with several checkpoints.
    let life = bursts(&bucket);
    assert_eq!(bucket.packs(), []);
    assert!(life.volume.status().waiting_checkpoints >= 8);
    all_of(&life);
    bucket.controls.pack_puts.open();
    life.flush();
    all_of(&life);
    life.crash();
    let other = bucket.start_elsewhere(|_| {});
    all_of(&other);
    other.crash();
}

/// The names fill their memory, so that checkpoints are published before the log is open.
#[test]
fn what_is_in_the_log_alone_is_published_during_the_replay() {
    for expected in [Expected::NotSealed, Expected::Sealed(key_file(7))] {
        let bucket = Bucket::of(expected);
        let life = bursts(&bucket);
        bucket.controls.pack_puts.close();
        let inode = life.create(b"file");
        let content = |part: u64| pattern(part, MIB);
        for part in 0..80 {
            life.write(
                inode,
                part * MIB as u64,
                &content(part),
                Stability::Unstable,
            );
            for name in 0..50 {
                life.create(format!("a name of some length, {part} {name}").as_bytes());
            }
        }
        life.crash();
        bucket.controls.pack_puts.open();
        let life = bucket.start(|config| {
            bursting(config);
            config.overlay_limit = 1 << 20;
        });
        assert_ne!(bucket.packs(), []);
        for part in 0..80 {
            assert_bytes(&life.read(inode, part * MIB as u64, MIB), &content(part));
        }
        life.flush();
        life.crash();
        let other = bucket.start_elsewhere(|_| {});
        for part in 0..80 {
            assert_bytes(&other.read(inode, part * MIB as u64, MIB), &content(part));
        }
        other.crash();
    }
}

/// Segments of 4 MiB have room for three such writes.
#[test]
fn writers_are_slowed_before_the_log_is_full_however_much_of_it_records_fill() {
    for segment in [4, 16] {
        let bucket = Bucket::new();
        let life = bucket.start(|config| {
            // Packs that are held, with what they are made of, are a small part of it.
            config.memory_limit = 32 << 20;
            config.pack_bytes = 1 << 20;
            config.upload_parallel = 1;
            config.checkpoint_bytes = 4 << 20;
            // Long enough for a flush that makes room in memory.
            config.room_wait = Duration::from_secs(2);
            config.log = LogConfig::Disk {
                limit: 256 << 20,
                segment: segment << 20,
            };
        });
        let inode = life.create(b"file");
        // Nothing is published, so nothing is known of the bucket.
        bucket.controls.everything.close();
        let part = pattern(1, MIB);
        let written = (0..300_u64)
            .take_while(|at| {
                let written = life.try_write(inode, at << 20, &part);
                assert!(written.is_ok() || matches!(written, Err(Error::Delay)));
                written.is_ok()
            })
            .count() as u64;
        let (used, limit) = life.volume.status().log.unwrap();
        // Where a WRITE takes two seconds and more, far from the end.
        let slow = limit / 8 * 7..limit / 16 * 15 + (1 << 20);
        assert!(slow.contains(&used), "{used}");
        assert!(written << 20 > limit / 2, "{written}");
        bucket.controls.everything.open();
        life.flush();
        life.crash();
    }
}
