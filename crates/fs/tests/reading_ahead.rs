//! Frames being fetched take memory: they count before they are requested, and reading ahead takes none of the memory
//! that writers, uploads and waiting readers need.

use std::time::Duration;

use crate::common::{Bucket, Life, assert_bytes, eventually, pattern, read, write};
use forebay_fs::FsConfig;
use forebay_types::Inode;
use forebay_vfs::Stability;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4 * MIB;
const LIMIT: u64 = 32 * MIB;
/// The bytes that one read of a cold byte fetches.
const FRAME: u64 = 256 << 10;

/// By how much memory may exceed its limit when all of it is dirty and two readers wait for bytes: one pack, a frame
/// for each of them, less the reserve, and the copies that writers make of bytes in upload.
const SLACK: u64 = 3 * BLOCK + 2 * MIB - LIMIT / 8;

fn limited(config: &mut FsConfig) {
    config.memory_limit = LIMIT;
    // Each block has a pack of its own.
    config.pack_bytes = MIB;
}

/// A bucket with a file of this many bytes, and a gateway that has nothing of it in memory.
fn cold(bytes: u64) -> (Bucket, Life, Inode) {
    cold_in(bytes, limited)
}

/// The same with other settings.
fn cold_in(bytes: u64, set: fn(&mut FsConfig)) -> (Bucket, Life, Inode) {
    let bucket = Bucket::new();
    let life = bucket.start(set);
    let inode = life.create(b"cold");
    for at in (0..bytes).step_by(MIB as usize) {
        life.write(inode, at, &pattern(at, MIB as usize), Stability::Unstable);
    }
    life.flush();
    life.stop();
    let life = bucket.start(set);
    (bucket, life, inode)
}

/// Block buffers and leased memory.
fn taken(life: &Life) -> u64 {
    let status = life.volume.status();
    status.memory_bytes + status.leased_bytes
}

#[test]
fn frames_on_their_way_count_as_memory_before_they_are_asked_for() {
    let (bucket, life, inode) = cold(4 * BLOCK);
    bucket.controls.pack_gets.close();
    let readers: Vec<_> = (0..3)
        .map(|block| {
            life.spawn(move |volume| async move {
                // Two readers of one frame share it.
                let at = block * BLOCK;
                let both = [at, at + FRAME / 2].map(|at| read(&volume, inode, at, 4096));
                for bytes in futures_util::future::join_all(both).await {
                    assert_eq!(bytes.unwrap().len(), 4096);
                }
            })
        })
        .collect();
    eventually("three frames are leased", || {
        let leased = life.volume.status().leased_bytes;
        assert!(leased < 4 * FRAME, "each frame counts once: {leased} bytes");
        leased >= 3 * FRAME
    });
    assert!(
        life.volume.status().memory_bytes < FRAME,
        "none has arrived"
    );
    bucket.controls.pack_gets.open();
    readers.into_iter().for_each(|reader| life.join(reader));
    eventually("all is given back", || {
        life.volume.status().leased_bytes == 0
    });
    let kept = life.volume.status().memory_bytes;
    assert!(kept >= 3 * FRAME, "they are kept: {kept} bytes");
    assert_bytes(
        &life.read(inode, BLOCK, MIB as usize),
        &pattern(BLOCK, MIB as usize),
    );
}

#[test]
fn with_the_memory_full_of_dirty_bytes_readers_get_theirs_and_nothing_is_read_ahead() {
    let (bucket, life, inode) = cold(6 * BLOCK);
    bucket.controls.pack_puts.close();
    let hot = life.create(b"hot");
    let writer = life.spawn(move |volume| async move {
        for i in 0..48 {
            write(
                &volume,
                hot,
                i * MIB,
                &pattern(i, MIB as usize),
                Stability::Unstable,
            )
            .await;
        }
    });
    let mut before = 0;
    eventually("the writer waits", || {
        std::thread::sleep(Duration::from_millis(100));
        // Dirty bytes and the packs made of them: how many of each depends on when the checkpoint closed.
        let now = taken(&life);
        std::mem::replace(&mut before, now) == now && now > LIMIT / 2
    });
    let full = taken(&life);
    assert!(full <= LIMIT + SLACK, "{full} bytes");
    let mut highest = 0;
    for at in (0..6 * BLOCK).step_by(MIB as usize) {
        assert_bytes(
            &life.read(inode, at, MIB as usize),
            &pattern(at, MIB as usize),
        );
        highest = highest.max(taken(&life));
    }
    assert!(
        highest <= full + BLOCK + MIB,
        "{full}, then {highest} bytes"
    );
    bucket.controls.pack_puts.open();
    life.join(writer);
}

#[test]
fn memory_stays_within_its_limit_while_streams_and_writers_share_it() {
    let (_bucket, life, inode) = cold(24 * BLOCK);
    let mut tasks: Vec<_> = (0..2u64)
        .map(|part| {
            life.spawn(move |volume| async move {
                let from = part * 12 * BLOCK;
                for at in (from..from + 12 * BLOCK).step_by(MIB as usize) {
                    let bytes = read(&volume, inode, at, MIB as usize).await.unwrap();
                    assert_bytes(&bytes, &pattern(at, MIB as usize));
                }
            })
        })
        .collect();
    let hot = life.create(b"hot");
    tasks.push(life.spawn(move |volume| async move {
        for i in 0..64 {
            write(
                &volume,
                hot,
                i * MIB,
                &pattern(i, MIB as usize),
                Stability::Unstable,
            )
            .await;
        }
    }));
    let mut highest = 0;
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        highest = highest.max(taken(&life));
        std::thread::sleep(Duration::from_millis(1));
    }
    tasks.into_iter().for_each(|task| life.join(task));
    assert!(highest > LIMIT / 2, "the limit was never near");
    assert!(highest <= LIMIT + SLACK, "{highest} bytes");
    eventually("what was leased is given back", || {
        life.volume.status().leased_bytes == 0
    });
}

/// Reads `parts` of a cold file of 24 blocks, one after the other, and waits until `ahead` more bytes are in memory
/// than were read.
fn read_ahead(parts: impl Iterator<Item = u64>, ahead: u64) {
    let (bucket, life, inode) = cold_in(24 * BLOCK, |config| config.memory_limit = 256 * MIB);
    let got = bucket.counts().bytes_got;
    let mut read = 0;
    for at in parts {
        let found = life.read(inode, at, MIB as usize);
        assert_bytes(&found, &pattern(at, MIB as usize));
        read += MIB;
    }
    eventually("it is read ahead", || {
        life.volume.status().memory_bytes >= read + ahead
    });
    // Frames in flight are requested and not there yet.
    eventually("each byte has come once", || {
        let asked = bucket.counts().bytes_got - got;
        asked <= life.volume.status().memory_bytes + 2 * MIB
    });
}

#[test]
fn a_reader_whose_reads_arrive_in_any_order_is_read_ahead_for() {
    // Of the sixteen reads that a client has in flight, each may arrive before or after any other.
    let group = 16 * MIB;
    let shuffled = (0..2 * group).step_by(MIB as usize);
    let shuffled = shuffled.map(|at| at - at % group + at % group / MIB * 7 % 16 * MIB);
    read_ahead(shuffled, 16 * MIB);
}

#[test]
fn each_of_two_readers_of_a_file_is_read_ahead_for() {
    // They take turns, and the second one begins in the middle.
    let first = (0..16 * MIB).step_by(MIB as usize);
    let turns = first.flat_map(|at| [at, 12 * BLOCK + at]);
    // More than the read-ahead of one of them before the other begins.
    read_ahead(turns, 2 * 8 * BLOCK);
}
