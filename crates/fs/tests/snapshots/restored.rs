//! Restoring files and directories out of a snapshot: whole, without a copy, and independent of the snapshot afterwards.

use std::collections::{BTreeMap, BTreeSet};

use forebay_fs::{Dedup, Expected, FsConfig, RestoreError, RestoreRequest, Restored};
use forebay_types::Inode;
use forebay_vfs::{
    Attributes, Error, FileKind, FileSystem, NewNode, SetAttributes, SetTime, Stability, Timestamp,
};

use super::{MIB, content, delete, eager, settled, snapshot};
use crate::common::{Bucket, Life, ROOT, eventually, pattern, read};

fn request(path: &str) -> RestoreRequest {
    RestoreRequest {
        snapshot: "s".into(),
        path: path.into(),
        to: None,
        replace: false,
    }
}

fn try_restore(life: &Life, request: RestoreRequest) -> Result<Restored, RestoreError> {
    life.run(|volume| async move { volume.restore(request).await })
}

fn restore(life: &Life, path: &str) -> Restored {
    try_restore(life, request(path)).unwrap()
}

/// What a tree has under each of its paths: attributes that a restore keeps, and content.
type Tree = BTreeMap<String, (u32, u32, u32, u32, u64, Timestamp, Vec<u8>)>;

/// Everything below the root of the live tree, except staged objects, and the paths of each file.
fn tree(life: &Life) -> (Tree, Vec<BTreeSet<String>>) {
    life.run(|volume| async move {
        let (mut tree, mut same) = (Tree::new(), BTreeMap::<Inode, BTreeSet<String>>::new());
        let mut below = vec![(Inode::ROOT, String::new())];
        while let Some((directory, path)) = below.pop() {
            let listed = volume.readdir(&ROOT, directory, 0, 1000, false).await;
            for entry in listed.unwrap().entries.into_iter().skip(2) {
                let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                let a: Attributes = volume.getattr(entry.inode).await.unwrap();
                let content = match a.kind {
                    FileKind::Regular => {
                        let bytes = read(&volume, entry.inode, 0, a.size as usize).await;
                        bytes.unwrap()
                    }
                    FileKind::Symlink => {
                        let target = volume.readlink(&ROOT, entry.inode).await;
                        target.unwrap().0.to_vec()
                    }
                    _ => format!("{:?} {:?}", a.kind, a.device).into_bytes(),
                };
                if a.kind == FileKind::Directory {
                    below.push((entry.inode, path.clone()));
                } else {
                    same.entry(entry.inode).or_default().insert(path.clone());
                }
                let seen = (a.mode, a.uid, a.gid, a.nlink, a.size, a.mtime, content);
                tree.insert(path, seen);
            }
        }
        let mut same: Vec<_> = same.into_values().collect();
        same.sort();
        (tree, same)
    })
}

/// A directory `d` with objects of all kinds.
fn make_tree(life: &Life) {
    let d = life.mkdir(Inode::ROOT, b"d");
    let file = life.create_in(d, b"file");
    life.write(file, 100, &pattern(1, 3 << 20), Stability::Unstable);
    // Behind a hole of more than a block.
    life.write(file, 13 * MIB + 7, &pattern(2, 5000), Stability::Unstable);
    life.truncate(file, 20 * MIB);
    life.link(file, (d, b"the same")).unwrap();
    life.create_in(d, b"empty");
    let inner = life.mkdir(d, b"inner");
    for name in 0..20u64 {
        let small = life.create_in(inner, format!("small {name}").as_bytes());
        let bytes = pattern(3 + name, 1000 + name as usize);
        life.write(small, 0, &bytes, Stability::Unstable);
    }
    life.link(file, (inner, b"a third name")).unwrap();
    life.run(|volume| async move {
        let set = SetAttributes::default();
        for (name, node) in [
            (&b"symlink"[..], NewNode::Symlink(b"../somewhere")),
            (b"fifo", NewNode::Fifo),
        ] {
            volume.make(&ROOT, inner, name, node, &set).await.unwrap();
        }
    });
    for (inode, mode) in [(file, 0o4640), (inner, 0o500)] {
        let set = SetAttributes {
            mode: Some(mode),
            uid: Some(7),
            gid: Some(8),
            mtime: SetTime::To(Timestamp {
                seconds: 1_000_000,
                nanos: 5,
            }),
            ..SetAttributes::default()
        };
        life.set(&ROOT, inode, set).unwrap();
    }
}

