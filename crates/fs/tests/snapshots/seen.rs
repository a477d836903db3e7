//! Snapshots as front ends see them.

use bytes::Bytes;
use forebay_types::{Inode, SnapshotId};
use forebay_vfs::{Credentials, Error, FileSystem, Snapshots};

use super::{MIB, delete, eager, snapshot, write};
use crate::common::{Bucket, Life, ROOT, eventually, read, user};

fn image(life: &Life, id: SnapshotId) -> Result<(), Error> {
    life.run(|volume| async move { volume.snapshot(id).await.map(drop) })
}

#[test]
fn a_snapshot_is_opened_by_its_number_until_it_is_deleted() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let bytes = write(&life, file, 1, MIB);
    bucket.controls.everything.close();
    snapshot(&life, "one");
    let opened = life.volume.snapshots_changed();
    let one = life.volume.snapshot_named(b"one").unwrap();
    assert_eq!(life.volume.snapshot_named(b"two"), None);
    assert_eq!(life.volume.snapshot_named(b"\xff"), None);
    // The bucket does not have it yet: a client tries again.
    assert_eq!(image(&life, one), Err(Error::Delay));
    bucket.controls.everything.open();
    eventually("the snapshot is published without being asked for", || {
        image(&life, one).is_ok()
    });
    snapshot(&life, "two");
    assert_ne!(life.volume.snapshots_changed(), opened);
    let two = SnapshotId(one.0 + 1);
    assert_eq!(
        life.volume.snapshots_after(0, 9),
        [(one, Bytes::from("one")), (two, Bytes::from("two"))]
    );
    assert_eq!(life.volume.snapshots_after(0, 1).len(), 1);
    assert_eq!(life.volume.snapshots_after(one.0, 9).len(), 1);
    life.flush();

    // A client that reads it while it is being deleted.
    let reading = life.run(|volume| async move { volume.snapshot(one).await.unwrap() });
    let found = life.run(|_| async move {
        let found = read(&*reading, file, 0, bytes.len()).await.unwrap();
        found == bytes
    });
    assert!(found);
    delete(&life, "one").unwrap();
    assert!(!life.volume.has_snapshot(one));
    assert_eq!(image(&life, one), Err(Error::Stale));
    assert_eq!(life.volume.snapshot_named(b"one"), None);
    assert_eq!(life.volume.snapshots_after(0, 9).len(), 1);
    // Its name is free, and its number is not given to another one.
    snapshot(&life, "one");
    let again = life.volume.snapshot_named(b"one");
    assert_eq!(again, Some(SnapshotId(two.0 + 1)));
    life.stop();
    let life = bucket.start_elsewhere(eager);
    assert_eq!(life.volume.snapshot_named(b"one"), again);
    assert_eq!(image(&life, one), Err(Error::Stale));
    assert_eq!(image(&life, two), Ok(()));
    life.stop();
}

#[test]
fn more_snapshots_can_be_read_in_turn_than_stay_open() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let written: Vec<Vec<u8>> = (0..20)
        .map(|number| {
            let bytes = write(&life, file, number, 10_000 + number);
            snapshot(&life, &format!("s{number}"));
            bytes
        })
        .collect();
    life.flush();
    for _ in 0..2 {
        for (id, name) in life.volume.snapshots_after(0, 100) {
            let number = id.0 as usize - 1;
            assert_eq!(name, format!("s{number}"));
            let found = life.run(|volume| async move {
                let image = volume.snapshot(id).await.unwrap();
                read(&*image, file, 0, MIB as usize).await.unwrap()
            });
            assert!(found == written[number], "{name:?}");
        }
    }
    life.stop();
}

#[test]
fn rights_in_a_snapshot_are_those_of_its_time() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let mode = |mode| forebay_vfs::SetAttributes {
        mode: Some(mode),
        ..Default::default()
    };
    life.set(&ROOT, file, mode(0o600)).unwrap();
    snapshot(&life, "closed");
    life.set(&ROOT, file, mode(0o644)).unwrap();
    snapshot(&life, "open");
    life.set(&ROOT, file, mode(0o600)).unwrap();
    life.flush();
    let reads = |name: &'static [u8], caller: Credentials| {
        life.run(|volume| async move {
            let id = volume.snapshot_named(name).unwrap();
            let image = volume.snapshot(id).await.unwrap();
            let looked = image.lookup(&caller, Inode::ROOT, b"file").await;
            assert_eq!(looked.unwrap().inode, file);
            image.read(&caller, file, 0, 10).await.map(drop)
        })
    };
    assert_eq!(reads(b"closed", user(5, 5, &[])), Err(Error::Access));
    assert_eq!(reads(b"open", user(5, 5, &[])), Ok(()));
    assert_eq!(reads(b"closed", ROOT), Ok(()));
    life.stop();
}
