//! A bucket that was restored to an earlier state is refused by a gateway that has seen a later one, and nothing is
//! lost.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crate::common::*;
use crate::sealing::key_file;
use forebay_fs::Expected;
use forebay_vfs::Stability;

/// Replaces all objects of the bucket by these.
fn put_back(bucket: &Bucket, objects: &BTreeMap<String, Vec<u8>>) {
    fs::remove_dir_all(bucket.path()).unwrap();
    add(bucket, objects);
}

/// Adds these objects to the bucket.
fn add(bucket: &Bucket, objects: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in objects {
        let path = bucket.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn write(life: &Life, name: &[u8], data: &[u8]) {
    let inode = life.create(name);
    life.write(inode, 0, data, Stability::FileSync);
}

#[track_caller]
fn assert_file(life: &Life, name: &[u8], data: &[u8]) {
    let inode = life.lookup(name).inode;
    assert_bytes(&life.read(inode, 0, data.len() + 1), data);
}

fn files_of(folder: &std::path::Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = Vec::new();
    walk(folder, &mut found);
    let read = |(path, _): (std::path::PathBuf, u64)| (path.clone(), fs::read(path).unwrap());
    found.into_iter().map(read).collect()
}

#[test]
fn an_earlier_state_is_refused_and_the_log_stays_for_the_latest_one() {
    let sealed = Bucket::of(Expected::Sealed(Arc::clone(&key_file(1))));
    for bucket in [Bucket::new(), sealed] {
        let life = bucket.start(|_| {});
        write(&life, b"first", b"before the copy");
        life.stop();
        let earlier = bucket.objects();
        let life = bucket.start(|_| {});
        write(&life, b"second", b"in the log, and not in the bucket");
        life.crash();
        let latest = bucket.objects();
        let own = files_of(&bucket.config().data_dir);

        put_back(&bucket, &earlier);
        for _ in 0..2 {
            let refusal = bucket.refusal(bucket.config());
            assert_eq!(bucket.objects(), earlier, "the bucket is as it was");
            for part in [
                "epoch 1,",
                "seen epoch 2",
                "an earlier state of the volume",
                "new data_dir",
            ] {
                assert!(refusal.contains(part), "{part:?} is not in {refusal}");
            }
        }
        assert_eq!(files_of(&bucket.config().data_dir), own);

        // An operator who intends this goes on from there.
        let life = bucket.start_elsewhere(|_| {});
        assert_file(&life, b"first", b"before the copy");
        life.stop();

        // The latest state can be restored over it: a refusal leaves no newer object.
        put_back(&bucket, &earlier);
        bucket.refusal(bucket.config());
        add(&bucket, &latest);
        let life = bucket.start(|_| {});
        assert_file(&life, b"first", b"before the copy");
        assert_file(&life, b"second", b"in the log, and not in the bucket");
        life.stop();
    }
}

/// A state that one gateway has seen counts for another one as well.
#[test]
fn a_state_before_a_takeover_is_refused() {
    let bucket = Bucket::new();
    bucket.start(|_| {}).stop();
    let earlier = bucket.objects();
    for _ in 0..3 {
        bucket.start_elsewhere(|_| {}).stop();
    }
    bucket.start(|_| {}).stop();
    put_back(&bucket, &earlier);
    let refusal = bucket.refusal(bucket.config());
    assert!(refusal.contains("seen epoch 5"), "{refusal}");
}

/// An emptied bucket may come back, and an object over its descriptor would prevent that.
#[test]
fn nothing_is_made_in_the_place_of_a_volume_that_is_gone() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    write(&life, b"file", b"in the log, and not in the bucket");
    life.crash();
    let all = bucket.objects();
    let own = files_of(&bucket.config().data_dir);
    put_back(&bucket, &BTreeMap::new());
    fs::create_dir_all(bucket.path()).unwrap();
    let Err(error) = bucket.try_start_with(bucket.config()) else {
        panic!("a volume was opened");
    };
    // This would make the program format a volume.
    assert!(!error.is_not_formatted(), "{error}");
    assert!(
        error.to_string().contains("the store was emptied"),
        "{error}"
    );
    assert_eq!(bucket.objects(), BTreeMap::new());
    assert_eq!(files_of(&bucket.config().data_dir), own);

    put_back(&bucket, &all);
    let life = bucket.start(|_| {});
    assert_file(&life, b"file", b"in the log, and not in the bucket");
    life.stop();
}
