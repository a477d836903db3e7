//! Bytes, holes, sizes and space.

use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability};

use super::TOP;
use crate::common::*;

#[test]
fn holes_read_as_zeros_and_sizes_reach_63_bits() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let inode = life.create(b"sparse");
    let far = (1u64 << 62) + 12_345;
    life.write(inode, far, b"far away", Stability::Unstable);
    life.write(inode, 10 << 20, b"near", Stability::FileSync);
    let check = |life: &Life| {
        let found = life.getattr(inode).unwrap();
        assert_eq!(found.size, far + 8);
        assert!(found.used < 1 << 20, "{} bytes are used", found.used);
        assert_eq!(life.read(inode, far - 4, 100), b"\0\0\0\0far away");
        assert_eq!(life.read(inode, (10 << 20) - 2, 8), b"\0\0near\0\0");
        assert!(life.read(inode, 0, 1 << 20).iter().all(|byte| *byte == 0));
        assert_eq!(life.read(inode, far + 8, 10), b"");
        assert_eq!(life.read(inode, u64::MAX, 10), b"");
    };
    check(&life);
    let largest = i64::MAX as u64;
    assert_eq!(
        life.try_write(inode, largest, b"x"),
        Err(Error::FileTooLarge)
    );
    assert_eq!(
        life.try_write(inode, u64::MAX, b"x"),
        Err(Error::FileTooLarge)
    );
    let too_large = SetAttributes {
        size: Some(largest + 1),
        ..Default::default()
    };
    assert_eq!(life.set(&ROOT, inode, too_large), Err(Error::FileTooLarge));
    let made = life.run(|volume| async move {
        volume
            .create(&ROOT, TOP, b"huge", &CreateMode::Guarded(too_large))
            .await
    });
    assert_eq!(made, Err(Error::FileTooLarge));
    life.flush();
    life.evict();
    check(&life);
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn written_bytes_are_read_back_and_survive_in_the_bucket_alone() {
    let bucket = Bucket::new();
    let data = pattern(1, 10 << 20);
    let life = bucket.start(|config| config.memory_limit = 64 << 20);
    let inode = life.create(b"file");
    life.write(inode, 0, &data, Stability::Unstable);
    life.write(inode, 12 << 20, b"tail", Stability::FileSync);
    let check = |life: &Life| {
        assert_bytes(&life.read(inode, 0, 10 << 20), &data);
        assert_bytes(&life.read(inode, 10 << 20, 2 << 20), &vec![0; 2 << 20]);
        assert_eq!(life.read(inode, 12 << 20, 100), b"tail");
    };
    check(&life);
    life.flush();
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn a_full_volume_says_so_and_takes_writes_again_when_something_was_removed() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.volume_limit = 8 << 20;
        config.inode_limit = 4;
    });
    let inode = life.create(b"file");
    for i in 0..8 {
        life.write(inode, i << 20, &pattern(i, 1 << 20), Stability::Unstable);
    }
    assert_eq!(life.try_write(inode, 8 << 20, b"x"), Err(Error::NoSpace));
    let found = life.run(|volume| async move { volume.statistics().await.unwrap() });
    assert_eq!((found.total_bytes, found.free_bytes), (8 << 20, 0));
    // Two objects beside the root.
    let other = life.create(b"other");
    assert_eq!(life.try_write(other, 0, b"x"), Err(Error::NoSpace));
    life.create(b"third");
    life.run(|volume| async move {
        let guarded = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(
            volume.create(&ROOT, TOP, b"f", &guarded).await,
            Err(Error::NoSpace)
        );
        let found = volume.statistics().await.unwrap();
        assert_eq!((found.total_files, found.free_files), (4, 0));
    });
    // Published or not: removed or truncated bytes make room at once.
    life.flush();
    life.truncate(inode, 4 << 20);
    life.write(other, 0, &pattern(9, 1 << 20), Stability::FileSync);
    life.remove(b"file");
    for i in 1..8 {
        life.write(other, i << 20, &pattern(i, 1 << 20), Stability::FileSync);
    }
    assert_eq!(life.try_write(other, 8 << 20, b"x"), Err(Error::NoSpace));
    life.create(b"again");
}

#[test]
fn rewriting_unpublished_bytes_again_and_again_needs_no_more_space_than_they_take() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.volume_limit = 8 << 20);
    let inode = life.create(b"file");
    for round in 0..20 {
        for i in 0..3 {
            life.write(
                inode,
                i << 20,
                &pattern(round, 1 << 20),
                Stability::Unstable,
            );
        }
        if round % 3 == 0 {
            life.flush();
        }
    }
    assert_bytes(&life.read(inode, 0, 1 << 20), &pattern(19, 1 << 20));
}
