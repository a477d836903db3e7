//! What is bounded in listings of the trash, and when it is brought back.

use forebay_meta::{Batch, Key};
use forebay_vfs::{ClientId, DirectoryEntry, Error, Trash as _, trash_name};
use futures_util::poll;
use tokio::sync::mpsc;

use super::*;
use crate::files::trash::{TrashEntry, TrashError, Wanted};
use crate::volume::trash::Undeleted;

fn keeping() -> Credentials {
    Credentials {
        trash: 3600,
        ..Credentials::ROOT
    }
}

async fn made(volume: &Volume, directory: Inode, name: &str, uid: u32) -> Inode {
    let set = SetAttributes {
        uid: Some(uid),
        ..Default::default()
    };
    let (mode, name) = (CreateMode::Guarded(set), name.as_bytes());
    let made = volume.create(&CALLER, directory, name, &mode).await;
    made.unwrap().attributes.inode
}

async fn remove(volume: &Volume, directory: Inode, name: &str) {
    let removed = volume.remove(&keeping(), directory, name.as_bytes()).await;
    removed.unwrap();
}

async fn file(volume: &Volume, directory: Inode, name: &str, uid: u32) -> Inode {
    let inode = made(volume, directory, name, uid).await;
    remove(volume, directory, name).await;
    inode
}

fn user(uid: u32) -> Credentials {
    Credentials {
        uid,
        gid: uid,
        ..CALLER
    }
}

/// A value that no record has.
fn damage(volume: &Volume, key: &Key) {
    let mut batch = Batch::new();
    batch.put_encoded(key.encode(), (&b"\xff damaged"[..]).into());
    volume.rooms.state.catalog.apply(&batch);
}

async fn new_volume(bucket: &Store, folder: &tempfile::TempDir) -> Volume {
    Volume::format(bucket).await.unwrap();
    open(bucket, folder.path(), None).await.0
}

async fn directory(volume: &Volume, above: Inode, name: &str) -> Inode {
    let (name, set) = (name.as_bytes(), SetAttributes::default());
    let kind = forebay_vfs::NewNode::Directory;
    let made = volume.make(&CALLER, above, name, kind, &set).await.unwrap();
    made.attributes.inode
}