/// Removes everything below the root.
fn remove_all(life: &Life) {
    let (tree, _) = tree(life);
    for (path, entry) in tree.into_iter().rev() {
        let mut at = Inode::ROOT;
        let names: Vec<&str> = path.split('/').skip(1).collect();
        let (last, above) = names.split_last().unwrap();
        for name in above {
            at = life.try_lookup(at, name.as_bytes()).unwrap().inode;
        }
        match entry.6.starts_with(b"Directory") {
            true => life.rmdir(at, last.as_bytes()).unwrap(),
            false => life.try_remove(at, last.as_bytes()).unwrap(),
        }
    }
}

/// A restored tree is the one that the snapshot has, its bytes are in the bucket once, and it stays when the snapshot
/// is deleted.
fn comes_back(bucket: &Bucket, configured: fn(&mut FsConfig)) {
    let life = bucket.start(configured);
    make_tree(&life);
    snapshot(&life, "s");
    let before = tree(&life);
    remove_all(&life);
    let held = settled(&life, bucket);
    assert!(held > 3 * MIB && life.volume.status().held_bytes == held);
    let packs = bucket.packs();

    let restored = restore(&life, "/d");
    let expected = Restored {
        path: b"/d".to_vec(),
        moved_aside: None,
        objects: 26,
        bytes: restored.bytes,
    };
    assert_eq!(restored, expected);
    assert!(tree(&life) == before, "other than before");
    assert_eq!(bucket.packs(), packs, "nothing is copied");
    // The log has the name, and the bucket all else.
    life.crash();
    let life = bucket.start(configured);
    assert!(tree(&life) == before, "after a crash");
    assert_eq!(settled(&life, bucket), held);
    assert_eq!(
        life.volume.status().held_bytes,
        0,
        "all of it is live again"
    );
    life.crash();
    let life = bucket.start_elsewhere(configured);
    assert!(tree(&life) == before, "elsewhere");

    // Another restore shares them too, and neither depends on the other or on the snapshot.
    let second = RestoreRequest {
        to: Some(b"/d/inner/again".to_vec()),
        ..request("/d")
    };
    try_restore(&life, second).unwrap();
    assert_eq!(bucket.packs(), packs);
    delete(&life, "s").unwrap();
    settled(&life, bucket);
    let (all, _) = tree(&life);
    let again = all.iter().filter_map(|(path, entry)| {
        let rest = path.strip_prefix("/d/inner/again")?;
        Some((format!("/d{rest}"), entry.clone()))
    });
    assert!(again.collect::<Tree>() == before.0, "the second");
    let file = life.lookup(b"d").inode;
    let file = life.try_lookup(file, b"file").unwrap().inode;
    life.write(file, 200, &[9; 100], Stability::Unstable);
    life.stop();
    let life = bucket.start_elsewhere(configured);
    let mut changed = pattern(1, 3 << 20);
    changed[100..200].fill(9);
    assert!(life.read(file, 100, changed.len()) == changed);
    remove_all(&life);
    eventually("all is given back", || settled(&life, bucket) == 0);
    life.stop();
}

#[test]
fn a_tree_comes_back_without_a_copy_and_stays_without_the_snapshot() {
    comes_back(&Bucket::new(), eager);
}

#[test]
fn a_tree_comes_back_in_a_sealed_volume() {
    let expected = Expected::Sealed(crate::sealing::key_file(1));
    comes_back(&Bucket::of(expected), eager);
}

#[test]
fn a_tree_comes_back_in_a_volume_that_shares_equal_content() {
    comes_back(&Bucket::new(), |config| {
        eager(config);
        config.dedup = Dedup::Full;
    });
}

