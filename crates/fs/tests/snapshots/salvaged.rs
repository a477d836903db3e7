//! Logs with records of snapshots, of the trash and of restores, salvaged as files.

use std::fs;
use std::path::Path;

use forebay_fs::{RestoreRequest, Wanted};
use forebay_salvage::logs::{Content, Label, Logs, NameEvent, Salvage, What};
use forebay_types::Lsn;
use forebay_view::View;

use super::*;
use crate::common::folder;

/// Salvages the log of the gateway that has ended, with the volume as its base.
fn salvage(bucket: &Bucket, to: &Path) -> Salvage {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let logs = Logs::open(bucket.local.path()).unwrap();
        let store = bucket.store().await;
        let base = View::open(&store, &bucket.expected).await.unwrap();
        let salvaged = logs.salvage(&Label::Current, to, Some(&base)).await;
        salvaged.unwrap()
    })
}

fn restore(path: &str, to: &str) -> RestoreRequest {
    RestoreRequest {
        snapshot: "s".into(),
        path: path.into(),
        to: Some(to.into()),
        replace: false,
    }
}

fn put(life: &Life, name: &[u8], seed: u64, len: usize) -> Inode {
    let inode = life.create(name);
    life.write(inode, 0, &pattern(seed, len), Stability::FileSync);
    inode
}

#[test]
fn a_log_with_a_snapshot_an_undelete_and_a_restored_file_is_salvaged_whole() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    put(&life, b"notes", 1, 5000);
    let gone = put(&life, b"gone", 2, 5000);
    life.flush();
    snapshot(&life, "s");
    life.flush();
    let keeping = forebay_vfs::Credentials {
        trash: 3600,
        ..ROOT
    };
    life.run(|volume| async move {
        volume.remove(&keeping, Inode::ROOT, b"gone").await.unwrap();
        volume.restore(restore("/notes", "/back")).await.unwrap();
        volume.flush().await.unwrap();
    });
    let back = life.lookup(b"back").inode;

    // From here on the log alone has it.
    bucket.controls.meta_puts.close();
    snapshot(&life, "in the log alone");
    life.run(|volume| async move {
        let (send, _back) = tokio::sync::mpsc::channel(10);
        let wanted = Wanted::Path(b"/gone".to_vec());
        volume.undelete(&wanted, None, &send).await.unwrap();
    });
    life.write(gone, 1000, &pattern(3, 100), Stability::FileSync);
    life.write(back, 2000, &pattern(4, 100), Stability::FileSync);
    put(&life, b"later", 5, 300);
    life.crash();
    bucket.controls.meta_puts.open();

    let logs = Logs::open(bucket.local.path()).unwrap();
    let mut events = logs.events(&Label::Current, Lsn::ZERO).unwrap();
    let mut seen = Vec::new();
    while let Some(event) = events.next() {
        if let What::Snapshot { name, .. } = event.what {
            seen.push(name);
        }
    }
    assert_eq!(seen.last().map(String::as_str), Some("in the log alone"));
    drop(logs);

    let at = folder();
    let to = at.path().join("salvaged");
    let salvaged = salvage(&bucket, &to);
    assert!(salvaged.gaps.is_empty() && salvaged.not_understood.is_empty());
    let files: Vec<_> = salvaged
        .files
        .iter()
        .map(|file| (&*file.path, &file.content))
        .collect();
    let expected = [
        ("/gone", &Content::Merged),
        ("/back", &Content::Merged),
        ("/later", &Content::Whole),
    ];
    assert_eq!(files, expected);
    for (name, seed, patch, from) in [("gone", 2, 3, 1000), ("back", 1, 4, 2000)] {
        let mut bytes = pattern(seed, 5000);
        bytes[from..from + 100].copy_from_slice(&pattern(patch, 100));
        assert!(
            fs::read(to.join("files").join(name)).unwrap() == bytes,
            "{name}"
        );
    }
    assert!(fs::read(to.join("files/later")).unwrap() == pattern(5, 300));
    let left_trash = salvaged.changes.iter().any(
        |change| matches!(change.event, NameEvent::Trash { inode, is_in: false } if inode == gone),
    );
    assert!(left_trash, "{:?}", salvaged.changes);
}

#[test]
fn files_of_a_restore_that_was_not_published_are_salvaged_as_sizes_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let d = life.mkdir(Inode::ROOT, b"d");
    let file = life.create_in(d, b"file");
    life.write(file, 0, &pattern(1, 5000), Stability::FileSync);
    life.create_in(d, b"empty");
    snapshot(&life, "s");
    life.flush();
    bucket.controls.meta_puts.close();
    let restoring =
        life.spawn(|volume| async move { volume.restore(restore("/d", "/back")).await });
    eventually("the file is staged", || {
        let staged = life.try_lookup(Inode::ROOT, b".forebay-restore");
        let file = staged.and_then(|staged| life.try_lookup(staged.inode, b"file"));
        file.is_ok_and(|file| file.size == 5000)
    });
    let mine = life.create(b"mine");
    life.write(mine, 0, &pattern(2, 300), Stability::FileSync);
    assert!(!restoring.is_finished());
    life.crash();
    bucket.controls.meta_puts.open();

    let at = folder();
    let to = at.path().join("salvaged");
    let salvaged = salvage(&bucket, &to);
    let content = |path: &str| {
        let found = salvaged.files.iter().find(|file| file.path == path);
        found.map(|file| (file.size, file.content.clone(), file.ranges.len()))
    };
    // Zeros, and nothing says otherwise.
    assert_eq!(
        content("/.forebay-restore/file"),
        Some((5000, Content::RangesOnly, 0))
    );
    assert_eq!(content("/mine"), Some((300, Content::Whole, 1)));
    assert_eq!(content("/back/file"), None);
}
