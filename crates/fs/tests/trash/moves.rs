//! What goes to the trash, and that the move there and back survives crashes.

use forebay_types::Inode;
use forebay_vfs::{Credentials, Error, FileSystem, NewNode, SetAttributes};

use super::*;

#[test]
fn a_removed_file_is_gone_for_clients_and_comes_back_as_it_was() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let caller = Credentials {
        uid: 0,
        ..keeping(24)
    };
    let kept = file(&life, Inode::ROOT, b"kept", 100);
    let set = SetAttributes {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        ..Default::default()
    };
    life.set(&ROOT, kept, set).unwrap();
    let before = life.getattr(kept).unwrap();
    clock.pass(5);
    remove(&life, &caller, Inode::ROOT, b"kept");

    assert_eq!(life.getattr(kept), Err(Error::Stale));
    assert_eq!(life.try_read(kept, 0, 1), Err(Error::Stale));
    assert_eq!(life.try_write(kept, 0, b"x"), Err(Error::Stale));
    assert_eq!(
        life.set(&ROOT, kept, SetAttributes::default()),
        Err(Error::Stale)
    );
    assert_eq!(life.link(kept, (Inode::ROOT, b"link")), Err(Error::Stale));
    assert_eq!(life.try_lookup(Inode::ROOT, b"kept"), Err(Error::NotFound));
    let [entry] = &listed(&life)[..] else {
        panic!("{:?}", listed(&life))
    };
    assert_eq!(entry.path.as_deref(), Some(&b"/kept"[..]));
    assert_eq!((entry.inode, entry.size, entry.by), (kept, 100 * KIB, 0));
    assert_eq!(entry.removed.seconds, START + 5);
    assert_eq!(entry.until, START as u64 + 5 + 24 * HOUR);
    assert_eq!(count(&life), (1, 100 * KIB));

    undelete(&life, "/kept").unwrap();
    let after = life.getattr(kept).unwrap();
    assert_eq!(life.lookup(b"kept"), after);
    assert_eq!(
        (
            after.mode,
            after.uid,
            after.gid,
            after.nlink,
            after.mtime,
            after.used
        ),
        (
            before.mode,
            before.uid,
            before.gid,
            1,
            before.mtime,
            before.used
        )
    );
    assert_whole(&life, kept, 100);
    assert_eq!(count(&life), (0, 0));
    assert!(matches!(
        undelete(&life, "/kept"),
        Err(TrashError::NotFound(_))
    ));
}

#[test]
fn only_the_last_link_of_a_file_and_no_silly_name_goes_to_the_trash() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let caller = keeping(1);
    let two = file(&life, Inode::ROOT, b"one", 1);
    life.link(two, (Inode::ROOT, b"two")).unwrap();
    remove(&life, &caller, Inode::ROOT, b"one");
    assert_eq!(listed(&life), []);
    assert_eq!(life.getattr(two).unwrap().nlink, 1);
    remove(&life, &caller, Inode::ROOT, b"two");
    assert_eq!(paths(&life), ["/two"]);

    let silly = file(&life, Inode::ROOT, b".nfs000000000000001200000001", 1);
    remove(&life, &caller, Inode::ROOT, b".nfs000000000000001200000001");
    // One that is replaced, too.
    let other = file(&life, Inode::ROOT, b".nfs2", 1);
    file(&life, Inode::ROOT, b"source", 1);
    let (from, to) = ((Inode::ROOT, &b"source"[..]), (Inode::ROOT, &b".nfs2"[..]));
    rename(&life, &caller, from, to);
    life.run(|volume| async move {
        let set = SetAttributes::default();
        for (name, node) in [(&b"s"[..], NewNode::Symlink(b"to")), (b"f", NewNode::Fifo)] {
            let caller = ROOT;
            let made = volume.make(&caller, Inode::ROOT, name, node, &set);
            made.await.unwrap();
        }
    });
    remove(&life, &caller, Inode::ROOT, b"s");
    remove(&life, &caller, Inode::ROOT, b"f");
    // And nothing of a caller without a trash.
    file(&life, Inode::ROOT, b"plain", 1);
    life.remove(b"plain");
    assert_eq!(paths(&life), ["/two"]);
    for inode in [silly, other] {
        assert_eq!(life.getattr(inode), Err(Error::Stale));
    }
}

