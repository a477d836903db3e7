//! When entries leave, and what the trash counts in.

use std::sync::atomic::Ordering;

use forebay_fs::{LimitChange, TrashError};
use forebay_types::Inode;
use forebay_vfs::{Error, FileSystem, Stability};

use super::*;

#[test]
fn entries_leave_when_their_time_is_over_and_not_before() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    for (name, hours) in [(&b"long"[..], 3), (b"short", 1), (b"middle", 2)] {
        file(&life, Inode::ROOT, name, 4);
        remove(&life, &keeping(hours), Inode::ROOT, name);
    }
    clock.pass(1);
    file(&life, Inode::ROOT, b"later", 4);
    remove(&life, &keeping(1), Inode::ROOT, b"later");
    life.flush();
    assert_eq!(paths(&life), ["/short", "/later", "/middle", "/long"]);
    clock.pass(HOUR - 2);
    empty(&life);
    assert_eq!(listed(&life).len(), 4);
    clock.pass(1);
    eventually("the task deletes the first one", || count(&life).0 < 4);
    empty(&life);
    assert_eq!(paths(&life), ["/later", "/middle", "/long"]);
    clock.pass(1);
    eventually("the task deletes the one of a second later", || {
        count(&life) == (2, 8 * KIB)
    });
    assert_eq!(paths(&life), ["/middle", "/long"]);
    // A clock that goes back deletes nothing, and one that jumps deletes all.
    clock.0.store(START - 10, Ordering::SeqCst);
    empty(&life);
    assert_eq!(listed(&life).len(), 2);
    clock.pass(100 * HOUR);
    eventually("all are deleted", || count(&life) == (0, 0));
    let status = life.volume.status();
    assert_eq!((status.trash_expired, status.trash_displaced), (4, 0));
    life.flush();
    life.run(|volume| async move { volume.flush().await.unwrap() });
    eventually("their bytes are collected", || {
        life.flush();
        life.volume.status().used_bytes == 0
    });
}

#[test]
fn a_full_trash_gives_up_what_would_be_deleted_next() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    // Three files of 100 KiB with 4 KiB each.
    let life = start(&bucket, &clock, |config| {
        config.trash_limit = 3 * (104 << 10);
    });
    for name in [&b"a"[..], b"b", b"c"] {
        file(&life, Inode::ROOT, name, 100);
        remove(&life, &keeping(1), Inode::ROOT, name);
        clock.pass(1);
    }
    empty(&life);
    assert_eq!(paths(&life), ["/a", "/b", "/c"]);
    file(&life, Inode::ROOT, b"d", 100);
    remove(&life, &keeping(1), Inode::ROOT, b"d");
    eventually("there is room again", || count(&life) == (3, 300 * KIB));
    assert_eq!(paths(&life), ["/b", "/c", "/d"]);
    // One that does not fit at all is deleted, and takes nothing with it.
    file(&life, Inode::ROOT, b"e", 1000);
    remove(&life, &keeping(1), Inode::ROOT, b"e");
    empty(&life);
    assert_eq!(paths(&life), ["/b", "/c", "/d"]);
    assert_eq!(life.volume.status().trash_displaced, 1);
    // Empty files have an end, too.
    for number in 0..80 {
        let name = format!("empty-{number:02}").into_bytes();
        life.create(&name);
        remove(&life, &keeping(1), Inode::ROOT, &name);
    }
    eventually("empty files leave", || count(&life).0 <= 78);
    empty(&life);
    assert_eq!(count(&life), (78, 0));
}

#[test]
fn a_full_volume_takes_new_files_and_the_trash_gives_way() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |config| config.volume_limit = 10 << 20);
    let free = |life: &Life| {
        let sizes = life.run(|volume| async move { volume.statistics().await.unwrap() });
        sizes.available_bytes
    };
    for number in 0..10_u8 {
        file(&life, Inode::ROOT, &[b'a' + number], 1000);
        remove(&life, &keeping(1), Inode::ROOT, &[b'a' + number]);
        clock.pass(1);
    }
    // Nothing with a name: all is free.
    assert_eq!(free(&life), 10 << 20);
    assert_eq!(count(&life).0, 10);
    // None of these writes fails or waits for the trash.
    let big = life.create(b"big");
    for mib in 0..10 {
        life.write(big, mib << 20, &pattern(mib, 1 << 20), Stability::FileSync);
    }
    assert_eq!(life.try_write(big, 10 << 20, b"x"), Err(Error::NoSpace));
    eventually("the trash has given way", || count(&life) == (0, 0));
    // What does not fit into the volume with the rest does not come back.
    life.truncate(big, 9 << 20);
    let last = file(&life, Inode::ROOT, b"last", 1000);
    remove(&life, &keeping(1), Inode::ROOT, b"last");
    life.write(big, 9 << 20, &pattern(1, 1 << 20), Stability::FileSync);
    let refused = undelete_to(&life, last, "/last");
    assert!(
        matches!(
            refused,
            Err(TrashError::Volume(Error::NoSpace) | TrashError::NoSuchId(_))
        ),
        "{refused:?}"
    );
}

#[test]
fn the_trash_counts_in_no_quota_and_what_comes_back_does() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let used = |life: &Life| {
        let quota = life.run(|volume| async move { volume.quota(b"/top").await.unwrap() });
        (quota.used_bytes, quota.used_files)
    };
    life.run(|volume| async move {
        let limit = LimitChange::To(100 << 10);
        volume
            .set_quota(b"/top", limit, LimitChange::Keep)
            .await
            .unwrap();
    });
    let one = file(&life, top, b"one", 80);
    assert_eq!(used(&life), (80 * KIB, 2));
    remove(&life, &keeping(1), top, b"one");
    assert_eq!(used(&life), (0, 1));
    let two = file(&life, top, b"two", 80);
    let refused = undelete(&life, "/top/one");
    assert_eq!(refused, Err(TrashError::Volume(Error::Quota)));
    assert_eq!(count(&life), (1, 80 * KIB));
    life.flush();
    let life = {
        life.crash();
        start(&bucket, &clock, |_| {})
    };
    assert_eq!((used(&life), count(&life)), ((80 * KIB, 2), (1, 80 * KIB)));
    remove(&life, &keeping(0), top, b"two");
    undelete(&life, "/top/one").unwrap();
    assert_eq!((used(&life), count(&life)), ((80 * KIB, 2), (0, 0)));
    assert_eq!(life.getattr(two), Err(Error::Stale));
    assert_whole(&life, one, 80);
}
