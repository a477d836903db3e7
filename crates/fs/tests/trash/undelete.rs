//! What comes back, and under which path.

use forebay_fs::{LimitChange, TrashError, Wanted};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes};

use super::*;

#[test]
fn a_replaced_file_goes_to_the_trash_and_never_replaces_another() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let old = file(&life, Inode::ROOT, b"name", 10);
    let new = file(&life, Inode::ROOT, b"new", 20);
    rename(
        &life,
        &keeping(1),
        (Inode::ROOT, b"new"),
        (Inode::ROOT, b"name"),
    );
    assert_eq!(paths(&life), ["/name"]);
    assert!(matches!(
        undelete(&life, "/name"),
        Err(TrashError::Exists(_))
    ));
    assert_eq!(life.lookup(b"name").inode, new);
    assert!(matches!(
        undelete_to(&life, old, "/name"),
        Err(TrashError::Exists(_))
    ));
    assert!(matches!(
        undelete_to(&life, old, "/nowhere/name"),
        Err(TrashError::NoDirectory(_))
    ));
    undelete_to(&life, old, "/name.old").unwrap();
    assert_eq!(life.lookup(b"name.old").inode, old);
    assert_whole(&life, old, 10);
    assert_whole(&life, new, 20);
    assert!(matches!(
        undelete_to(&life, old, "/again"),
        Err(TrashError::NoSuchId(_))
    ));
}

#[test]
fn a_removed_tree_comes_back_with_its_directories() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let caller = keeping(2);
    let top = life.mkdir(Inode::ROOT, b"top");
    let below = life.mkdir(top, b"below");
    let set = SetAttributes {
        mode: Some(0o750),
        uid: Some(3),
        ..Default::default()
    };
    life.set(&ROOT, below, set).unwrap();
    let deep = file(&life, below, b"deep", 10);
    let high = file(&life, top, b"high", 20);
    // Two versions of one path: the newer one comes back.
    let older = file(&life, top, b"twice", 1);
    remove(&life, &caller, top, b"twice");
    clock.pass(1);
    let newer = file(&life, top, b"twice", 2);
    for (directory, name) in [(top, &b"twice"[..]), (below, b"deep"), (top, b"high")] {
        remove(&life, &caller, directory, name);
    }
    rmdir(&life, &caller, top, b"below");
    rmdir(&life, &caller, Inode::ROOT, b"top");
    let mut all = paths(&life);
    all.sort();
    assert_eq!(
        all,
        [
            "/top",
            "/top/below",
            "/top/below/deep",
            "/top/high",
            "/top/twice",
            "/top/twice"
        ]
    );
    assert_eq!(life.getattr(top), Err(Error::Stale));
    let life = {
        life.crash();
        start(&bucket, &clock, |_| {})
    };
    // One file brings its directories back, and nothing else.
    undelete(&life, "/top/below/deep").unwrap();
    assert_eq!(life.lookup(b"top").inode, top);
    assert_eq!(life.try_lookup(top, b"below").unwrap().inode, below);
    assert_eq!(life.try_lookup(below, b"deep").unwrap().inode, deep);
    let attributes = life.getattr(below).unwrap();
    assert_eq!(
        (attributes.mode, attributes.uid, attributes.nlink),
        (0o750, 3, 2)
    );
    assert_eq!(life.getattr(top).unwrap().nlink, 3);
    assert_eq!(life.try_lookup(top, b"high"), Err(Error::NotFound));
    // And the directory brings back what was in it.
    let wanted = Wanted::Path(b"/top/".to_vec());
    let (_, done) = undelete_wanted(&life, wanted, None).unwrap();
    assert_eq!((done.objects, done.left), (2, 1));
    assert_eq!(life.try_lookup(top, b"high").unwrap().inode, high);
    assert_eq!(life.try_lookup(top, b"twice").unwrap().inode, newer);
    assert_eq!(listed(&life)[0].inode, older);
    // New names can be made there, and removed.
    file(&life, below, b"more", 1);
    assert_eq!(life.list(below, 10).len(), 4);
}

