//! Ten traps into which an earlier system of this kind fell, each of which lost data; and one of those that snapshots brought.
//! The other two of these are `trap_12` in `crates/nfs/tests/snapshots.rs` and `trap_13` in `crates/fsck/tests/clones/undone.rs`.

use crate::common::*;
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::{CreateMode, FileSystem, NewNode, SetAttributes, Stability, Trouble};

const SMALL: u64 = 16 << 20;

/// A gateway with the smallest cache. In the second module of these tests all that it writes is in the log alone.
fn small(bucket: &Bucket) -> Life {
    let mut life = bucket.start(|config| config.memory_limit = SMALL);
    life.spills = module_path!().ends_with("in_the_log");
    life
}

/// Asserts the first bytes of the file as the bucket alone has them.
fn elsewhere(bucket: &Bucket, inode: Inode, expected: &[u8]) {
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(&life.read(inode, 0, expected.len() + 1), expected);
    life.crash();
}

#[test]
fn trap_01_partial_rewrite_of_an_evicted_block_keeps_the_rest() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    let mut expected = pattern(1, 6 << 20);
    life.write(inode, 0, &expected, Stability::Unstable);
    life.flush();
    life.evict();
    let gets = bucket.counts().bytes_got;

    let news = pattern(2, 5000);
    for at in [100, BLOCK_SIZE as usize - 2500, (5 << 20) + 1] {
        life.write(inode, at as u64, &news, Stability::FileSync);
        expected[at..at + news.len()].copy_from_slice(&news);
    }
    assert!(
        bucket.counts().bytes_got < gets + (1 << 20),
        "the rewrite itself fetches nothing"
    );
    life.flush();
    life.evict();
    assert_bytes(&life.read(inode, 0, 7 << 20), &expected);
    assert!(
        bucket.counts().bytes_got > gets + (5 << 20),
        "the rest was really evicted"
    );
    life.crash();
    elsewhere(&bucket, inode, &expected);
}

#[test]
fn trap_02_a_read_of_a_block_that_is_partly_here_fetches_the_rest() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    let mut expected = pattern(1, 4 << 20);
    life.write(inode, 0, &expected, Stability::Unstable);
    life.flush();
    life.evict();
    life.write(inode, 1 << 20, b"here", Stability::Unstable);
    expected[1 << 20..(1 << 20) + 4].copy_from_slice(b"here");
    assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
    assert_bytes(
        &life.read(inode, (1 << 20) - 1, 6),
        &expected[(1 << 20) - 1..(1 << 20) + 5],
    );
}

#[test]
fn trap_03_a_fetch_under_way_does_not_overwrite_bytes_written_meanwhile() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    let old = pattern(1, 4 << 20);
    life.write(inode, 0, &old, Stability::Unstable);
    life.flush();
    life.evict();

    bucket.controls.pack_gets.close();
    let reader =
        life.spawn(|volume| async move { read(&volume, inode, 0, 1 << 20).await.unwrap() });
    eventually("a fetch is under way", || {
        bucket.controls.pack_gets.held() > 0
    });
    let news = pattern(2, 300_000);
    life.write(inode, 4321, &news, Stability::Unstable);
    bucket.controls.pack_gets.open();
    let seen = life.join(reader);
    assert_eq!(seen[..4321], old[..4321]);

    let mut expected = old;
    expected[4321..4321 + news.len()].copy_from_slice(&news);
    assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
    life.flush();
    life.crash();
    elsewhere(&bucket, inode, &expected);
}

#[test]
fn trap_04_a_write_during_an_upload_is_not_uploaded_with_it_and_not_lost() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    let old = pattern(1, 1 << 20);
    life.write(inode, 0, &old, Stability::Unstable);
    bucket.controls.pack_puts.close();
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("an upload is under way", || {
        bucket.controls.pack_puts.held() > 0
    });
    let mut expected = old.clone();
    let news = pattern(2, 70_000);
    life.write(inode, 5, &news, Stability::FileSync);
    expected[5..5 + news.len()].copy_from_slice(&news);
    bucket.controls.pack_puts.open();
    life.join(flush);
    // The bucket has exactly the state when the checkpoint closed.
    elsewhere_of_copy(&bucket, inode, &old);

    assert_bytes(&life.read(inode, 0, 1 << 20), &expected);
    assert!(
        life.volume.status().dirty_bytes >= news.len() as u64,
        "it is still to be uploaded"
    );
    life.flush();
    assert_eq!(life.volume.status().dirty_bytes, 0);
    life.evict();
    assert_bytes(&life.read(inode, 0, 1 << 20), &expected);
    life.crash();
    elsewhere(&bucket, inode, &expected);
}