#[test]
fn what_is_removed_after_a_restore_stays_in_the_snapshot() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let file = life.create(b"file");
    let bytes = pattern(1, 2 << 20);
    life.write(file, 0, &bytes, Stability::Unstable);
    snapshot(&life, "s");
    life.flush();
    life.remove(b"file");
    settled(&life, &bucket);
    let held = life.volume.status().held_bytes;
    assert!(held >= 2 * MIB);
    restore(&life, "/file");
    settled(&life, &bucket);
    assert_eq!(life.volume.status().held_bytes, 0, "it is live again");
    life.remove(b"file");
    eventually("the snapshot holds its packs again", || {
        settled(&life, &bucket);
        life.volume.status().held_bytes == held
    });
    assert!(content(&life, "s", file, 4 << 20) == bytes);
    delete(&life, "s").unwrap();
    eventually("all is given back", || settled(&life, &bucket) == 0);
    life.stop();
}

#[test]
fn a_restore_replaces_nothing_unless_that_is_ordered_and_keeps_what_it_replaces() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    make_tree(&life);
    let file = life.create(b"file");
    life.write(file, 0, b"old", Stability::Unstable);
    snapshot(&life, "s");
    life.flush();
    life.write(file, 0, b"new", Stability::Unstable);
    let refused = |path: &str, to: Option<&str>| {
        let request = RestoreRequest {
            to: to.map(Into::into),
            ..request(path)
        };
        try_restore(&life, request).unwrap_err().to_string()
    };
    let before = tree(&life);
    for (path, to, why) in [
        ("/file", None, "there is a /file already"),
        ("/d", None, "there is a /d already"),
        ("/d/file", Some("/file"), "there is a /file already"),
        ("/", None, "give a new directory for it with --to"),
        ("/x", None, "there is no /x in snapshot \"s\""),
        ("/file/x", None, "there is no /file/x in snapshot"),
        ("/d", Some("/x/y"), "there is no /x in the volume"),
        ("/d", Some("/file/y"), "/file is not a directory"),
        ("/../d", None, "is not a path"),
    ] {
        let message = refused(path, to);
        assert!(message.contains(why), "{path} {to:?}: {message}");
    }
    let missing = RestoreRequest {
        snapshot: "t".into(),
        ..request("/d")
    };
    let message = try_restore(&life, missing).unwrap_err().to_string();
    assert!(message.contains("no snapshot \"t\""), "{message}");
    assert!(tree(&life) == before, "nothing is left of it");

    for (path, aside) in [
        ("/file", "/file.before-restore"),
        ("/file", "/file.before-restore-2"),
        ("/d", "/d.before-restore"),
    ] {
        let request = RestoreRequest {
            replace: true,
            ..request(path)
        };
        let restored = try_restore(&life, request).unwrap();
        assert_eq!(restored.moved_aside, Some(aside.into()));
    }
    let content = |name: &[u8]| {
        let inode = life.lookup(name).inode;
        life.read(inode, 0, 3)
    };
    assert_eq!(content(b"file"), b"old");
    assert_eq!(content(b"file.before-restore"), b"new");
    assert_eq!(life.lookup(b"file.before-restore").inode, file);
    assert_eq!(content(b"file.before-restore-2"), b"old");
    let (all, _) = tree(&life);
    assert_eq!(
        all.keys().filter(|path| path.starts_with("/d/")).count(),
        all.keys()
            .filter(|path| path.starts_with("/d.before-restore/"))
            .count()
    );
    let whole = RestoreRequest {
        to: Some(b"/then".to_vec()),
        ..request("/")
    };
    assert_eq!(try_restore(&life, whole).unwrap().objects, 28);
    // The name of a tree that is being made.
    let staged = RestoreRequest {
        to: Some(b"/.forebay-restore".to_vec()),
        ..request("/file")
    };
    assert_eq!(try_restore(&life, staged).unwrap().moved_aside, None);
    assert_eq!(content(b".forebay-restore"), b"old");
    life.stop();
}

#[test]
fn a_restore_that_a_quota_stops_leaves_nothing() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    make_tree(&life);
    snapshot(&life, "s");
    life.flush();
    let used = life.volume.status().used_bytes;
    life.stop();
    let life = bucket.start(|config| {
        eager(config);
        config.volume_limit = used + MIB;
    });
    let before = tree(&life);
    let request = RestoreRequest {
        to: Some(b"/again".to_vec()),
        ..request("/d")
    };
    let refused = try_restore(&life, request).unwrap_err();
    assert_eq!(refused, RestoreError::Volume(Error::NoSpace));
    assert!(tree(&life) == before);
    life.stop();
}

