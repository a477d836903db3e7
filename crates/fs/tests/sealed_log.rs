//! A sealed volume whose log is sealed as well: none of the latest writes are readable on the disk, no forged records
//! are replayed, and the log still serves all its purposes.

use std::fs;
use std::path::PathBuf;

use crate::common::{Bucket, Life, assert_bytes, folder, pattern};
use crate::sealing::{CONTENT, NAME, change_ring, files_with, key_file, sealed};
use forebay_fs::{Expected, FsConfig};
use forebay_meta::volume::keys::RingChange;
use forebay_salvage::logs::{Content, Logs, LogsError, What};
use forebay_types::{Inode, Lsn};
use forebay_vfs::Stability;
use forebay_view::{View, data_keys};
use forebay_wal::Label;

fn sealing_its_log(config: &mut FsConfig) {
    config.seal_log = true;
}

fn write(life: &Life, name: &[u8], data: &[u8]) -> Inode {
    let inode = life.create(name);
    life.write(inode, 0, data, Stability::Unstable);
    life.commit(inode);
    inode
}

#[track_caller]
fn assert_file(life: &Life, name: &[u8], data: &[u8]) {
    let inode = life.lookup(name).inode;
    assert_bytes(&life.read(inode, 0, data.len() + 1), data);
}

/// The first segment of the log that was begun.
fn first_segment(bucket: &Bucket) -> PathBuf {
    let log = bucket.local.path().join("log");
    let mut files: Vec<_> = fs::read_dir(log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .filter(|path| fs::read(path).unwrap().starts_with(b"FBAYWAL\n"))
        .collect();
    files.sort();
    files.remove(0)
}

#[test]
fn what_was_written_last_is_nowhere_in_the_clear_and_read_after_a_crash() {
    let words = [CONTENT, NAME];
    let tell = |bucket: &Bucket, seal_log: bool| {
        let life = bucket.start(|config| config.seal_log = seal_log);
        let inside = life.mkdir(Inode::ROOT, NAME);
        life.create_in(inside, &[NAME, b"-2"].concat());
        let data = [&pattern(1, 3 << 20)[..], CONTENT, &pattern(2, 70_000)].concat();
        write(&life, b"file", &data);
        write(&life, b"small", CONTENT);
        life.crash();
        data
    };
    // The search finds it if only the volume is sealed.
    let open = sealed(1);
    tell(&open, false);
    let found = files_with(open.local.path(), &words);
    assert!(
        found.iter().all(|name| name.starts_with("log/")),
        "{found:?}"
    );
    assert!(!found.is_empty());

    let bucket = sealed(1);
    let data = tell(&bucket, true);
    assert_eq!(files_with(bucket.local.path(), &words), [""; 0]);
    assert_eq!(files_with(&bucket.path(), &words), [""; 0]);
    let life = bucket.start(sealing_its_log);
    assert_file(&life, b"file", &data);
    assert_file(&life, b"small", CONTENT);
    let inside = life.lookup(NAME).inode;
    life.try_lookup(inside, &[NAME, b"-2"].concat()).unwrap();
    life.stop();
    assert_eq!(files_with(bucket.local.path(), &words), [""; 0]);
    let life = bucket.seen_elsewhere().start(sealing_its_log);
    assert_file(&life, b"file", &data);
}

#[test]
fn after_a_rotation_and_crashes_on_both_sides_of_it_all_is_replayed() {
    let bucket = sealed(1);
    let life = bucket.start(sealing_its_log);
    write(&life, b"before", &pattern(1, 100_000));
    change_ring(&bucket, &life, &key_file(1), RingChange::Rotate(2));
    life.crash();
    let life = bucket.start(sealing_its_log);
    write(&life, b"after", &pattern(2, 100_000));
    life.crash();
    let life = bucket.start(sealing_its_log);
    assert_file(&life, b"before", &pattern(1, 100_000));
    assert_file(&life, b"after", &pattern(2, 100_000));
}

#[test]
fn sealing_the_log_is_switched_on_after_an_orderly_stop_and_off_at_any_time() {
    let bucket = sealed(1);
    let life = bucket.start(|_| {});
    write(&life, b"in the clear", CONTENT);
    life.crash();
    // Records that are not authenticated are not replayed; nor are they lost.
    let mut on = bucket.config();
    sealing_its_log(&mut on);
    let objects = bucket.objects();
    let refusal = bucket.refusal(on);
    assert_eq!(bucket.objects(), objects);
    assert!(refusal.contains("is not sealed"), "{refusal}");
    assert!(refusal.contains("seal_log = \"off\""), "{refusal}");
    let life = bucket.start(|_| {});
    assert_file(&life, b"in the clear", CONTENT);
    life.stop();
    let life = bucket.start(sealing_its_log);
    assert_file(&life, b"in the clear", CONTENT);
    write(&life, b"sealed", CONTENT);
    life.crash();
    let life = bucket.start(|_| {});
    assert_file(&life, b"sealed", CONTENT);
    write(&life, b"in the clear again", CONTENT);
    life.crash();
    let life = bucket.start(|_| {});
    assert_file(&life, b"sealed", CONTENT);
    assert_file(&life, b"in the clear again", CONTENT);
}

#[test]
fn a_volume_that_is_not_sealed_has_no_keys_for_its_log() {
    let bucket = Bucket::new();
    let mut on = bucket.config();
    sealing_its_log(&mut on);
    let refusal = bucket.refusal(on);
    assert!(refusal.contains("has no keys"), "{refusal}");
}

/// An attacker who can write to the disk, and has no key.
#[test]
fn a_changed_log_is_refused_and_the_true_one_goes_on_when_it_is_back() {
    let bucket = sealed(1);
    let life = bucket.start(sealing_its_log);
    write(&life, b"first", CONTENT);
    life.flush();
    write(&life, b"second", CONTENT);
    life.crash();
    let segment = first_segment(&bucket);
    let good = fs::read(&segment).unwrap();
    // The last record, with a CRC that is right: see docs/format.md.
    let (mut at, mut last) = (4096, 4096);
    while good[at + 4..at + 6] == *b"FR" {
        let length = u32::from_le_bytes(good[at + 24..at + 28].try_into().unwrap());
        (last, at) = (at, at + (32 + length as usize).next_multiple_of(8));
    }
    let length = u32::from_le_bytes(good[last + 24..last + 28].try_into().unwrap());
    let mut bad = good.clone();
    bad[last + 40] ^= 1;
    let crc = crc32fast::hash(&bad[last + 4..last + 32 + length as usize]);
    bad[last..last + 4].copy_from_slice(&crc.to_le_bytes());
    let mut on = bucket.config();
    sealing_its_log(&mut on);
    fs::write(&segment, &bad).unwrap();
    let objects = bucket.objects();
    for _ in 0..2 {
        let refusal = bucket.refusal(on.clone());
        assert!(refusal.contains("does not authenticate"), "{refusal}");
        assert!(refusal.contains("who can write to that disk"), "{refusal}");
        assert_eq!(fs::read(&segment).unwrap(), bad, "the evidence is left");
        assert_eq!(bucket.objects(), objects, "no epoch is taken");
    }
    fs::write(&segment, &good).unwrap();
    let life = bucket.start(sealing_its_log);
    assert_file(&life, b"first", CONTENT);
    assert_file(&life, b"second", CONTENT);
    life.crash();
    // Or without the log.
    fs::remove_dir_all(bucket.local.path().join("log")).unwrap();
    let life = bucket.start(sealing_its_log);
    assert_file(&life, b"first", CONTENT);
}

#[test]
fn a_sealed_log_that_was_put_aside_is_counted_without_keys_and_salvaged_with_them() {
    let bucket = sealed(1);
    let first = bucket.start(sealing_its_log);
    let both = write(&first, b"both", &pattern(1, 100_000));
    first.flush();
    first.write(both, 1000, CONTENT, Stability::FileSync);
    write(&first, b"own", &pattern(2, 50_000));
    first.crash();
    bucket.seen_elsewhere().start(|_| {}).stop();
    let first = bucket.start(sealing_its_log);
    let label = Label::parse("epoch-1");

    let locked = Logs::open(bucket.local.path()).unwrap();
    let counted = locked.info(&label).unwrap();
    assert!(counted.locked && locked.is_locked(Some(&label)));
    let unpublished = &counted.unpublished;
    assert!(unpublished.records >= 3, "{unpublished:?}");
    assert!(unpublished.data_bytes >= 50_000 && unpublished.files.is_empty());
    let events = locked.events(&label, Lsn::ZERO).map(drop);
    assert!(matches!(events, Err(LogsError::Locked { .. })));
    let to = folder();
    let target = to.path().join("salvaged");
    first.run(|_| async {
        let refused = locked.salvage(&label, &target, None).await.map(drop);
        assert!(matches!(refused, Err(LogsError::Locked { .. })));
        assert!(!target.exists());

        let (store, expected) = (bucket.store().await, Expected::Sealed(key_file(1)));
        let keys = data_keys(&store, &expected).await.unwrap();
        let logs = Logs::open_with(bucket.local.path(), keys, true).unwrap();
        let info = logs.info(&label).unwrap();
        assert!(!info.locked);
        assert_eq!(info.summary, counted.summary);
        let paths: Vec<_> = info
            .unpublished
            .files
            .iter()
            .map(|file| &*file.path)
            .collect();
        assert_eq!(paths, ["/both", "/own"]);
        let mut events = logs.events(&label, Lsn::ZERO).unwrap();
        while let Some(event) = events.next() {
            assert!(!matches!(event.what, What::Locked { .. } | What::Gap(_)));
        }
        let base = View::open(&store, &expected).await.unwrap();
        assert!(base.data_keys().is_some());
        let salvaged = logs.salvage(&label, &target, Some(&base)).await.unwrap();
        let contents: Vec<_> = salvaged.files.iter().map(|file| &file.content).collect();
        assert_eq!(contents, [&Content::Merged, &Content::Whole]);
    });
    let mut data = pattern(1, 100_000);
    data[1000..1000 + CONTENT.len()].copy_from_slice(CONTENT);
    assert_bytes(&fs::read(target.join("files/both")).unwrap(), &data);
    let own = fs::read(target.join("files/own")).unwrap();
    assert_bytes(&own, &pattern(2, 50_000));
}
