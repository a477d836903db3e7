//! Listing directories while they change.

use std::collections::BTreeMap;

use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes};

use super::TOP;
use crate::common::*;

/// Makes many files at once, as a busy client does.
fn make_many(life: &Life, directory: Inode, names: std::ops::Range<usize>) {
    life.run(|volume| async move {
        // A flush for each of so many creations is not what this is about.
        let volume = volume.with_commit_mode(forebay_fs::CommitMode::Async);
        let guarded = CreateMode::Guarded(SetAttributes::default());
        for i in names {
            let name = format!("file-{i:06}");
            volume
                .create(&ROOT, directory, name.as_bytes(), &guarded)
                .await
                .unwrap();
        }
    });
}

#[test]
fn many_entries_are_listed_once_each_while_others_come_and_go() {
    // A hundred thousand take half a minute without optimisation.
    let entries = if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        100_000
    } else {
        16_000
    };
    let bucket = Bucket::new();
    let change = |config: &mut forebay_fs::FsConfig| {
        config.log = forebay_fs::LogConfig::Disk {
            limit: 256 << 20,
            segment: 16 << 20,
        };
    };
    let life = bucket.start(change);
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..entries * 3 / 4);
    life.flush();
    // The rest lies in the overlay.
    make_many(&life, directory, entries * 3 / 4..entries);

    let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let (mut cookie, mut pieces) = (0, 0);
    let mut life = life;
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, entries / 30, false)
                .await
                .unwrap()
        });
        for entry in found.entries {
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            assert_eq!(
                seen.insert(entry.name.to_vec(), entry.cookie),
                None,
                "{:?}",
                entry.name
            );
        }
        if found.end {
            break;
        }
        pieces += 1;
        // Odd ones go: some that were listed and some that were not; others come.
        for i in 0..20 {
            let number = ((pieces * 7919 + i * 4001) % entries) | 1;
            let _ = life.try_remove(directory, format!("file-{number:06}").as_bytes());
        }
        life.create_in(directory, format!("new-{pieces}").as_bytes());
        if pieces == 10 {
            life.crash();
            life = bucket.start(change);
        }
        if pieces == 20 {
            life.flush();
        }
    }
    for i in (0..entries).step_by(2) {
        let name = format!("file-{i:06}");
        assert!(
            seen.contains_key(name.as_bytes()),
            "{name} stayed and was skipped"
        );
    }
    assert!(pieces > 20);
    let attributes = life.getattr(directory).unwrap();
    let again = life.list(directory, 4096);
    assert_eq!(attributes.nlink, 2);
    for entry in again.iter().skip(2) {
        if let Some(cookie) = seen.get(&entry.name[..]) {
            assert_eq!(
                entry.cookie, *cookie,
                "the cookie of {:?} has changed",
                entry.name
            );
        }
    }
}

#[test]
fn a_directory_is_emptied_while_it_is_listed() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..500);
    life.flush();
    make_many(&life, directory, 500..1000);
    // As `rm -r`: list a piece, remove it, go on behind it.
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, 64, true)
                .await
                .unwrap()
        });
        for entry in &found.entries {
            cookie = entry.cookie;
            assert!(entry.attributes.is_some());
            if !matches!(&entry.name[..], b"." | b"..") {
                life.try_remove(directory, &entry.name).unwrap();
                removed += 1;
            }
        }
        if found.end {
            break;
        }
    }
    assert_eq!(removed, 1000);
    assert_eq!(life.list(directory, 10).len(), 2);
    life.rmdir(TOP, b"d").unwrap();
}

#[test]
fn listings_give_dot_and_dot_dot_first_also_one_at_a_time() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    life.create_in(directory, b"f");
    for piece in [1, 2, 3, 100] {
        let entries = life.list(directory, piece);
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (&entry.name[..], entry.inode))
            .collect();
        let file = life.try_lookup(directory, b"f").unwrap().inode;
        assert_eq!(found, [(&b"."[..], directory), (b"..", TOP), (b"f", file)]);
        assert!(entries.iter().all(|entry| entry.cookie > 0));
    }
    assert_eq!(life.try_lookup(TOP, b"..").unwrap().inode, TOP);
}