/// Opens a copy of the bucket, so that the running gateway is not fenced.
fn elsewhere_of_copy(bucket: &Bucket, inode: Inode, expected: &[u8]) {
    let copy = bucket.copy();
    elsewhere(&copy, inode, expected);
}

#[test]
fn trap_05_a_block_rewritten_after_its_upload_is_uploaded_again() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    for round in 0..5 {
        let data = pattern(round, 2 << 20);
        life.write(inode, 0, &data, Stability::Unstable);
        life.flush();
        elsewhere_of_copy(&bucket, inode, &data);
    }
}

#[test]
fn trap_06_recovery_keeps_writes_and_files_that_came_after_a_publication_or_a_removal() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 100_000), Stability::Unstable);
    life.create(b"gone");
    life.flush();
    // After the publication: the same bytes, and a name that is removed and made again.
    let mut expected = pattern(1, 100_000);
    expected[500..1500].copy_from_slice(&pattern(2, 1000));
    life.write(inode, 500, &pattern(2, 1000), Stability::Unstable);
    life.remove(b"gone");
    let again = life.create(b"gone");
    life.write(again, 0, b"new life", Stability::FileSync);
    life.crash();

    for _ in 0..2 {
        let life = small(&bucket);
        assert_bytes(&life.read(inode, 0, 200_000), &expected);
        assert_eq!(life.lookup(b"gone").inode, again);
        assert_eq!(life.read(again, 0, 100), b"new life");
        life.crash();
    }
    let life = small(&bucket);
    life.flush();
    life.crash();
    elsewhere(&bucket, inode, &expected);
}

#[test]
fn trap_07_shrinking_and_growing_a_file_brings_no_old_byte_back() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let published = life.create(b"published");
    let fresh = life.create(b"fresh");
    life.write(published, 0, &pattern(1, 5 << 20), Stability::Unstable);
    life.flush();
    life.write(fresh, 0, &pattern(2, 5 << 20), Stability::Unstable);
    let mut expected = vec![0; 6 << 20];
    expected[..1000].copy_from_slice(&pattern(1, 1000));
    for inode in [published, fresh] {
        life.truncate(inode, 1000);
        life.truncate(inode, 6 << 20);
    }
    let check = |life: &Life| {
        assert_bytes(&life.read(published, 0, 7 << 20), &expected);
        let found = life.read(fresh, 0, 7 << 20);
        assert_eq!(found[..1000], pattern(2, 1000));
        assert!(found[1000..].iter().all(|byte| *byte == 0));
        assert_eq!(found.len(), 6 << 20);
    };
    check(&life);
    life.crash();
    let life = small(&bucket);
    check(&life);
    life.flush();
    check(&life);
    life.evict();
    check(&life);
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    check(&life);
}

/// Asserts that the whole log is flushed.
#[track_caller]
fn assert_durable(life: &Life, what: &str) {
    let status = life.volume.status();
    assert_eq!(
        status.durable, status.end,
        "{what} was answered before it was durable"
    );
}

#[test]
fn trap_08_stable_replies_wait_for_the_disk() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    assert_durable(&life, "CREATE");
    let directory = life.mkdir(Inode::ROOT, b"directory");
    assert_durable(&life, "MKDIR");
    for stability in [Stability::DataSync, Stability::FileSync] {
        life.write(inode, 0, b"data", stability);
        assert_durable(&life, "a stable WRITE");
    }

    // An unstable write costs no flush: nothing is durable by accident here.
    life.write(inode, 4, b"unstable", Stability::Unstable);
    let status = life.volume.status();
    assert!(
        status.durable < status.end,
        "something flushes without being asked to"
    );
    life.commit(inode);
    assert_durable(&life, "COMMIT");

    life.truncate(inode, 2);
    assert_durable(&life, "SETATTR of the size");
    life.set(
        &ROOT,
        inode,
        SetAttributes {
            mode: Some(0o600),
            ..Default::default()
        },
    )
    .unwrap();
    assert_durable(&life, "SETATTR");
    life.link(inode, (directory, b"link")).unwrap();
    assert_durable(&life, "LINK");
    life.rename((directory, b"link"), (Inode::ROOT, b"renamed"))
        .unwrap();
    assert_durable(&life, "RENAME to another directory");
    life.rename((Inode::ROOT, b"renamed"), (Inode::ROOT, b"again"))
        .unwrap();
    assert_durable(&life, "RENAME");
    for node in [NewNode::Symlink(b"target"), NewNode::Fifo] {
        life.run(|volume| async move {
            let set = SetAttributes::default();
            volume
                .make(&ROOT, directory, b"made", node, &set)
                .await
                .unwrap();
        });
        assert_durable(&life, "SYMLINK or MKNOD");
        life.try_remove(directory, b"made").unwrap();
        assert_durable(&life, "REMOVE");
    }
    life.rmdir(Inode::ROOT, b"directory").unwrap();
    assert_durable(&life, "RMDIR");
    life.write(inode, 9, b"unstable", Stability::Unstable);
    life.run(|volume| async move {
        let mode = CreateMode::Exclusive([7; 8]);
        volume
            .create(&ROOT, Inode::ROOT, b"exclusive", &mode)
            .await
            .unwrap();
    });
    assert_durable(&life, "exclusive CREATE");
}