/// Lists in calls that look at `looks` entries each, and returns how many had to be repeated.
async fn listed(
    volume: &Volume,
    caller: &Credentials,
    below: Inode,
    looks: usize,
) -> (Vec<Inode>, usize) {
    let (mut found, mut repeated): (Vec<DirectoryEntry>, _) = (Vec::new(), 0);
    loop {
        let after = found.last().map_or(Inode(0), |entry| entry.inode);
        let place = (below, after);
        match volume.files.list_within(caller, place, 5, looks).await {
            Ok((some, end)) => {
                found.extend(some);
                if end {
                    return (found.iter().map(|entry| entry.inode).collect(), repeated);
                }
            }
            Err(Error::Delay) => repeated += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_call_passes_over_few_files_of_others_and_the_next_one_goes_on() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let top = directory(&volume, Inode::ROOT, "top").await;
    let mut own = Vec::new();
    for number in 0..200 {
        file(&volume, Inode::ROOT, &format!("other-{number}"), 8).await;
        if number % 60 == 0 {
            own.push(file(&volume, top, &format!("own-{number}"), 7).await);
        }
    }
    let user = user(7);
    for flush in [false, true] {
        if flush {
            volume.flush().await.unwrap();
        }
        let all = listed(&volume, &CALLER, Inode::ROOT, 20).await;
        assert_eq!((all.0.len(), all.1), (204, 0));
        // Root has to look at all, and comes to the end.
        let (found, repeated) = listed(&volume, &CALLER, top, 20).await;
        assert_eq!(found, own);
        assert!((4..40).contains(&repeated), "{repeated}");
        // A user looks at its own files alone.
        for below in [Inode::ROOT, top] {
            assert_eq!(listed(&volume, &user, below, 20).await, (own.clone(), 0));
        }
    }
    // Files of a version that wrote no mark of the owner: root lists them, and the owner finds them by name.
    let mut batch = Batch::new();
    batch.delete(&Key::TrashOwner(7, own[0]));
    volume.rooms.state.catalog.apply(&batch);
    assert_eq!(listed(&volume, &user, top, 20).await.0, own[1..]);
    assert_eq!(listed(&volume, &CALLER, top, 20).await.0, own);
    let name = format!("own-0.{}", own[0]);
    let found = volume
        .files
        .lookup_removed(&user, top, name.as_bytes())
        .await;
    assert_eq!(found.map(|found| found.inode), Ok(own[0]));
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_tree_comes_back_in_parts_as_it_does_at_once() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let mut all = 0;
    for at_once in [1, 3, 7, 100] {
        let top = directory(&volume, Inode::ROOT, "top").await;
        let deep = directory(&volume, top, "deep").await;
        for number in 0..4 {
            // The newer of each two has the path.
            file(&volume, deep, &format!("{}", number / 2), 7).await;
            file(&volume, top, &format!("{number}"), 7).await;
        }
        volume.rmdir(&keeping(), top, b"deep").await.unwrap();
        volume.rmdir(&keeping(), Inode::ROOT, b"top").await.unwrap();
        let wanted = Wanted::Path(b"/top".to_vec());
        let (send, mut back) = mpsc::channel(100);
        let undelete = volume.files.undelete_some(&wanted, None, &send, at_once);
        let restored = undelete.await.unwrap();
        let mut paths = Vec::new();
        while let Ok(entry) = back.try_recv() {
            paths.push(String::from_utf8(entry.path.unwrap()).unwrap());
        }
        paths.sort();
        let expected = [
            "/top/0",
            "/top/1",
            "/top/2",
            "/top/3",
            "/top/deep/0",
            "/top/deep/1",
        ];
        paths.retain(|path| path.len() > 9 || path.len() == 6);
        assert_eq!(paths, expected, "{at_once}");
        assert_eq!((restored.left, restored.stopped_by), (2, None));
        all += 2;
        assert_eq!(volume.status().trash_entries, all);
        // Another time, with nothing of it left.
        for name in ["0", "1"] {
            volume.remove(&CALLER, deep, name.as_bytes()).await.unwrap();
        }
        for name in ["0", "1", "2", "3"] {
            volume.remove(&CALLER, top, name.as_bytes()).await.unwrap();
        }
        volume.rmdir(&CALLER, top, b"deep").await.unwrap();
        volume.rmdir(&CALLER, Inode::ROOT, b"top").await.unwrap();
    }
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_call_looks_at_few_directories_that_entries_were_in() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let top = directory(&volume, Inode::ROOT, "top").await;
    let side = directory(&volume, Inode::ROOT, "side").await;
    let mut own = Vec::new();
    for number in 0..40 {
        let name = number.to_string();
        let below = directory(&volume, side, &name).await;
        file(&volume, below, "file", 7).await;
        if number % 20 == 10 {
            let below = directory(&volume, top, &name).await;
            own.push(file(&volume, below, "file", 7).await);
        }
    }
    // Each directory counts 64, and four of them end a call. What a call has found is its answer.
    for caller in [CALLER, user(7)] {
        let (found, repeated) = listed(&volume, &caller, top, 250).await;
        assert_eq!(found, own);
        assert!((8..=40).contains(&repeated), "{repeated}");
    }
    // One is looked at in any case.
    let (found, repeated) = listed(&volume, &CALLER, top, 1).await;
    assert_eq!(found, own);
    assert!((38..=42).contains(&repeated), "{repeated}");
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_listing_of_another_client_begins_at_the_beginning() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let top = directory(&volume, Inode::ROOT, "top").await;
    for uid in [0, 7] {
        let name = format!("late-{uid}");
        let late = made(&volume, top, &name, uid).await;
        for number in 0..50 {
            file(&volume, Inode::ROOT, &format!("{number}"), uid).await;
        }
        let [one, other] = [1, 2].map(|client| Credentials {
            client: ClientId(client),
            ..user(uid)
        });
        let begin = async || {
            let place = (top, Inode(0));
            volume.files.list_within(&one, place, 5, 20).await
        };
        assert_eq!(begin().await, Err(Error::Delay));
        // It has a lower number than all that the first call has passed over.
        remove(&volume, top, &name).await;
        let (found, _) = listed(&volume, &other, top, 20).await;
        assert!(found.contains(&late));
        if uid != 0 {
            // A listing that the same client begins again has it as well.
            let (found, _) = listed(&volume, &one, top, 20).await;
            assert!(found.contains(&late));
        }
    }
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_file_whose_directory_is_damaged_is_shown_by_the_root_and_comes_back() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let top = directory(&volume, Inode::ROOT, "top").await;
    let live = directory(&volume, top, "live").await;
    let gone = directory(&volume, top, "gone").await;
    let below = directory(&volume, gone, "below").await;
    let sound = file(&volume, top, "sound", 7).await;
    let in_live = file(&volume, live, "in-live", 7).await;
    let in_gone = file(&volume, below, "in-gone", 7).await;
    volume.rmdir(&keeping(), gone, b"below").await.unwrap();
    volume.rmdir(&keeping(), top, b"gone").await.unwrap();
    volume.close(Duration::from_secs(60)).await;
    drop(volume);
    let (volume, _) = open(&bucket, folder.path(), None).await;
    // The record of a directory that has a name, and the entry of one in the trash.
    damage(&volume, &Key::Inode(live));
    damage(&volume, &Key::Trash(gone));
    for caller in [CALLER, user(7)] {
        let (all, _) = listed(&volume, &caller, Inode::ROOT, 100).await;
        assert_eq!(all, [sound, in_live, in_gone]);
        assert_eq!(listed(&volume, &caller, top, 100).await.0, [sound]);
        let name = trash_name::of(b"in-live", in_live);
        let found = volume.files.lookup_removed(&caller, top, &name).await;
        assert_eq!(found.err(), Some(Error::NotFound));
    }
    let page = volume.trash_after(None, 100).await.unwrap();
    let path = |inode| {
        let entry = page.entries.iter().find(|entry| entry.inode == inode);
        entry.unwrap().path.clone()
    };
    assert_eq!(path(sound), Some(b"/top/sound".to_vec()));
    assert_eq!((path(in_live), path(in_gone)), (None, None));
    for (inode, last) in [(in_live, &b"in-live"[..]), (in_gone, b"in-gone")] {
        let name = trash_name::of(last, inode);
        let (from, to) = ((Inode::ROOT, &name[..]), (top, last));
        volume.bring_back(&CALLER, from, to).await.unwrap();
        let found = volume.lookup(&CALLER, top, last).await.unwrap();
        assert_eq!(found.inode, inode);
    }
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_name_that_changes_while_a_call_waits_is_looked_up_again() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let (caller, root) = (user(7), CALLER);
    // The same file comes back while the call waits, and goes to the trash again: by another name, with another owner, or as
    // it was.
    for (last, uid, expected) in [
        ("other", 7, Some(Error::NotFound)),
        ("name", 8, Some(Error::NotFound)),
        ("name", 7, None),
    ] {
        for deletes in [true, false] {
            let home = format!("{last}-{uid}-{deletes}");
            let home = directory(&volume, Inode::ROOT, &home).await;
            let inode = file(&volume, home, "name", 7).await;
            let name = trash_name::of(b"name", inode);
            let from = (Inode::ROOT, &name[..]);
            let to = (home, last.as_bytes());
            let mut back = std::pin::pin!(volume.bring_back(&root, from, to));
            let mut call = std::pin::pin!(async {
                match deletes {
                    true => volume.delete_removed(&caller, from.0, from.1).await,
                    false => {
                        let to = (home, &b"stolen"[..]);
                        volume.bring_back(&caller, from, to).await.map(drop)
                    }
                }
            });
            let set = |uid| SetAttributes {
                uid: Some(uid),
                ..Default::default()
            };
            let owned = SetAttributes {
                mode: Some(0o700),
                ..set(7)
            };
            volume.setattr(&root, home, &owned, None).await.unwrap();
            // Both have seen the file and wait, one after the other.
            let turn = volume.rooms.state.trash.changing.lock().await;
            assert!(poll!(back.as_mut()).is_pending());
            assert!(poll!(call.as_mut()).is_pending());
            drop(turn);
            back.await.unwrap();
            let owned = set(uid);
            volume.setattr(&root, inode, &owned, None).await.unwrap();
            remove(&volume, home, last).await;
            assert_eq!(call.await.err(), expected, "{last} {uid} {deletes}");
            let (all, _) = listed(&volume, &CALLER, Inode::ROOT, 100).await;
            assert_eq!(all.contains(&inode), expected.is_some());
        }
    }
    volume.close(Duration::from_secs(60)).await;
}

/// Begins to bring back what was below `/top`, where two files are back and a third one is not: the receiver has no room.
async fn half_way(
    volume: &Volume,
) -> (
    tokio::task::JoinHandle<Result<Undeleted, TrashError>>,
    mpsc::Receiver<TrashEntry>,
    Inode,
) {
    let top = directory(volume, Inode::ROOT, "top").await;
    let last = file(volume, top, "last", 7).await;
    for name in ["second", "first"] {
        file(volume, top, name, 7).await;
    }
    let (send, back) = mpsc::channel(1);
    let own = volume.clone();
    let undelete = tokio::spawn(async move {
        let wanted = Wanted::Path(b"/top".to_vec());
        own.undelete(&wanted, None, &send).await
    });
    while volume.lookup(&CALLER, top, b"second").await.is_err() {
        tokio::task::yield_now().await;
    }
    (undelete, back, last)
}

async fn names_of(mut back: mpsc::Receiver<TrashEntry>) -> Vec<bytes::Bytes> {
    let mut names = Vec::new();
    while let Some(entry) = back.recv().await {
        names.push(entry.name);
    }
    names
}

#[tokio::test]
async fn undelete_leaves_what_was_removed_again_since_it_looked() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let (undelete, back, last) = half_way(&volume).await;
    let elsewhere = directory(&volume, Inode::ROOT, "elsewhere").await;
    let name = trash_name::of(b"last", last);
    let (from, to) = ((Inode::ROOT, &name[..]), (elsewhere, &b"mine"[..]));
    volume.bring_back(&CALLER, from, to).await.unwrap();
    remove(&volume, elsewhere, "mine").await;
    assert_eq!(names_of(back).await, ["first", "second"]);
    let done = undelete.await.unwrap().unwrap();
    assert_eq!((done.objects, done.left), (2, 0));
    let page = volume.trash_after(None, 10).await.unwrap();
    let [entry] = &page.entries[..] else {
        panic!("{page:?}")
    };
    assert_eq!(entry.path.as_deref(), Some(&b"/elsewhere/mine"[..]));
    // With its number it comes back, whenever it was removed.
    let (send, _back) = mpsc::channel(9);
    let wanted = Wanted::Id(last);
    volume.undelete(&wanted, None, &send).await.unwrap();
    let found = volume.lookup(&CALLER, elsewhere, b"mine").await;
    assert_eq!(found.unwrap().inode, last);
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn undelete_goes_on_when_nobody_takes_what_is_back() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let (undelete, back, _) = half_way(&volume).await;
    drop(back);
    let done = undelete.await.unwrap().unwrap();
    assert_eq!((done.objects, done.left), (3, 0));
    assert_eq!(volume.status().trash_entries, 0);
    volume.close(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn undelete_says_what_is_back_when_damage_stops_it() {
    let (bucket, folder) = (store().await, tempfile::tempdir().unwrap());
    let volume = new_volume(&bucket, &folder).await;
    let (undelete, back, last) = half_way(&volume).await;
    let sound = Key::Trash(last).encode();
    let entry = volume.rooms.state.catalog.get(&sound).await.unwrap();
    damage(&volume, &Key::Trash(last));
    assert_eq!(names_of(back).await, ["first", "second"]);
    let refused = undelete.await.unwrap().unwrap_err();
    let TrashError::Partly { back: 2, why } = &refused else {
        panic!("{refused:?}")
    };
    assert!(refused.to_string().contains(why) && !why.is_empty());
    // The last one is where it was.
    let mut batch = Batch::new();
    batch.put_encoded(sound, entry.unwrap());
    volume.rooms.state.catalog.apply(&batch);
    let page = volume.trash_after(None, 10).await.unwrap();
    let paths: Vec<_> = page.entries.into_iter().map(|entry| entry.path).collect();
    assert_eq!(paths, [Some(b"/top/last".to_vec())]);
    volume.close(Duration::from_secs(60)).await;
}
