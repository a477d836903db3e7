//! Times, link counts, and attributes from before and after (weak cache consistency).

use forebay_fs::Volume;
use forebay_vfs::{
    Attributes, Change, CreateMode, FileSystem, NewNode, SetAttributes, SetTime, Stability,
    Timestamp,
};

use super::{TOP, mode};
use crate::common::*;

#[test]
fn replies_carry_the_attributes_from_before_and_after() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.run(|volume| async move {
        let before = volume.getattr(TOP).await.unwrap();
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = volume.create(&ROOT, TOP, b"f", &mode).await.unwrap();
        let now = volume.getattr(TOP).await.unwrap();
        assert_eq!(made.directory.before, Some((&before).into()));
        assert_eq!(made.directory.after, Some(now));
        assert!(now.mtime > before.mtime && now.ctime > before.ctime);

        let inode = made.attributes.inode;
        let wrote = volume
            .write(&ROOT, inode, 0, b"abc", Stability::Unstable)
            .await
            .unwrap();
        assert_eq!(wrote.change.before, Some((&made.attributes).into()));
        let after = wrote.change.after.unwrap();
        assert_eq!(after.size, 3);
        assert!(after.mtime > made.attributes.mtime);
        assert_eq!(volume.getattr(inode).await.unwrap(), after);

        let set = SetAttributes {
            size: Some(1),
            ..Default::default()
        };
        let cut = volume.setattr(&ROOT, inode, &set, None).await.unwrap();
        assert_eq!(cut.before, Some((&after).into()));
        assert_eq!(cut.after.unwrap().size, 1);
        let (linked, change) = volume.link(&ROOT, inode, TOP, b"g").await.unwrap();
        assert_eq!(linked.nlink, 2);
        assert_eq!(change.before, Some((&now).into()));
        let removed = volume.remove(&ROOT, TOP, b"g").await.unwrap();
        assert_eq!(removed.before, change.after.as_ref().map(Into::into));
        let (from, to) = volume
            .rename(&ROOT, (TOP, b"f"), (TOP, b"h"))
            .await
            .unwrap();
        assert_eq!(from.before, removed.after.as_ref().map(Into::into));
        assert_eq!(from, to);
        let (commit, _) = volume.commit(&ROOT, inode, 0, 0).await.unwrap();
        assert_eq!(commit.after.unwrap().size, 1);
    });
}

/// The comparison of a client that trusts its caches: each change must be visible, no less and no more.
fn moved(change: &Change) -> bool {
    let (before, after) = (change.before.unwrap(), change.after.unwrap());
    let changed = (after.mtime > before.mtime, after.ctime > before.ctime);
    assert_eq!(changed.0, changed.1, "both times of a directory, or none");
    changed.0
}

/// Asserts that a change begins with the state in which the directory was left, and ends with its current one.
async fn follows(volume: &Volume, left: &mut Attributes, change: &Change) {
    assert_eq!(change.before, Some((&*left).into()));
    assert!(moved(change));
    *left = volume.getattr(left.inode).await.unwrap();
    assert_eq!(change.after, Some(*left));
}

#[test]
fn every_change_of_names_moves_the_times_of_directories_and_objects_and_counts_links() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (one, other) = (life.mkdir(TOP, b"one"), life.mkdir(TOP, b"other"));
    life.run(|volume| async move {
        let get = |inode| {
            let volume = volume.clone();
            async move { volume.getattr(inode).await.unwrap() }
        };
        let (mut from, mut to) = (get(one).await, get(other).await);
        let guarded = CreateMode::Guarded(mode(0o644));
        let file = volume.create(&ROOT, one, b"f", &guarded).await.unwrap();
        follows(&volume, &mut from, &file.directory).await;
        let file = file.attributes;
        assert_eq!((file.mtime, file.nlink), (file.ctime, 1));
        for (name, node) in [
            (&b"d"[..], NewNode::Directory),
            (b"l", NewNode::Symlink(b"t")),
        ] {
            let made = volume
                .make(&ROOT, one, name, node, &mode(0o755))
                .await
                .unwrap();
            follows(&volume, &mut from, &made.directory).await;
        }
        assert_eq!(from.nlink, 3);
        let directory = volume.lookup(&ROOT, one, b"d").await.unwrap();
        assert_eq!(directory.nlink, 2);

        // LINK: the other directory, and the object's ctime alone.
        let (linked, change) = volume.link(&ROOT, file.inode, other, b"g").await.unwrap();
        follows(&volume, &mut to, &change).await;
        assert_eq!((linked.nlink, linked.mtime), (2, file.mtime));
        assert!(linked.ctime > file.ctime);
        assert_eq!(
            get(one).await,
            from,
            "nothing happened to its first directory"
        );

        // RENAME of a directory: both directories, their link counts, and the object's ctime.
        let (change_from, change_to) = volume
            .rename(&ROOT, (one, b"d"), (other, b"e"))
            .await
            .unwrap();
        follows(&volume, &mut from, &change_from).await;
        follows(&volume, &mut to, &change_to).await;
        assert_eq!((from.nlink, to.nlink), (2, 3));
        let renamed = get(directory.inode).await;
        assert_eq!((renamed.nlink, renamed.mtime), (2, directory.mtime));
        assert!(renamed.ctime > directory.ctime);

        // RENAME over a file that has another name: it loses one, and its ctime changes.
        let (change_from, change_to) = volume
            .rename(&ROOT, (one, b"l"), (other, b"g"))
            .await
            .unwrap();
        follows(&volume, &mut from, &change_from).await;
        follows(&volume, &mut to, &change_to).await;
        let left = get(file.inode).await;
        assert_eq!((left.nlink, left.mtime), (1, file.mtime));
        assert!(left.ctime > linked.ctime);

        // RENAME within a directory is one change of it.
        let (change_from, change_to) = volume
            .rename(&ROOT, (one, b"f"), (one, b"h"))
            .await
            .unwrap();
        assert_eq!(change_from, change_to);
        follows(&volume, &mut from, &change_from).await;
        assert!(get(file.inode).await.ctime > left.ctime);

        // REMOVE of one name of two, RMDIR.
        volume.link(&ROOT, file.inode, other, b"i").await.unwrap();
        to = get(other).await;
        let linked = get(file.inode).await;
        let change = volume.remove(&ROOT, other, b"i").await.unwrap();
        follows(&volume, &mut to, &change).await;
        let left = get(file.inode).await;
        assert_eq!((left.nlink, left.mtime), (1, file.mtime));
        assert!(left.ctime > linked.ctime);
        let change = volume.rmdir(&ROOT, other, b"e").await.unwrap();
        follows(&volume, &mut to, &change).await;
        assert_eq!(to.nlink, 2);
    });
}