#[test]
fn the_move_to_the_trash_and_back_survives_a_crash_after_each_step() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    // What the bucket knows already at the crash, and what the log alone has.
    for flushed in [0, 1, 2, 3, 4] {
        let name = |what: &str| format!("{what}-{flushed}").into_bytes();
        let (removed, replaced, new) = (name("removed"), name("replaced"), name("new"));
        let mut life = start(&bucket, &clock, |_| {});
        let mut step = 0;
        let mut again = |life: Life| {
            if step == flushed {
                life.flush();
            }
            step += 1;
            life.crash();
            start(&bucket, &clock, |_| {})
        };
        let one = file(&life, Inode::ROOT, &removed, 10);
        let two = file(&life, Inode::ROOT, &replaced, 20);
        let three = file(&life, Inode::ROOT, &new, 30);
        life = again(life);
        let caller = keeping(1);
        remove(&life, &caller, Inode::ROOT, &removed);
        let to = (Inode::ROOT, &replaced[..]);
        rename(&life, &caller, (Inode::ROOT, &new), to);
        let (entries, counts) = (listed(&life), count(&life));
        assert_eq!(counts, (2, 30 * KIB));
        life = again(life);
        assert_eq!((listed(&life), count(&life)), (entries, counts));
        for inode in [one, two] {
            assert_eq!(life.getattr(inode), Err(Error::Stale));
        }
        let path = String::from_utf8(removed.clone()).unwrap();
        undelete(&life, &format!("/{path}")).unwrap();
        life = again(life);
        assert_eq!(life.lookup(&removed).inode, one);
        assert_whole(&life, one, 10);
        assert_eq!(count(&life), (1, 20 * KIB));
        clock.pass(HOUR);
        empty(&life);
        eventually("the trash is empty", || count(&life) == (0, 0));
        life = again(life);
        assert_eq!((listed(&life), count(&life)), (Vec::new(), (0, 0)));
        assert_eq!(life.getattr(two), Err(Error::Stale));
        assert_whole(&life, three, 30);
        life.stop();
    }
}

#[test]
fn a_gateway_with_the_bucket_alone_has_the_trash_of_the_last_publication() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let one = file(&life, Inode::ROOT, b"one", 5000);
    remove(&life, &keeping(1), Inode::ROOT, b"one");
    life.flush();
    let entries = listed(&life);
    life.crash();
    let other = bucket.start_elsewhere(|_| {});
    assert_eq!((listed(&other), count(&other)), (entries, (1, 5000 * KIB)));
    undelete(&other, "/one").unwrap();
    assert_whole(&other, one, 5000);
}

#[test]
fn bytes_that_were_never_published_are_kept_and_collected_later() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let short = file(&life, Inode::ROOT, b"short", 3000);
    remove(&life, &keeping(1), Inode::ROOT, b"short");
    life.flush();
    assert_eq!(life.volume.status().used_bytes, 3000 * KIB);
    let life = {
        life.crash();
        bucket.start(|_| {})
    };
    undelete(&life, "/short").unwrap();
    assert_whole(&life, short, 3000);
}

#[test]
fn a_snapshot_has_the_trash_as_it_was() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let kept = file(&life, Inode::ROOT, b"kept", 3);
    remove(&life, &keeping(1), Inode::ROOT, b"kept");
    life.run(|volume| async move { volume.make_snapshot("then", "me").await.unwrap() });
    life.flush();
    clock.pass(HOUR);
    eventually("the trash is empty", || count(&life) == (0, 0));
    life.flush();
    let view = life.run(|volume| async move { volume.open_snapshot("then").await.unwrap() });
    life.run(|_| async move {
        assert_eq!(view.getattr(kept).await, Err(Error::Stale));
        assert_eq!(view.read(&ROOT, kept, 0, 1).await.err(), Some(Error::Stale));
        let found = view.lookup(&ROOT, Inode::ROOT, b"kept").await;
        assert_eq!(found, Err(Error::NotFound));
        let sizes = view.statistics().await.unwrap();
        // The root alone has a name.
        assert_eq!(sizes.total_files - sizes.free_files, 1);
    });
}
