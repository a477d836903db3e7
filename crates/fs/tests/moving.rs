//! Moves between directories: the objects that a call looks at, the locks that it holds meanwhile, and that no cycle
//! is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::metadata::Reads;
use crate::common::*;
use async_trait::async_trait;
use bytes::Bytes;
use forebay_fs::{CommitMode, Volume};
use forebay_meta::{Key, StoreError};
use forebay_types::Inode;
use forebay_vfs::{Error, FileSystem, NewNode, SetAttributes};
use tokio::sync::{Notify, Semaphore};

const TOP: Inode = Inode::ROOT;

/// Counts the look-ups of objects in the metadata, and delays the answer to one of them.
struct Asked {
    objects: AtomicUsize,
    kept_back: Option<Inode>,
    asked: Notify,
    answers: Semaphore,
}

impl Asked {
    fn new(kept_back: Option<Inode>) -> Arc<Asked> {
        Arc::new(Asked {
            objects: AtomicUsize::new(0),
            kept_back,
            asked: Notify::new(),
            answers: Semaphore::new(0),
        })
    }

    /// The number of objects looked up since the last call.
    fn objects(&self) -> usize {
        self.objects.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Reads for Asked {
    async fn got(&self, key: &[u8], found: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
        if let Ok(Key::Inode(inode)) = Key::decode(key) {
            self.objects.fetch_add(1, Ordering::SeqCst);
            if Some(inode) == self.kept_back {
                self.asked.notify_one();
                let _ = self.answers.acquire().await;
            }
        }
        Ok(found)
    }
}

/// Makes `levels` nested directories.
fn make_deep(life: &Life, top: Inode, levels: usize) -> Vec<Inode> {
    life.run(|volume| async move {
        let volume = volume.with_commit_mode(CommitMode::Async);
        let (set, mut made) = (SetAttributes::default(), vec![top]);
        for _ in 0..levels {
            let parent = made[made.len() - 1];
            let child = volume
                .make(&ROOT, parent, b"x", NewNode::Directory, &set)
                .await;
            made.push(child.unwrap().attributes.inode);
        }
        made
    })
}

async fn rename(volume: &Volume, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(), Error> {
    volume.rename(&ROOT, from, to).await.map(drop)
}

#[test]
fn a_rename_looks_at_what_lies_above_only_where_a_directory_is_moved_with_permission() {
    const LEVELS: usize = 300;
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let a = life.mkdir(TOP, b"a");
    for name in [&b"directory"[..], b"other"] {
        life.mkdir(a, name);
    }
    for name in [&b"file"[..], b"second"] {
        life.create_in(a, name);
    }
    let deep = *make_deep(&life, TOP, LEVELS).last().unwrap();
    life.stop();

    // Nothing is in memory, so that each level is looked up.
    let asked = Asked::new(None);
    let life = bucket.start_watched(bucket.config(), asked.clone());
    asked.objects();
    let try_as = |caller: forebay_vfs::Credentials, old: &'static [u8]| {
        life.run(|volume| async move {
            let renamed = volume.rename(&caller, (a, old), (deep, b"new")).await;
            renamed.map(drop)
        })
    };
    let nobody = user(1000, 1000, &[]);
    assert_eq!(try_as(nobody.clone(), b"none"), Err(Error::NotFound));
    assert_eq!(try_as(nobody.clone(), b"file"), Err(Error::Access));
    assert_eq!(try_as(nobody, b"directory"), Err(Error::Access));
    assert_eq!(try_as(ROOT, b"none"), Err(Error::NotFound));
    assert_eq!(try_as(ROOT, b"file"), Ok(()));
    let few = asked.objects();
    assert!(few <= 5, "{few} objects: two directories, the moved object");
    assert_eq!(life.try_remove(deep, b"new"), Ok(()));
    assert_eq!(try_as(ROOT, b"directory"), Ok(()));
    let all = asked.objects();
    assert!((LEVELS - 1..LEVELS + 3).contains(&all), "{all} objects");
    // From there upwards only the new place counts, and it is in memory.
    assert_eq!(life.rename((deep, b"new"), (a, b"directory")), Ok(()));
    assert_eq!(life.rename((a, b"other"), (deep, b"new")), Ok(()));
    assert_eq!(asked.objects(), 1, "the directory that is moved");
}

#[test]
fn directories_are_moved_out_of_any_depth_and_to_no_place_deeper_than_4096_levels() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let made = make_deep(&life, TOP, 4098);
    life.mkdir(TOP, b"directory");
    life.create(b"file");
    let to = |from: (Inode, &'static [u8]), level: usize| life.rename(from, (made[level], b"y"));
    assert_eq!(to((TOP, b"directory"), 4097), Err(Error::NameTooLong));
    assert_eq!(to((TOP, b"directory"), 4096), Ok(()));
    life.rename((made[4096], b"y"), (TOP, b"directory"))
        .unwrap();
    // A file makes no cycle.
    assert_eq!(to((TOP, b"file"), 4098), Ok(()));
    assert_eq!(life.rename((made[4098], b"y"), (TOP, b"file")), Ok(()));
    assert_eq!(life.rename((made[4097], b"x"), (TOP, b"shallow")), Ok(()));
    assert_eq!(life.try_lookup(made[4098], b"..").unwrap().inode, TOP);
    assert_eq!(
        life.rename((TOP, b"x"), (made[4000], b"y")),
        Err(Error::Invalid)
    );
}

#[test]
fn a_walk_to_the_root_holds_nobody_and_does_not_count_once_an_ancestor_has_moved() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let moved = life.mkdir(TOP, b"moved");
    let made: [Inode; 7] = make_deep(&life, TOP, 6).try_into().unwrap();
    let others = [life.mkdir(TOP, b"one"), life.mkdir(TOP, b"two")];
    life.mkdir(others[0], b"directory");
    life.stop();

    let asked = Asked::new(Some(made[3]));
    let life = bucket.start_watched(bucket.config(), asked.clone());
    let to = made[6];
    let walking = life
        .spawn(move |volume| async move { rename(&volume, (TOP, b"moved"), (to, b"moved")).await });
    let watched = asked.clone();
    life.run(|volume| async move {
        watched.asked.notified().await;
        // Both of its directories can be used, and directories can be moved elsewhere.
        for (directory, name) in [(TOP, b"new"), (to, b"new")] {
            let mode = forebay_vfs::CreateMode::Guarded(SetAttributes::default());
            volume.create(&ROOT, directory, name, &mode).await.unwrap();
        }
        rename(&volume, (others[0], b"directory"), (others[1], b"d"))
            .await
            .unwrap();
        // A directory that the walk has passed already moves below the one that will be moved.
        rename(&volume, (made[4], b"x"), (moved, b"x"))
            .await
            .unwrap();
    });
    asked.answers.close();
    assert_eq!(
        life.join(walking),
        Err(Error::Invalid),
        "it would be a ring"
    );
    assert_eq!(life.try_lookup(made[5], b"..").unwrap().inode, moved);
    assert_eq!(life.try_lookup(moved, b"..").unwrap().inode, TOP);
}

#[test]
fn a_directory_is_moved_while_others_are_moved_elsewhere_all_the_time() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.mkdir(TOP, b"moved");
    let made: [Inode; 7] = make_deep(&life, TOP, 6).try_into().unwrap();
    let others = [life.mkdir(TOP, b"one"), life.mkdir(TOP, b"two")];
    life.mkdir(others[0], b"directory");
    life.stop();
    let asked = Asked::new(Some(made[3]));
    let life = bucket.start_watched(bucket.config(), asked.clone());
    let to = made[6];
    let walking = life
        .spawn(move |volume| async move { rename(&volume, (TOP, b"moved"), (to, b"moved")).await });
    let watched = asked.clone();
    life.run(|volume| async move {
        watched.asked.notified().await;
        for turn in 0..50 {
            let (from, to) = (others[turn % 2], others[(turn + 1) % 2]);
            rename(&volume, (from, b"directory"), (to, b"directory"))
                .await
                .unwrap();
        }
    });
    asked.objects();
    asked.answers.close();
    assert_eq!(life.join(walking), Ok(()));
    let after = asked.objects();
    assert!(
        after <= 3,
        "{after} objects: it goes on with the walk that it has begun"
    );
}
