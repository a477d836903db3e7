//! A checkpoint's metadata are built, and put, while its last packs are in flight. No reader and no crash shows any
//! of it before all of them have arrived.

use std::time::Duration;

use crate::common::*;
use forebay_fs::FsConfig;
use forebay_vfs::Stability;

const LEN: usize = 300 << 10;

fn on_demand(config: &mut FsConfig) {
    config.checkpoint_interval = Duration::from_secs(3600);
}

/// Tables of metadata in the bucket.
fn tables(bucket: &Bucket) -> usize {
    let objects = bucket.objects();
    objects.keys().filter(|name| name.ends_with(".sst")).count()
}

#[test]
fn metadata_go_beside_packs_and_count_after_them() {
    let bucket = Bucket::new();
    let life = bucket.start(on_demand);
    let (old, new) = (pattern(1, LEN), pattern(2, LEN));
    let file = life.create(b"file");
    life.write(file, 0, &old, Stability::Unstable);
    life.flush();
    let before = tables(&bucket);

    bucket.controls.pack_puts.close();
    life.write(file, 0, &new, Stability::Unstable);
    let other = life.create(b"other");
    life.write(other, 0, &new, Stability::Unstable);
    let flush = life.spawn(|volume| async move { volume.flush().await });
    eventually("the metadata are put", || tables(&bucket) > before);
    assert_eq!(bucket.controls.pack_puts.held(), 1, "the pack is not");
    assert!(!flush.is_finished());
    // A reader of the bucket sees the state before.
    let elsewhere = bucket.copy();
    let other_life = elsewhere.start_elsewhere(on_demand);
    assert_bytes(&other_life.read(file, 0, LEN), &old);
    assert!(
        other_life
            .try_lookup(forebay_types::Inode::ROOT, b"other")
            .is_err()
    );
    other_life.stop();
    // A client of the gateway reads the written bytes.
    assert_bytes(&life.read(file, 0, LEN), &new);
    assert_bytes(&life.read(other, 0, LEN), &new);
    // And may change them.
    life.write(file, 7, b"later", Stability::Unstable);

    bucket.controls.pack_puts.open();
    life.join(flush).unwrap();
    let elsewhere = bucket.copy();
    let other_life = elsewhere.start_elsewhere(on_demand);
    assert_bytes(&other_life.read(file, 0, LEN), &new);
    assert_bytes(&other_life.read(other, 0, LEN), &new);
    other_life.stop();
    let mut latest = new.clone();
    latest[7..12].copy_from_slice(b"later");
    life.flush();
    life.crash();
    assert_bytes(
        &bucket.start_elsewhere(on_demand).read(file, 0, LEN),
        &latest,
    );
}

#[test]
fn a_gateway_that_dies_before_its_packs_have_arrived_publishes_them_from_its_log() {
    let bucket = Bucket::new();
    let life = bucket.start(on_demand);
    let file = life.create(b"file");
    life.flush();
    let before = tables(&bucket);
    bucket.controls.pack_puts.close();
    let data = pattern(3, LEN);
    life.write(file, 0, &data, Stability::FileSync);
    let flush = life.spawn(|volume| async move { volume.flush().await });
    eventually("the metadata are put", || tables(&bucket) > before);
    drop(flush);
    life.crash();
    bucket.controls.pack_puts.open();
    // The bucket alone has the state before.
    let elsewhere = bucket.copy();
    assert_eq!(elsewhere.start_elsewhere(on_demand).read(file, 0, LEN), b"");
    // With the log, all of it.
    let life = bucket.start(on_demand);
    assert_bytes(&life.read(file, 0, LEN), &data);
    life.flush();
    life.crash();
    assert_bytes(&bucket.start_elsewhere(on_demand).read(file, 0, LEN), &data);
}

/// As many packs as are built at a time: that there are no more is known before one of them has arrived.
#[test]
fn metadata_go_beside_all_packs_that_are_under_way_together() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        on_demand(config);
        config.upload_parallel = 2;
        config.pack_bytes = LEN as u64;
    });
    for packs in 2..=6_u64 {
        let before = (tables(&bucket), bucket.packs().len());
        bucket.controls.pack_puts.close();
        for pack in 0..packs {
            let file = life.create(format!("{packs} {pack}").as_bytes());
            life.write(file, 0, &pattern(packs + pack, LEN), Stability::Unstable);
        }
        let flush = life.spawn(|volume| async move { volume.flush().await });
        eventually("the metadata are put", || tables(&bucket) > before.0);
        assert_eq!(bucket.packs().len(), before.1, "no pack is there");
        bucket.controls.pack_puts.open();
        life.join(flush).unwrap();
        assert_eq!(bucket.packs().len() as u64, before.1 as u64 + packs);
    }
}
