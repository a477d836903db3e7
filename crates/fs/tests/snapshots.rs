//! Snapshots: exact, durable when they are answered, and held by the bucket until they are deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_fs::{Compression, Dedup, Expected, FsConfig, SnapshotError, SnapshotInfo};
use forebay_types::Inode;
use forebay_vfs::{FileSystem, SetAttributes, Stability};

use crate::common::disk::Disk;
use crate::common::{Bucket, Life, ROOT, eventually, pattern, read};

mod cached;
mod costs;
mod histories;
mod limits;
mod restored;
mod salvaged;
mod scrubbed;
mod seen;
mod space;

const MIB: u64 = 1 << 20;

/// Packs of 1 MiB that are not compressed, and a collector that does not rest.
pub(crate) fn eager(config: &mut FsConfig) {
    config.compression = Compression::Off;
    config.pack_bytes = MIB;
    config.background_rate = 1 << 40;
    config.background_requests = 1 << 20;
    config.orphan_grace = Duration::ZERO;
}

pub(crate) fn snapshot(life: &Life, name: &str) {
    let made = life.run(|volume| async move { volume.make_snapshot(name, "a test").await });
    made.unwrap();
}

pub(crate) fn delete(life: &Life, name: &str) -> Result<(), SnapshotError> {
    life.run(|volume| async move { volume.delete_snapshot(name).await })
}

fn all(life: &Life) -> Vec<SnapshotInfo> {
    let listed = life.run(|volume| async move { volume.snapshots().await });
    listed.unwrap()
}

fn names(life: &Life) -> Vec<String> {
    all(life).into_iter().map(|one| one.name).collect()
}

/// The content of a file in a snapshot.
fn content(life: &Life, snapshot: &str, inode: Inode, len: usize) -> Vec<u8> {
    life.run(|volume| async move {
        let view = volume.open_snapshot(snapshot).await.unwrap();
        read(&*view, inode, 0, len).await.unwrap()
    })
}

/// The names in the root directory of a snapshot.
fn names_in(life: &Life, snapshot: &str) -> Vec<String> {
    life.run(|volume| async move {
        let view = volume.open_snapshot(snapshot).await.unwrap();
        let listed = view.readdir(&ROOT, Inode::ROOT, 0, 100, false).await;
        let entries = listed.unwrap().entries.into_iter().skip(2);
        let names = entries.map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
        names.collect()
    })
}

fn write(life: &Life, inode: Inode, seed: u64, len: u64) -> Vec<u8> {
    let bytes = pattern(seed, len as usize);
    life.write(inode, 0, &bytes, Stability::Unstable);
    bytes
}

/// Commits a change of metadata. The collector begins after a commit.
fn commit(life: &Life) {
    let mode = SetAttributes {
        mode: Some(0o755),
        ..Default::default()
    };
    life.set(&ROOT, Inode::ROOT, mode).unwrap();
    life.flush();
}

/// Waits until the bucket has no packs but those of live files and of snapshots, and returns the bytes of all packs.
pub(crate) fn settled(life: &Life, bucket: &Bucket) -> u64 {
    eventually("dead packs that no snapshot holds are deleted", || {
        commit(life);
        let status = life.volume.status();
        let space = status.collector.space.as_ref();
        let are_deleted = status.snapshots == names(life).len();
        space.is_some_and(|space| {
            are_deleted && space.stored_bytes + status.held_bytes == bucket.pack_bytes()
        })
    });
    bucket.pack_bytes()
}

