//! Volumes that are not started or formatted over, and the messages: each names a way out, and nothing is harmed.

use std::fs;
use std::path::PathBuf;

use crate::common::*;
use forebay_fs::{LogConfig, Volume};

#[test]
fn a_local_folder_of_another_volume_is_refused() {
    let (one, other) = (Bucket::new(), Bucket::new());
    one.start(|_| {}).crash();
    let mut config = other.config();
    config.data_dir = one.local.path().to_owned();
    let why = other.refusal(config);
    assert!(why.contains("data_dir of its own"), "{why}");
    // Neither was harmed.
    one.start(|_| {}).create(b"f");
    other.start(|_| {}).create(b"f");
}

#[test]
fn a_damaged_state_file_is_refused() {
    let bucket = Bucket::new();
    bucket.start(|_| {}).crash();
    let path = bucket.local.path().join("state");
    let text = fs::read_to_string(&path).unwrap().replace("epoch", "epodh");
    fs::write(path, text).unwrap();
    let why = bucket.refusal(bucket.config());
    assert!(
        why.contains("is damaged") && why.contains("move it"),
        "{why}"
    );
}

#[test]
fn a_local_folder_serves_one_gateway_at_a_time_with_and_without_a_log() {
    for log in [None, Some(LogConfig::None)] {
        let bucket = Bucket::new();
        let mut config = bucket.config();
        config.log = log.unwrap_or(config.log);
        let life = bucket.start_with(config.clone());
        let epoch = life.volume.epoch();
        let why = bucket.refusal(config.clone());
        assert!(why.contains("in use by another process"), "{why}");
        // The first one was not disturbed.
        life.create(b"file");
        life.flush();
        assert_eq!(life.volume.epoch(), epoch);
        life.crash();
        bucket.start_with(config).lookup(b"file");
    }
}

fn descriptor(bucket: &Bucket) -> PathBuf {
    bucket.path().join("forebay.volume")
}

#[test]
fn a_volume_that_is_newer_damaged_or_none_is_refused_with_the_way_out() {
    let bucket = Bucket::new();
    let text = fs::read_to_string(descriptor(&bucket)).unwrap();
    let (first, _) = text.split_once("crc32").unwrap();
    let newer = first.replace("\"format\":1", "\"format\":4");
    let crc = crc32fast::hash(newer.as_bytes());
    fs::write(descriptor(&bucket), format!("{newer}crc32 {crc:08x}\n")).unwrap();
    let why = bucket.refusal(bucket.config());
    assert!(why.contains("use a newer Forebay"), "{why}");

    fs::write(
        descriptor(&bucket),
        text.replace("\"created\":1", "\"created\":2"),
    )
    .unwrap();
    let why = bucket.refusal(bucket.config());
    assert!(why.contains("is damaged"), "{why}");

    fs::remove_file(descriptor(&bucket)).unwrap();
    let why = bucket.refusal(bucket.config());
    assert!(why.contains("not a volume of Forebay"), "{why}");

    let empty = Bucket::unformatted();
    let why = empty.refusal(empty.config());
    assert!(why.contains("forebay format"), "{why}");

    // With the descriptor restored, it works.
    fs::write(descriptor(&bucket), text).unwrap();
    bucket.start(|_| {}).create(b"file");
}

#[test]
fn a_prefix_that_is_a_volume_or_holds_other_things_is_not_formatted() {
    let format = |bucket: &Bucket| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { Volume::format(&bucket.store().await).await })
    };
    let bucket = Bucket::new();
    let why = format(&bucket).unwrap_err().to_string();
    assert!(why.contains("already"), "{why}");
    bucket.start(|_| {}).create(b"unharmed");

    let other = Bucket::unformatted();
    fs::create_dir_all(other.path()).unwrap();
    fs::write(other.path().join("holiday.jpg"), b"...").unwrap();
    let why = format(&other).unwrap_err().to_string();
    assert!(
        why.contains("holiday.jpg") && why.contains("empty prefix"),
        "{why}"
    );
}

#[test]
fn a_volume_without_its_metadata_or_their_manifest_is_refused() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.create(b"file");
    life.flush();
    life.crash();
    let copy = bucket.copy();
    fs::remove_dir_all(bucket.path().join("meta")).unwrap();
    let left = bucket.objects();
    for bucket in [&bucket, &bucket.seen_elsewhere()] {
        let why = bucket.refusal(bucket.config());
        assert!(why.contains("has no metadata"), "{why}");
        assert_eq!(bucket.objects(), left, "they may come back");
    }

    fs::remove_dir_all(copy.path().join("meta/manifest")).unwrap();
    let why = copy.refusal(copy.config());
    assert!(why.contains("metadata"), "{why}");
}
