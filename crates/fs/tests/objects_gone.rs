//! Objects that are deleted under a running gateway: by a rule that expires them, by hand, or by a server that came
//! back with another disk.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::common::*;
use forebay_fs::{FlushError, LogConfig};
use forebay_types::{Inode, Lsn};
use forebay_vfs::{FileSystem, Stability};

/// Deletes the objects whose names match; returns their content.
fn take(bucket: &Bucket, is_one: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
    let mut objects = bucket.objects();
    objects.retain(|name, _| is_one(name));
    for name in objects.keys() {
        fs::remove_file(bucket.path().join(name)).unwrap();
    }
    assert!(!objects.is_empty());
    objects
}

fn put_back(bucket: &Bucket, objects: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in objects {
        let path = bucket.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn put(life: &Life, name: &str) -> Inode {
    let inode = life.create(name.as_bytes());
    let bytes = pattern(name.len() as u64, 70_000);
    life.write(inode, 0, &bytes, Stability::FileSync);
    inode
}

fn has(life: &Life, name: &str) {
    let inode = life.lookup(name.as_bytes()).inode;
    let bytes = pattern(name.len() as u64, 70_000);
    assert_bytes(&life.read(inode, 0, bytes.len()), &bytes);
}

fn flush(life: &Life) -> Result<Lsn, FlushError> {
    life.run(|volume| async move { volume.flush().await })
}

fn of_everything(_: &str) -> bool {
    true
}

fn of_tables(name: &str) -> bool {
    name.starts_with("meta/compacted/")
}

fn of_the_descriptor(name: &str) -> bool {
    name == "forebay.volume"
}

/// Objects that are deleted, by their names.
type Chosen = fn(&str) -> bool;

const KINDS: [(&str, Chosen); 3] = [
    ("meta/compacted/", of_everything),
    ("meta/compacted/", of_tables),
    ("forebay.volume", of_the_descriptor),
];

#[test]
fn what_is_gone_is_named_nothing_is_claimed_and_all_goes_on_when_it_is_back() {
    for (named, kind) in KINDS {
        let bucket = Bucket::new();
        let life = bucket.start(|_| {});
        put(&life, "before");
        flush(&life).unwrap();
        let published = life.volume.status().published;
        let taken = take(&bucket, kind);
        put(&life, "during");
        for _ in 0..2 {
            let Err(FlushError::Gone(why)) = flush(&life) else {
                panic!("{named} is gone");
            };
            assert!(
                why.contains(named) && why.contains("forebay log salvage"),
                "{why}"
            );
        }
        let status = life.volume.status();
        let (gone, _) = status.gone.unwrap();
        assert!(gone.contains(named), "{gone}");
        assert_eq!(status.store_trouble.unwrap().0, gone);
        assert_eq!(status.stopped, None);
        // The log may be recycled up to a proof before the loss, and not beyond.
        if named != "forebay.volume" {
            assert_eq!(status.published, published);
        }
        // Clients go on: the log has their writes.
        put(&life, "later");
        for name in ["during", "later"] {
            has(&life, name);
        }
        put_back(&bucket, &taken);
        let end = flush(&life).unwrap();
        assert!(end > published);
        assert_eq!(life.volume.status().gone, None);
        life.crash();
        let life = bucket.start_elsewhere(|_| {});
        for name in ["before", "during", "later"] {
            has(&life, name);
        }
    }
}

#[test]
fn a_gateway_that_ends_meanwhile_has_kept_everything_in_its_log() {
    for (named, kind) in KINDS {
        for in_order in [false, true] {
            let bucket = Bucket::new();
            let life = bucket.start(|_| {});
            put(&life, "before");
            flush(&life).unwrap();
            let taken = take(&bucket, kind);
            put(&life, "during");
            assert!(flush(&life).is_err());
            put(&life, "later");
            match in_order {
                true => life.stop(),
                false => life.crash(),
            }
            let refused = bucket.refusal(bucket.config());
            assert!(
                refused.contains(named) || refused.contains("forebay.volume"),
                "{refused}"
            );
            put_back(&bucket, &taken);
            let life = bucket.start(|_| {});
            for name in ["before", "during", "later"] {
                has(&life, name);
            }
            flush(&life).unwrap();
        }
    }
}

/// The cost: one HEAD for a checkpoint, one more for a flush, and none for an idle volume.
#[test]
fn a_publication_asks_for_one_object_more() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.log = LogConfig::None);
    let inode = life.create(b"file");
    life.commit(inode);
    let before = bucket.counts().heads;
    for n in 1..=5 {
        life.write(inode, 0, &pattern(n, 1000), Stability::Unstable);
        life.commit(inode);
        assert_eq!(bucket.counts().heads - before, n);
    }
    flush(&life).unwrap();
    assert_eq!(
        bucket.counts().heads - before,
        7,
        "a table and the descriptor"
    );
}

#[test]
fn a_pack_that_is_gone_is_noticed_and_what_memory_has_of_it_comes_back() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.presence_interval = Duration::ZERO);
    put(&life, "file");
    flush(&life).unwrap();
    take(&bucket, |name| name.starts_with("packs/"));
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let mut n = 0;
    let noticed = loop {
        // Only names: there is no other pack.
        life.create_in(directory, format!("{n}").as_bytes());
        match flush(&life) {
            Ok(_) => n += 1,
            Err(noticed) => break noticed,
        }
        assert!(n < 10, "every second checkpoint looks for a pack");
    };
    let FlushError::PackGone(why) = noticed else {
        panic!("{noticed}");
    };
    assert!(why.contains("packs/"), "{why}");
    eventually("frames in memory are uploaded again", || {
        flush(&life).is_ok()
    });
    assert_eq!(life.volume.status().damaged_frames, 0);
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    has(&life, "file");
}

/// Names and listings that clients used last are answered from memory while the bucket is unreachable, after any
/// publications and merges since.
#[test]
fn what_was_looked_at_is_answered_while_the_bucket_is_away() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    put(&life, "file");
    life.flush();
    assert_eq!(life.list(Inode::ROOT, 100).len(), 4);
    assert_eq!(life.list(directory, 100).len(), 2);
    life.lookup(b"file");
    // Enough commits for a merge of the metadata's tables, each of which changes the listed directory.
    for n in 0..14 {
        life.create_in(directory, format!("{n}").as_bytes());
        life.flush();
    }
    life.remove(b"file");
    put(&life, "other");
    life.flush();
    bucket.controls.everything.close();
    let list = |directory: Inode| {
        life.run(move |volume| async move {
            let listing = volume
                .readdir(&ROOT, directory, 0, 100, true)
                .await
                .unwrap();
            assert!(
                listing.end
                    && listing
                        .entries
                        .iter()
                        .skip(2)
                        .all(|entry| entry.attributes.is_some())
            );
            listing.entries.len()
        })
    };
    assert_eq!((list(Inode::ROOT), list(directory)), (4, 16));
    life.lookup(b"other");
    life.lookup(b"directory");
    life.getattr(directory).unwrap();
    bucket.controls.everything.open();
}