#[test]
fn a_snapshot_has_what_was_written_before_it_and_holds_the_bytes_until_it_is_deleted() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let (file, gone) = (life.create(b"file"), life.create(b"gone"));
    let old = write(&life, file, 1, 3 * MIB);
    let removed = write(&life, gone, 2, MIB);
    snapshot(&life, "before");
    let new = write(&life, file, 3, 3 * MIB);
    life.remove(b"gone");
    life.create(b"later");
    life.flush();
    assert_eq!(names_in(&life, "before"), ["file", "gone"]);
    assert!(content(&life, "before", file, old.len()) == old);
    assert!(life.read(file, 0, new.len()) == new);

    let all_bytes = settled(&life, &bucket);
    assert!(all_bytes >= 7 * MIB, "{all_bytes}");
    assert!(content(&life, "before", gone, removed.len()) == removed);
    let info = all(&life).remove(0);
    let counts = info.counts.unwrap();
    assert!(info.is_published && info.made.seconds > 0);
    assert_eq!((counts.used_bytes, counts.used_inodes), (4 * MIB, 3));
    let holds = counts.holds.unwrap();
    assert_eq!(holds.unique_bytes, life.volume.status().held_bytes);
    assert_eq!(holds.unique_bytes, holds.all_bytes);
    life.stop();

    let life = bucket.start(eager);
    assert!(content(&life, "before", file, old.len()) == old);
    delete(&life, "before").unwrap();
    assert!(names(&life).is_empty());
    let missing = life.run(|volume| async move { volume.open_snapshot("before").await.err() });
    assert_eq!(missing, Some(SnapshotError::NotFound("before".into())));
    let left = settled(&life, &bucket);
    assert!(left < 4 * MIB, "{left} of {all_bytes} bytes are left");
    assert_eq!(life.volume.status().held_bytes, 0);
    life.stop();
}

#[test]
fn a_snapshot_needs_no_copy_and_unchanged_packs_are_not_held() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    write(&life, file, 1, 2 * MIB);
    life.flush();
    let before = bucket.pack_bytes();
    for number in 0..5 {
        snapshot(&life, &format!("s{number}"));
    }
    life.flush();
    assert_eq!(bucket.pack_bytes(), before);
    for one in all(&life) {
        let counts = one.counts.unwrap();
        let holds = counts.holds.unwrap().all_bytes;
        assert_eq!((holds, counts.used_bytes), (0, 2 * MIB));
    }
    life.stop();
}

#[test]
fn while_the_bucket_is_away_each_snapshot_is_exact_though_they_are_published_later() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let mut expected = BTreeMap::new();
    bucket.controls.everything.close();
    for number in 0..6u64 {
        // Longer, shorter, and with other bytes.
        let bytes = write(&life, file, number, (1 + number % 3) * MIB / 2);
        life.truncate(file, bytes.len() as u64);
        life.create(format!("file {number}").as_bytes());
        if number >= 2 {
            life.remove(format!("file {}", number - 2).as_bytes());
        }
        let name = format!("s{number}");
        snapshot(&life, &name);
        expected.insert(name, (number, bytes));
    }
    let last = write(&life, file, 99, MIB);
    assert_eq!(names(&life).len(), 6);
    assert!(all(&life).iter().all(|one| !one.is_published));
    assert_eq!(
        life.run(|volume| async move { volume.open_snapshot("s1").await.err() }),
        Some(SnapshotError::NotPublished("s1".into()))
    );
    bucket.controls.everything.open();
    life.flush();
    for (name, (number, bytes)) in &expected {
        assert!(content(&life, name, file, 4 << 20) == *bytes, "{name}");
        let mut files = vec!["file".to_owned()];
        files.extend((number.saturating_sub(1)..=*number).map(|n| format!("file {n}")));
        assert_eq!(names_in(&life, name), files);
    }
    assert!(life.read(file, 0, last.len()) == last);
    life.stop();
}

#[test]
fn a_snapshot_that_was_answered_survives_a_crash_before_it_is_published() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    life.flush();
    bucket.controls.everything.close();
    let first = write(&life, file, 1, MIB);
    snapshot(&life, "one");
    let second = write(&life, file, 2, MIB);
    snapshot(&life, "two");
    let third = write(&life, file, 3, MIB);
    life.commit(file);
    life.crash();
    bucket.controls.everything.open();

    let life = bucket.start(eager);
    assert_eq!(names(&life), ["one", "two"]);
    snapshot(&life, "three");
    life.flush();
    for (name, bytes) in [("one", &first), ("two", &second), ("three", &third)] {
        assert!(content(&life, name, file, 4 << 20) == *bytes, "{name}");
    }
    let ids: Vec<u64> = all(&life).iter().map(|one| one.id.0).collect();
    assert_eq!(ids, [1, 2, 3]);
    life.crash();
    // And on another machine.
    let life = bucket.start_elsewhere(eager);
    assert_eq!(names(&life), ["one", "two", "three"]);
    assert!(content(&life, "one", file, 4 << 20) == first);
    life.stop();
}