#[test]
fn a_directory_that_was_made_again_takes_the_files_of_the_old_one() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let caller = keeping(2);
    let old = life.mkdir(Inode::ROOT, b"home");
    let kept = file(&life, old, b"kept", 3);
    remove(&life, &caller, old, b"kept");
    rmdir(&life, &caller, Inode::ROOT, b"home");
    let new = life.mkdir(Inode::ROOT, b"home");
    // A directory with another name now has its files there.
    rename(
        &life,
        &caller,
        (Inode::ROOT, b"home"),
        (Inode::ROOT, b"moved"),
    );
    let newest = life.mkdir(Inode::ROOT, b"home");
    undelete(&life, "/home/kept").unwrap();
    assert_eq!(life.try_lookup(newest, b"kept").unwrap().inode, kept);
    assert_eq!(life.try_lookup(new, b"kept"), Err(Error::NotFound));
    remove(&life, &caller, newest, b"kept");
    rename(
        &life,
        &caller,
        (Inode::ROOT, b"home"),
        (Inode::ROOT, b"away"),
    );
    assert!(paths(&life).contains(&"/away/kept".to_owned()));
    // A file in the place of the directory is never replaced.
    rmdir(&life, &keeping(0), Inode::ROOT, b"away");
    let entries = listed(&life);
    let lost = entries.iter().find(|entry| entry.inode == kept).unwrap();
    assert_eq!(lost.path, None, "its directory is gone");
    let id = Wanted::Id(kept);
    let gone = undelete_wanted(&life, id, None);
    assert!(matches!(gone, Err(TrashError::NoPath(_))), "{gone:?}");
    undelete_to(&life, kept, "/moved/kept").unwrap();
    assert_whole(&life, kept, 3);
}

#[test]
fn a_name_that_is_made_again_beside_the_trash_is_another_file() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let first = file(&life, Inode::ROOT, b"name", 1);
    remove(&life, &keeping(1), Inode::ROOT, b"name");
    let made = life.run(|volume| async move {
        let mode = CreateMode::Guarded(SetAttributes::default());
        volume.create(&ROOT, Inode::ROOT, b"name", &mode).await
    });
    assert_ne!(made.unwrap().attributes.inode, first);
    remove(&life, &keeping(1), Inode::ROOT, b"name");
    assert_eq!(paths(&life), ["/name", "/name"]);
    // The newest of a path comes back first.
    clock.pass(1);
    let back = undelete(&life, "/name").unwrap();
    assert_eq!(back.len(), 1);
    assert_ne!(back[0].inode, first);
}

fn limit(life: &Life, bytes: u64) {
    life.run(|volume| async move {
        let bytes = LimitChange::To(bytes);
        let set = volume.set_quota(b"/top", bytes, LimitChange::Keep);
        set.await.unwrap();
    });
}

#[test]
fn a_quota_stops_the_return_of_a_directory_half_way_and_the_error_says_what_is_back() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let sizes = [("old", 4), ("large", 80), ("small", 8)];
    let files = sizes.map(|(name, kib)| {
        let inode = file(&life, top, name.as_bytes(), kib);
        remove(&life, &keeping(1), top, name.as_bytes());
        clock.pass(1);
        inode
    });
    limit(&life, 40 << 10);
    // The newest comes first.
    let wanted = Wanted::Path(b"/top".to_vec());
    let refused = undelete_wanted(&life, wanted.clone(), None).unwrap_err();
    let TrashError::Partly { back: 1, why } = &refused else {
        panic!("{refused:?}");
    };
    assert!(refused.to_string().contains(why), "{refused}");
    let message = "1 of the objects came back; the others stay in the trash";
    assert!(refused.to_string().starts_with(message), "{refused}");
    // With nothing back it is the error itself.
    let refused = undelete_wanted(&life, wanted.clone(), None);
    assert_eq!(refused.err(), Some(TrashError::Volume(Error::Quota)));
    // What is back is stable.
    life.crash();
    let life = start(&bucket, &clock, |_| {});
    assert_eq!(life.try_lookup(top, b"small").unwrap().inode, files[2]);
    assert_whole(&life, files[2], 8);
    assert_eq!(count(&life), (2, 84 * KIB));
    let mut rest = paths(&life);
    rest.sort();
    assert_eq!(rest, ["/top/large", "/top/old"]);
    limit(&life, 1 << 30);
    let (_, done) = undelete_wanted(&life, wanted, None).unwrap();
    assert_eq!((done.objects, done.left), (2, 0));
    for (inode, (_, kib)) in files.into_iter().zip(sizes) {
        assert_whole(&life, inode, kib);
    }
}
