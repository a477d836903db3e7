//! Names: which ones are possible, and how they are added and removed.

use std::collections::BTreeSet;

use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, NewNode, SetAttributes, Stability};

use super::{TOP, mode};
use crate::common::*;

#[test]
fn exclusive_create_finds_its_own_file_and_no_other() {
    let bucket = Bucket::new();
    let exclusive = |life: &Life, verifier: u8| {
        life.run(|volume| async move {
            let mode = CreateMode::Exclusive([verifier; 8]);
            Ok(volume
                .create(&ROOT, TOP, b"file", &mode)
                .await?
                .attributes
                .inode)
        })
    };
    let life = bucket.start(|_| {});
    let inode = exclusive(&life, 1).unwrap();
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.create(b"guarded");
    life.run(|volume| async move {
        let mode = CreateMode::Exclusive([0; 8]);
        assert_eq!(
            volume.create(&ROOT, TOP, b"guarded", &mode).await,
            Err(Error::Exists)
        );
    });
}

#[test]
fn unchecked_create_takes_an_existing_file_and_may_empty_it() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.mkdir(TOP, b"directory");
    life.write(inode, 0, b"content", Stability::Unstable);
    let unchecked = |name: &'static [u8], size| {
        life.run(|volume| async move {
            let mode = CreateMode::Unchecked(SetAttributes {
                size,
                ..Default::default()
            });
            volume
                .create(&ROOT, TOP, name, &mode)
                .await
                .map(|made| made.attributes)
        })
    };
    let kept = unchecked(b"file", None).unwrap();
    assert_eq!((kept.inode, kept.size), (inode, 7));
    assert_eq!(unchecked(b"file", Some(0)).unwrap().size, 0);
    assert_eq!(life.read(inode, 0, 10), b"");
    assert_eq!(unchecked(b"directory", None), Err(Error::Exists));
}

#[test]
fn names_are_any_255_bytes_but_slash_and_nul() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let long: Vec<u8> = (0..255u8)
        .map(|i| if i == b'/' { 0xff } else { i.max(1) })
        .collect();
    let names = [&long[..], &[0xff; 255], b"\xc3\x28", b" ", b"...", b"\n"];
    let inodes: Vec<Inode> = names.iter().map(|name| life.create(name)).collect();
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    for (name, inode) in names.iter().zip(inodes) {
        assert_eq!(life.lookup(name).inode, inode);
    }
    let listed: BTreeSet<_> = life
        .list(TOP, 3)
        .into_iter()
        .skip(2)
        .map(|entry| entry.name.to_vec())
        .collect();
    assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
    let bad: [(&[u8], Error); 4] = [
        (b"", Error::Invalid),
        (b"a/b", Error::Invalid),
        (b"a\0", Error::Invalid),
        (&[b'x'; 256], Error::NameTooLong),
    ];
    for (name, error) in bad {
        life.run(|volume| async move {
            let guarded = CreateMode::Guarded(SetAttributes::default());
            assert_eq!(volume.create(&ROOT, TOP, name, &guarded).await, Err(error));
            assert_eq!(volume.lookup(&ROOT, TOP, name).await, Err(error));
            assert_eq!(volume.remove(&ROOT, TOP, name).await, Err(error));
            let made = volume
                .make(&ROOT, TOP, name, NewNode::Fifo, &mode(0o600))
                .await;
            assert_eq!(made, Err(error));
        });
        assert_eq!(life.rename((TOP, b" "), (TOP, name)), Err(error));
    }
}

#[test]
fn directories_are_removed_only_when_empty_and_only_by_rmdir() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    life.create_in(directory, b"f");
    assert_eq!(life.rmdir(TOP, b"d"), Err(Error::NotEmpty));
    assert_eq!(life.try_remove(TOP, b"d"), Err(Error::IsDirectory));
    assert_eq!(life.rmdir(directory, b"f"), Err(Error::NotDirectory));
    assert_eq!(life.rmdir(TOP, b"none"), Err(Error::NotFound));
    assert_eq!(life.rmdir(directory, b"."), Err(Error::Invalid));
    assert_eq!(life.rmdir(directory, b".."), Err(Error::Exists));
    life.flush();
    assert_eq!(life.rmdir(TOP, b"d"), Err(Error::NotEmpty));
    life.try_remove(directory, b"f").unwrap();
    life.rmdir(TOP, b"d").unwrap();
    assert_eq!(life.getattr(TOP).unwrap().nlink, 2);
    life.run(|volume| async move {
        let guarded = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(
            volume.create(&ROOT, directory, b"f", &guarded).await,
            Err(Error::Stale)
        );
        assert_eq!(
            volume.readdir(&ROOT, directory, 0, 9, false).await,
            Err(Error::Stale)
        );
    });
}