#[test]
fn a_snapshot_that_was_answered_survives_a_power_cut_while_the_bucket_is_away() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, eager);
    let file = life.create(b"file");
    bucket.controls.everything.close();
    let bytes = write(&life, file, 1, MIB);
    snapshot(&life, "kept");
    write(&life, file, 2, MIB);
    life.crash();
    bucket.controls.everything.open();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, eager);
    assert_eq!(names(&life), ["kept"]);
    life.flush();
    assert!(content(&life, "kept", file, 4 << 20) == bytes);
    life.stop();
}

#[test]
fn a_crash_at_each_request_of_a_publication_leaves_a_snapshot_that_is_whole() {
    for at in 0.. {
        let bucket = Bucket::new();
        let life = bucket.start(eager);
        let file = life.create(b"file");
        write(&life, file, 1, MIB);
        life.flush();
        let bytes = write(&life, file, 2, MIB);
        snapshot(&life, "kept");
        let later = write(&life, file, 3, MIB);
        life.commit(file);
        // From this request on the bucket does not answer.
        bucket.controls.set_down_after(at);
        let flushing = life.spawn(|volume| async move { volume.flush().await });
        eventually("the publication ends, or meets the request", || {
            flushing.is_finished() || bucket.controls.has_gone_down()
        });
        let was_published = !bucket.controls.has_gone_down();
        life.crash();
        bucket.controls.heal();

        let life = bucket.start(eager);
        life.flush();
        assert_eq!(names(&life), ["kept"], "after {at} requests");
        assert!(content(&life, "kept", file, 4 << 20) == bytes);
        assert!(life.read(file, 0, later.len()) == later);
        let other = write(&life, file, 4, MIB);
        settled(&life, &bucket);
        assert!(content(&life, "kept", file, 4 << 20) == bytes);
        assert!(life.read(file, 0, other.len()) == other);
        life.stop();
        if was_published {
            assert!(at > 5, "{at} requests are too few for two publications");
            return;
        }
    }
}

#[test]
fn a_deleted_snapshot_does_not_come_back_by_the_replay_of_its_record() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let bytes = write(&life, file, 1, MIB);
    snapshot(&life, "gone");
    eventually("it is published", || {
        all(&life).iter().all(|one| one.is_published)
    });
    delete(&life, "gone").unwrap();
    // The log still has its record: no later checkpoint is published.
    life.crash();
    let life = bucket.start(eager);
    life.flush();
    assert!(names(&life).is_empty());
    settled(&life, &bucket);
    assert!(names(&life).is_empty());
    assert!(life.read(file, 0, bytes.len()) == bytes);
    life.stop();
}

#[test]
fn packs_of_a_deleted_snapshot_go_to_the_next_older_one_that_refers_to_them() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let mut expected = Vec::new();
    for number in 0..4 {
        expected.push(write(&life, file, number, MIB));
        for part in ["a", "b"] {
            snapshot(&life, &format!("{number}{part}"));
        }
        life.flush();
    }
    write(&life, file, 9, MIB);
    settled(&life, &bucket);
    let held = |life: &Life, name: &str| {
        let all = all(life);
        let one = all.iter().find(|one| one.name == name).unwrap();
        one.counts.unwrap().holds.unwrap()
    };
    // Two refer to the same packs: neither alone.
    assert_eq!(held(&life, "1a").unique_bytes, 0);
    let shared = held(&life, "1a").all_bytes;
    assert!(shared >= MIB);
    delete(&life, "1b").unwrap();
    let full = settled(&life, &bucket);
    assert_eq!(held(&life, "1a").unique_bytes, shared);
    assert!(content(&life, "1a", file, 4 << 20) == expected[1]);
    delete(&life, "1a").unwrap();
    eventually("the bytes of the second are gone", || {
        settled(&life, &bucket) <= full - shared
    });
    for (number, bytes) in expected
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != 1)
    {
        let name = format!("{number}a");
        assert!(content(&life, &name, file, 4 << 20) == *bytes, "{name}");
    }
    life.stop();
}

#[test]
fn a_deletion_that_a_crash_interrupts_goes_on_after_the_next_start() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    write(&life, file, 1, 2 * MIB);
    snapshot(&life, "old");
    write(&life, file, 2, 2 * MIB);
    settled(&life, &bucket);
    delete(&life, "old").unwrap();
    life.crash();
    let life = bucket.start(eager);
    assert!(names(&life).is_empty());
    // Its name is free at once.
    snapshot(&life, "old");
    let left = settled(&life, &bucket);
    assert!(left < 3 * MIB, "{left} bytes are left");
    assert_eq!(life.volume.status().held_bytes, 0);
    life.stop();
}

