//! The trash: what is removed or replaced stays as long as the caller says, through crashes, and gives way.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::*;
use forebay_fs::{Clock, Environment, FsConfig, LimitChange, TrashEntry, TrashError, Wanted};
use forebay_types::Inode;
use forebay_vfs::{
    CreateMode, Credentials, Error, FileSystem, NewNode, SetAttributes, Stability, Timestamp,
};

const HOUR: u64 = 3600;
const START: i64 = 1_800_000_000;
const KIB: u64 = 1 << 10;

/// A clock that stands still until a test moves it.
#[derive(Clone)]
struct Still(Arc<AtomicI64>);

impl Still {
    fn new() -> Still {
        Still(Arc::new(AtomicI64::new(START)))
    }

    fn pass(&self, seconds: u64) {
        self.0.fetch_add(seconds.cast_signed(), Ordering::SeqCst);
    }
}

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: self.0.load(Ordering::SeqCst),
            nanos: 0,
        }
    }
}

fn start(bucket: &Bucket, clock: &Still, change: impl FnOnce(&mut FsConfig)) -> Life {
    let mut config = bucket.config();
    change(&mut config);
    let environment = Environment {
        clock: Arc::new(clock.clone()),
        ..Environment::real(config.data_dir.clone())
    };
    bucket.try_start_in(config, environment).unwrap()
}

/// A user whose files stay in the trash for some hours.
fn keeping(hours: u64) -> Credentials {
    Credentials {
        trash: u32::try_from(hours * HOUR).unwrap(),
        ..ROOT
    }
}

fn remove(life: &Life, caller: &Credentials, directory: Inode, name: &[u8]) {
    life.run(|volume| async move {
        volume.remove(caller, directory, name).await.unwrap();
    });
}

fn rmdir(life: &Life, caller: &Credentials, directory: Inode, name: &[u8]) {
    life.run(|volume| async move {
        volume.rmdir(caller, directory, name).await.unwrap();
    });
}

fn rename(life: &Life, caller: &Credentials, from: (Inode, &[u8]), to: (Inode, &[u8])) {
    life.run(|volume| async move {
        volume.rename(caller, from, to).await.unwrap();
    });
}

/// Makes a file with `kib` KiB of its own bytes.
fn file(life: &Life, directory: Inode, name: &[u8], kib: u64) -> Inode {
    let inode = life.create_in(directory, name);
    let bytes = pattern(inode.0, (kib * KIB) as usize);
    life.write(inode, 0, &bytes, Stability::FileSync);
    inode
}

#[track_caller]
fn assert_whole(life: &Life, inode: Inode, kib: u64) {
    let bytes = pattern(inode.0, (kib * KIB) as usize);
    assert_bytes(&life.read(inode, 0, bytes.len() + 1), &bytes);
}

fn listed(life: &Life) -> Vec<TrashEntry> {
    life.run(|volume| async move { volume.trash_after(None, 10_000).await.unwrap() })
}

fn paths(life: &Life) -> Vec<String> {
    let path = |entry: TrashEntry| String::from_utf8(entry.path.unwrap()).unwrap();
    listed(life).into_iter().map(path).collect()
}

fn undelete(life: &Life, path: &str) -> Result<Vec<TrashEntry>, TrashError> {
    let wanted = Wanted::Path(path.as_bytes().to_vec());
    let back = life.run(|volume| async move { volume.undelete(&wanted, None).await });
    back.map(|(entries, _)| entries)
}

fn undelete_to(life: &Life, inode: Inode, to: &str) -> Result<(), TrashError> {
    let to = to.as_bytes().to_vec();
    life.run(|volume| async move {
        let back = volume.undelete(&Wanted::Id(inode), Some(&to)).await;
        back.map(drop)
    })
}

fn empty(life: &Life) {
    life.run(|volume| async move { volume.empty_trash().await.unwrap() });
}

fn count(life: &Life) -> (u64, u64) {
    let status = life.volume.status();
    (status.trash_entries, status.trash_bytes)
}

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
    let (back, left) =
        life.run(|volume| async move { volume.undelete(&wanted, None).await.unwrap() });
    assert_eq!((back.len(), left), (2, 1));
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
    let gone = life.run(|volume| async move { volume.undelete(&id, None).await });
    assert!(matches!(gone, Err(TrashError::NoPath(_))), "{gone:?}");
    undelete_to(&life, kept, "/moved/kept").unwrap();
    assert_whole(&life, kept, 3);
}

#[test]
fn entries_leave_when_their_time_is_over_and_not_before() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    for (name, hours) in [(&b"long"[..], 3), (b"short", 1), (b"middle", 2)] {
        file(&life, Inode::ROOT, name, 4);
        remove(&life, &keeping(hours), Inode::ROOT, name);
    }
    life.flush();
    assert_eq!(paths(&life), ["/short", "/middle", "/long"]);
    clock.pass(HOUR - 1);
    empty(&life);
    assert_eq!(listed(&life).len(), 3);
    clock.pass(1);
    eventually("the task deletes the first one", || {
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
    assert_eq!((status.trash_expired, status.trash_displaced), (3, 0));
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
    let wanted = Wanted::Path(b"/top/one".to_vec());
    let refused = life.run(|volume| async move { volume.undelete(&wanted, None).await });
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

/// Measures how fast the trash is filled, listed and emptied.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement is printed")]
fn measured_entries_a_second() {
    const FILES: u64 = 100_000;
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |config| {
        config.checkpoint_interval = Duration::from_secs(1);
    });
    let rate = |begun: std::time::Instant| FILES as f64 / begun.elapsed().as_secs_f64();
    let names: Vec<Vec<u8>> = (0..FILES)
        .map(|n| format!("file-{n}").into_bytes())
        .collect();
    let run = |caller: Credentials| {
        life.run(|volume| {
            let names = &names;
            async move {
                for name in names {
                    let mode = CreateMode::Guarded(SetAttributes::default());
                    let made = volume.create(&ROOT, Inode::ROOT, name, &mode).await;
                    let inode = made.unwrap().attributes.inode;
                    let caller = ROOT;
                    let written = volume.write(&caller, inode, 0, name, Stability::Unstable);
                    written.await.unwrap();
                }
                volume.flush().await.unwrap();
                let begun = std::time::Instant::now();
                for name in names {
                    volume.remove(&caller, Inode::ROOT, name).await.unwrap();
                }
                begun
            }
        })
    };
    let begun = run(ROOT);
    println!("REMOVE without trash: {:.0} a second", rate(begun));
    let begun = run(keeping(1));
    println!("REMOVE with trash: {:.0} a second", rate(begun));
    life.flush();
    let begun = std::time::Instant::now();
    life.run(|volume| async move {
        let (mut after, mut all) = (None, 0);
        loop {
            let found = volume.trash_after(after, 1024).await.unwrap();
            all += found.len();
            after = found.last().map(|last| (last.until, last.inode));
            if found.len() < 1024 {
                break;
            }
        }
        assert_eq!(all as u64, FILES);
    });
    println!("listed: {:.0} a second", rate(begun));
    clock.pass(2 * HOUR);
    let begun = std::time::Instant::now();
    eventually("the trash is empty", || count(&life) == (0, 0));
    println!("emptied by the task: {:.0} a second", rate(begun));
}