#[test]
fn what_is_refused_or_only_looks_changes_no_time() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    let file = life.create_in(directory, b"f");
    life.create_in(directory, b"g");
    life.mkdir(directory, b"below");
    life.write(file, 0, b"abc", Stability::FileSync);
    let (was, content) = (
        life.getattr(directory).unwrap(),
        life.getattr(file).unwrap(),
    );
    let stranger = user(9, 9, &[]);
    life.read(file, 0, 3);
    life.list(directory, 10);
    life.try_lookup(directory, b"f").unwrap();
    life.rename((directory, b"f"), (directory, b"f")).unwrap();
    life.run(|volume| async move {
        let guarded = CreateMode::Guarded(SetAttributes::default());
        let at = (directory, &b"f"[..]);
        volume
            .create(&ROOT, at.0, at.1, &guarded)
            .await
            .unwrap_err();
        volume.remove(&stranger, at.0, at.1).await.unwrap_err();
        volume.rmdir(&ROOT, at.0, at.1).await.unwrap_err();
        volume.remove(&ROOT, at.0, b"below").await.unwrap_err();
        volume
            .rename(&stranger, at, (at.0, b"h"))
            .await
            .unwrap_err();
        volume
            .rename(&ROOT, at, (at.0, b"below"))
            .await
            .unwrap_err();
        volume.link(&ROOT, file, at.0, b"g").await.unwrap_err();
        volume
            .setattr(&stranger, file, &mode(0o777), None)
            .await
            .unwrap_err();
        let data = (b"x", Stability::Unstable);
        volume
            .write(&stranger, file, 0, data.0, data.1)
            .await
            .unwrap_err();
        // An empty write changes nothing.
        volume.write(&ROOT, file, 0, b"", data.1).await.unwrap();
    });
    assert_eq!(life.getattr(directory).unwrap(), was);
    assert_eq!(life.getattr(file).unwrap(), content);
}

#[test]
fn times_are_kept_to_the_nanosecond_by_log_and_bucket() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"f");
    // The last moment of NFSv3, far after 2038; and one nanosecond less than a second.
    let atime = Timestamp {
        seconds: i64::from(u32::MAX),
        nanos: 999_999_999,
    };
    let mtime = Timestamp {
        seconds: 1,
        nanos: 1,
    };
    let set = SetAttributes {
        atime: SetTime::To(atime),
        mtime: SetTime::To(mtime),
        ..Default::default()
    };
    life.set(&ROOT, inode, set).unwrap();
    let times = |life: &Life| {
        let found = life.getattr(inode).unwrap();
        assert_eq!((found.atime, found.mtime), (atime, mtime));
        found.ctime
    };
    let ctime = times(&life);
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(times(&life), ctime);
    life.flush();
    life.crash();
    assert_eq!(times(&bucket.start_elsewhere(|_| {})), ctime);
}

#[test]
fn setattr_moves_ctime_and_no_time_that_it_does_not_name() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"f");
    life.write(inode, 0, b"abc", Stability::FileSync);
    let mut was = life.getattr(inode).unwrap();
    let mut after = |set: SetAttributes| {
        life.set(&ROOT, inode, set).unwrap();
        let before = std::mem::replace(&mut was, life.getattr(inode).unwrap());
        assert!(was.ctime > before.ctime, "{set:?}");
        assert_eq!(
            was.atime > before.atime,
            set.atime == SetTime::Now,
            "{set:?}"
        );
        was.mtime > before.mtime
    };
    let group = SetAttributes {
        gid: Some(7),
        ..Default::default()
    };
    assert!(!after(mode(0o600)));
    assert!(!after(group));
    assert!(!after(SetAttributes {
        atime: SetTime::Now,
        ..Default::default()
    }));
    assert!(after(SetAttributes {
        mtime: SetTime::Now,
        ..Default::default()
    }));
    // A truncation is a change of content, even one to the current size.
    for size in [3, 1, 9] {
        assert!(after(SetAttributes {
            size: Some(size),
            ..Default::default()
        }));
    }
}