#[test]
fn packs_that_live_are_rewritten_beside_a_snapshot_that_keeps_the_old_ones() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let files: Vec<Inode> = (0..4)
        .map(|number| life.create(format!("{number}").as_bytes()))
        .collect();
    let old: Vec<Vec<u8>> = (0..4)
        .map(|number| write(&life, files[number as usize], number, MIB / 4))
        .collect();
    snapshot(&life, "all");
    life.flush();
    for number in 0..3 {
        life.remove(format!("{number}").as_bytes());
    }
    eventually("the pack is rewritten", || {
        settled(&life, &bucket);
        life.volume.status().collector.rewritten > 0
    });
    for (inode, bytes) in files.iter().zip(&old) {
        assert!(content(&life, "all", *inode, 4 << 20) == *bytes);
    }
    delete(&life, "all").unwrap();
    eventually("only the live bytes are left", || {
        settled(&life, &bucket) < MIB / 2
    });
    assert!(life.read(files[3], 0, old[3].len()) == old[3]);
    life.stop();
}

#[test]
fn names_are_unique_and_numbers_are_not_used_again() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    snapshot(&life, "a");
    let again = life.run(|volume| async move { volume.make_snapshot("a", "").await });
    assert_eq!(again, Err(SnapshotError::Exists("a".into())));
    let bad = life.run(|volume| async move { volume.make_snapshot("a/b", "").await });
    assert!(matches!(bad, Err(SnapshotError::Name(_))), "{bad:?}");
    assert_eq!(delete(&life, "b"), Err(SnapshotError::NotFound("b".into())));
    life.flush();
    delete(&life, "a").unwrap();
    snapshot(&life, "a");
    assert_eq!(all(&life)[0].id.0, 2);
    life.stop();
}

#[test]
fn snapshots_of_a_sealed_and_deduplicated_volume_are_read_back() {
    let expected = Expected::Sealed(crate::sealing::key_file(1));
    let bucket = Bucket::of(expected);
    let shared = |config: &mut FsConfig| {
        eager(config);
        config.dedup = Dedup::Full;
    };
    let life = bucket.start(shared);
    let (one, copy) = (life.create(b"one"), life.create(b"copy"));
    let old = write(&life, one, 1, MIB);
    life.flush();
    write(&life, copy, 1, MIB);
    snapshot(&life, "both");
    life.remove(b"one");
    life.flush();
    write(&life, copy, 2, MIB);
    settled(&life, &bucket);
    // The content that only the snapshot has comes again.
    let again = life.create(b"again");
    write(&life, again, 1, MIB);
    life.flush();
    life.stop();
    let life = bucket.start(shared);
    for inode in [one, copy] {
        assert!(content(&life, "both", inode, 4 << 20) == old);
    }
    delete(&life, "both").unwrap();
    settled(&life, &bucket);
    assert!(life.read(again, 0, old.len()) == old);
    life.stop();
}

#[test]
fn bytes_that_snapshots_hold_count_against_the_limit_if_the_setting_says_so() {
    let bucket = Bucket::new();
    let limited = |config: &mut FsConfig| {
        eager(config);
        config.volume_limit = 64 * MIB;
        config.snapshots_count = true;
    };
    let sizes = |life: &Life| {
        let sizes = life.run(|volume| async move { volume.statistics().await.unwrap() });
        (sizes.total_bytes, sizes.free_bytes)
    };
    let life = bucket.start(limited);
    let file = life.create(b"file");
    write(&life, file, 1, 4 * MIB);
    snapshot(&life, "one");
    life.flush();
    assert_eq!(sizes(&life), (64 * MIB, 60 * MIB));
    write(&life, file, 2, 4 * MIB);
    settled(&life, &bucket);
    let held = life.volume.status().held_bytes;
    assert!(held >= 4 * MIB);
    assert_eq!(sizes(&life), (64 * MIB - held, 60 * MIB - held));
    life.stop();
    // From the start on.
    let life = bucket.start(limited);
    assert_eq!(sizes(&life), (64 * MIB - held, 60 * MIB - held));
    delete(&life, "one").unwrap();
    settled(&life, &bucket);
    assert_eq!(sizes(&life), (64 * MIB, 60 * MIB));
    life.stop();
    let life = bucket.start(eager);
    assert_eq!(sizes(&life).0, FsConfig::new("".into()).volume_limit);
    life.stop();
}