#[test]
fn trap_08_without_a_log_stable_replies_wait_for_the_bucket() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.log = forebay_fs::LogConfig::None);
    let inode = life.create(b"file");
    life.write(inode, 0, b"unstable", Stability::Unstable);
    bucket.controls.meta_puts.close();
    let opened = Moment::default();
    let commit = life.spawn_until(&opened, move |volume| async move {
        volume.commit(&ROOT, inode, 0, 0).await.unwrap()
    });
    eventually("the checkpoint is being published", || {
        bucket.controls.meta_puts.held() > 0
    });
    eventually("COMMIT waits for the bucket", || {
        life.waiting(Trouble::Bucket) == 1
    });
    opened.mark();
    bucket.controls.meta_puts.open();
    let (_, waited) = life.join(commit);
    assert!(waited, "COMMIT was answered before the bucket had the data");
    life.crash();
    elsewhere(&bucket, inode, b"unstable");
}

#[test]
fn trap_09_an_unaligned_write_covers_no_byte_but_its_own() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let inode = life.create(b"file");
    let mut expected = pattern(1, 5 << 20);
    life.write(inode, 0, &expected, Stability::Unstable);
    life.flush();
    life.evict();
    // Around words of a bitmap, pages, pieces and the block's end.
    let edges = [
        1,
        63,
        65,
        511,
        4095,
        4097,
        65_535,
        65_537,
        (4 << 20) - 1,
        (4 << 20) + 1,
    ];
    for (i, at) in edges.into_iter().enumerate() {
        let data = pattern(10 + i as u64, 1 + i * 7);
        life.write(inode, at as u64, &data, Stability::Unstable);
        expected[at..at + data.len()].copy_from_slice(&data);
    }
    assert_bytes(&life.read(inode, 0, 5 << 20), &expected);
    life.flush();
    life.crash();
    elsewhere(&bucket, inode, &expected);
}

#[test]
fn trap_10_a_file_made_again_under_its_name_has_nothing_of_the_old_one() {
    let bucket = Bucket::new();
    let life = small(&bucket);
    let old = life.create(b"name");
    life.write(old, 0, &pattern(1, 5 << 20), Stability::Unstable);
    life.flush();
    life.remove(b"name");
    let new = life.create(b"name");
    assert_ne!(old, new);
    life.truncate(new, 5 << 20);
    life.write(new, 3, b"new", Stability::FileSync);
    let mut expected = vec![0; 5 << 20];
    expected[3..6].copy_from_slice(b"new");
    assert_bytes(&life.read(new, 0, 6 << 20), &expected);
    assert_eq!(life.getattr(old), Err(forebay_vfs::Error::Stale));
    life.crash();
    let life = small(&bucket);
    assert_bytes(&life.read(new, 0, 6 << 20), &expected);
    life.flush();
    life.evict();
    assert_bytes(&life.read(new, 0, 6 << 20), &expected);
    life.crash();
    elsewhere(&bucket, new, &expected);
}

#[test]
fn trap_11_a_snapshot_stops_no_collection_of_what_it_does_not_hold() {
    const MIB: usize = 1 << 20;
    let bucket = Bucket::new();
    let life = bucket.start(crate::snapshots::eager);
    let kept = life.create(b"kept");
    let old = pattern(1, 2 * MIB);
    life.write(kept, 0, &old, Stability::Unstable);
    crate::snapshots::snapshot(&life, "before");
    life.flush();
    let inode = life.create(b"file");
    let mut last = Vec::new();
    for round in 0..12 {
        last = pattern(10 + round, 2 * MIB);
        life.write(inode, 0, &last, Stability::Unstable);
        life.flush();
        let gone = life.create(b"gone");
        life.write(gone, 0, &pattern(30 + round, MIB), Stability::Unstable);
        life.flush();
        life.remove(b"gone");
    }
    life.remove(b"kept");
    // Packs that were born after the snapshot are deleted when they are dead, while it holds its own.
    let bytes = crate::snapshots::settled(&life, &bucket);
    let held = life.volume.status().held_bytes;
    assert!((2 * MIB as u64..3 * MIB as u64).contains(&held), "{held}");
    assert!(bytes < held + 3 * MIB as u64, "{bytes} bytes, {held} held");
    assert_bytes(&life.read(inode, 0, 3 * MIB), &last);
    life.stop();
}