#[test]
fn a_crash_before_the_restored_tree_has_its_name_changes_nothing_else() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    make_tree(&life);
    snapshot(&life, "s");
    let before = tree(&life);
    remove_all(&life);
    settled(&life, &bucket);
    bucket.controls.everything.close();
    // It has read the snapshot, or waits to read it.
    let restoring = life.spawn(|volume| async move { volume.restore(request("/d")).await });
    eventually("it waits for the bucket", || {
        bucket.controls.everything.held() > 0
    });
    assert!(!restoring.is_finished());
    life.crash();
    bucket.controls.everything.open();
    let life = bucket.start(eager);
    let (left, _) = tree(&life);
    assert!(
        left.keys()
            .all(|path| path.starts_with("/.forebay-restore"))
    );
    restore(&life, "/d");
    let (all, same) = tree(&life);
    let restored = all.into_iter().filter(|(path, _)| path.starts_with("/d"));
    assert!(restored.collect::<Tree>() == before.0);
    assert!(before.1.iter().all(|paths| same.contains(paths)));
    life.stop();
}

#[test]
fn a_name_that_a_client_takes_meanwhile_is_not_replaced() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    make_tree(&life);
    snapshot(&life, "s");
    let before = tree(&life);
    remove_all(&life);
    settled(&life, &bucket);
    bucket.controls.meta_puts.close();
    let restoring = life.spawn(|volume| async move { volume.restore(request("/d")).await });
    eventually("it is staged, and waits to be published", || {
        bucket.controls.meta_puts.held() > 0
            && life.try_lookup(Inode::ROOT, b".forebay-restore").is_ok()
    });
    let mine = life.mkdir(Inode::ROOT, b"d");
    life.create_in(mine, b"mine");
    bucket.controls.meta_puts.open();
    let refused = life.join(restoring).unwrap_err().to_string();
    assert!(refused.contains("there is a /d already"), "{refused}");
    let (left, _) = tree(&life);
    assert_eq!(left.keys().collect::<Vec<_>>(), ["/d", "/d/mine"]);
    let replacing = RestoreRequest {
        replace: true,
        ..request("/d")
    };
    try_restore(&life, replacing).unwrap();
    let (all, _) = tree(&life);
    assert!(all.contains_key("/d.before-restore/mine"));
    let restored = all.into_iter();
    let restored = restored.filter(|(path, _)| path == "/d" || path.starts_with("/d/"));
    assert!(restored.collect::<Tree>() == before.0);
    life.stop();
}

#[test]
fn a_restore_waits_while_the_bucket_is_away_and_goes_on_when_it_is_back() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    make_tree(&life);
    snapshot(&life, "s");
    let before = tree(&life);
    remove_all(&life);
    settled(&life, &bucket);
    let controls = &bucket.controls;
    let is_away = |restoring: &tokio::task::JoinHandle<_>| {
        let refused = controls.refused();
        eventually("it asks in vain", || controls.refused() > refused);
        assert!(!restoring.is_finished());
    };
    // Away before it has read anything, and again when everything is staged.
    controls.set_down(true);
    let restoring = life.spawn(|volume| async move { volume.restore(request("/d")).await });
    is_away(&restoring);
    controls.manifest_puts.close();
    controls.set_down(false);
    eventually("it is staged, and waits to be published", || {
        controls.manifest_puts.held() > 0
            && life.try_lookup(Inode::ROOT, b".forebay-restore").is_ok()
    });
    controls.set_down(true);
    controls.manifest_puts.open();
    is_away(&restoring);
    controls.set_down(false);
    life.join(restoring).unwrap();
    let (all, same) = tree(&life);
    let restored = all.into_iter().filter(|(path, _)| path.starts_with("/d"));
    assert!(restored.collect::<Tree>() == before.0);
    assert!(before.1.iter().all(|paths| same.contains(paths)));
    life.stop();
}
