//! What is bounded in listings of the trash, and when it is brought back.

use forebay_vfs::{DirectoryEntry, Error};
use tokio::sync::mpsc;

use super::*;
use crate::files::trash::Wanted;

fn keeping() -> Credentials {
    Credentials {
        trash: 3600,
        ..Credentials::ROOT
    }
}

async fn file(volume: &Volume, directory: Inode, name: &str, uid: u32) -> Inode {
    let set = SetAttributes {
        uid: Some(uid),
        ..Default::default()
    };
    let mode = CreateMode::Guarded(set);
    let name = name.as_bytes();
    let made = volume
        .create(&CALLER, directory, name, &mode)
        .await
        .unwrap();
    volume.remove(&keeping(), directory, name).await.unwrap();
    made.attributes.inode
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
    Volume::format(&bucket).await.unwrap();
    let (volume, _) = open(&bucket, folder.path(), None).await;
    let top = directory(&volume, Inode::ROOT, "top").await;
    let mut own = Vec::new();
    for number in 0..200 {
        file(&volume, Inode::ROOT, &format!("other-{number}"), 8).await;
        if number % 60 == 0 {
            own.push(file(&volume, top, &format!("own-{number}"), 7).await);
        }
    }
    let user = Credentials {
        uid: 7,
        gid: 7,
        ..CALLER
    };
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
    let mut batch = forebay_meta::Batch::new();
    batch.delete(&forebay_meta::Key::TrashOwner(7, own[0]));
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
    Volume::format(&bucket).await.unwrap();
    let (volume, _) = open(&bucket, folder.path(), None).await;
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
