//! What an answered COMMIT has reached in each commit mode: the log, the disk, the bucket.

use crate::common::{Bucket, Life, Moment, ROOT, eventually};
use forebay_fs::{CommitMode, LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, FileSystem, SetAttributes, Stability, Trouble};

/// The volume of an export with this mode.
fn with_mode(bucket: &Bucket, mode: CommitMode) -> Life {
    let mut life = bucket.start(|_| {});
    life.volume = life.volume.with_commit_mode(mode);
    life
}

async fn write(volume: &Volume, file: Inode, byte: u8, stability: Stability) {
    let written = volume.write(&ROOT, file, 0, &[byte; 5000], stability).await;
    written.unwrap();
}

/// The file `name` as a gateway on another machine finds it; `None` if there is no such file.
fn in_the_bucket(bucket: &Bucket, name: &[u8]) -> Option<Vec<u8>> {
    let elsewhere = bucket.copy();
    let life = elsewhere.start_elsewhere(|_| {});
    let found = life.try_lookup(Inode::ROOT, name).ok()?;
    Some(life.read(found.inode, 0, 10_000))
}

#[test]
fn what_was_committed_to_the_bucket_outlives_the_machine() {
    let bucket = Bucket::new();
    let life = with_mode(&bucket, CommitMode::Bucket);
    let file = life.create(b"f");
    assert_eq!(in_the_bucket(&bucket, b"f"), Some(Vec::new()), "CREATE");

    life.run(|volume| async move { write(&volume, file, 1, Stability::Unstable).await });
    life.commit(file);
    assert_eq!(in_the_bucket(&bucket, b"f"), Some(vec![1; 5000]), "COMMIT");

    life.run(|volume| async move { write(&volume, file, 2, Stability::FileSync).await });
    assert_eq!(
        in_the_bucket(&bucket, b"f"),
        Some(vec![2; 5000]),
        "WRITE FILE_SYNC"
    );

    life.rename((Inode::ROOT, b"f"), (Inode::ROOT, b"g"))
        .unwrap();
    assert_eq!(in_the_bucket(&bucket, b"f"), None, "RENAME");
    life.remove(b"g");
    assert_eq!(in_the_bucket(&bucket, b"g"), None, "REMOVE");
}

#[test]
fn commits_to_the_bucket_at_the_same_time_share_a_checkpoint() {
    const FILES: usize = 64;
    let bucket = Bucket::new();
    let life = with_mode(&bucket, CommitMode::Bucket);
    let files: Vec<Inode> = life.run(|volume| async move {
        // These wait only for the disk, so they do not cost a checkpoint each.
        let quick = volume.with_commit_mode(CommitMode::Disk);
        let mut files = Vec::new();
        for i in 0..FILES {
            let mode = CreateMode::Guarded(SetAttributes::default());
            let name = format!("f{i}");
            let made = quick
                .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                .await;
            files.push(made.unwrap().attributes.inode);
        }
        files
    });
    life.flush();
    let before = life.volume.status().checkpoint;
    bucket.controls.everything.close();
    let tasks: Vec<_> = files
        .into_iter()
        .map(|file| {
            life.spawn(move |volume| async move {
                write(&volume, file, 7, Stability::Unstable).await;
                volume.commit(&ROOT, file, 0, 0).await.unwrap();
            })
        })
        .collect();
    eventually("all wait for the bucket", || {
        life.waiting(Trouble::Bucket) == FILES as u64
    });
    bucket.controls.everything.open();
    for task in tasks {
        life.join(task);
    }
    let checkpoints = life.volume.status().checkpoint.0 - before.0;
    assert!(
        checkpoints <= 4,
        "{checkpoints} checkpoints for {FILES} commits"
    );
    for i in [0, FILES - 1] {
        let name = format!("f{i}");
        assert_eq!(in_the_bucket(&bucket, name.as_bytes()), Some(vec![7; 5000]));
    }
}

#[test]
fn while_the_bucket_is_away_only_commits_to_it_wait() {
    let bucket = Bucket::new();
    let life = with_mode(&bucket, CommitMode::Bucket);
    let file = life.create(b"f");
    bucket.controls.set_down(true);
    life.run(|volume| async move {
        for mode in [CommitMode::Disk, CommitMode::Async] {
            let volume = volume.with_commit_mode(mode);
            write(&volume, file, 3, Stability::FileSync).await;
            volume.commit(&ROOT, file, 0, 0).await.unwrap();
        }
    });
    let back = Moment::default();
    let waiting = life.spawn_until(&back, move |volume| async move {
        volume.commit(&ROOT, file, 0, 0).await.unwrap();
    });
    eventually("the outage is noticed", || {
        life.volume.status().store_trouble.is_some()
    });
    eventually("COMMIT waits for the bucket", || {
        life.waiting(Trouble::Bucket) == 1
    });
    back.mark();
    bucket.controls.set_down(false);
    let ((), waited) = life.join(waiting);
    assert!(waited, "the bucket does not have it");
    assert_eq!(in_the_bucket(&bucket, b"f"), Some(vec![3; 5000]));
}

#[test]
fn async_answers_without_a_flush_and_a_kill_loses_nothing_of_it() {
    let bucket = Bucket::new();
    let life = with_mode(&bucket, CommitMode::Async);
    let file = life.create(b"f");
    life.run(|volume| async move { write(&volume, file, 4, Stability::FileSync).await });
    life.commit(file);
    let status = life.volume.status();
    assert!(status.durable < status.end, "no flush was requested");

    life.run(|volume| async move {
        let volume = volume.with_commit_mode(CommitMode::Disk);
        volume.commit(&ROOT, file, 0, 0).await.unwrap();
    });
    let status = life.volume.status();
    assert_eq!(status.durable, status.end, "now somebody has");

    life.run(|volume| async move { write(&volume, file, 5, Stability::FileSync).await });
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(life.read(file, 0, 10_000), [5; 5000]);
}

#[test]
fn without_a_log_every_mode_is_that_of_the_bucket() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.log = LogConfig::None);
    for (byte, mode) in [
        (1, CommitMode::Disk),
        (2, CommitMode::Bucket),
        (3, CommitMode::Async),
    ] {
        life.run(|volume| async move {
            let volume = volume.with_commit_mode(mode);
            let create = CreateMode::Unchecked(SetAttributes::default());
            let made = volume.create(&ROOT, Inode::ROOT, b"f", &create).await;
            let file = made.unwrap().attributes.inode;
            write(&volume, file, byte, Stability::FileSync).await;
        });
        assert_eq!(in_the_bucket(&bucket, b"f"), Some(vec![byte; 5000]));
    }
}

/// The publisher takes the snapshot's checkpoint first; then nobody would ask for the one with the file before its interval
/// is over.
#[test]
fn a_commit_to_the_bucket_behind_a_snapshot_does_not_wait_for_the_interval() {
    let bucket = Bucket::new();
    let life = with_mode(&bucket, CommitMode::Bucket);
    let files = [life.create(b"first"), life.create(b"second")];
    life.flush();
    bucket.controls.pack_puts.close();
    let commit = |file| {
        life.spawn(move |volume| async move {
            write(&volume, file, 7, Stability::Unstable).await;
            volume.commit(&ROOT, file, 0, 0).await.unwrap();
        })
    };
    let first = commit(files[0]);
    eventually("the first one is being uploaded", || {
        bucket.controls.pack_puts.held() > 0
    });
    // One that does not wait for the bucket itself.
    let made = life.run(|volume| async move {
        let volume = volume.with_commit_mode(CommitMode::Disk);
        volume.make_snapshot("now", "a test").await
    });
    made.unwrap();
    let second = commit(files[1]);
    eventually("the second one waits", || {
        life.waiting(Trouble::Bucket) == 2
    });
    bucket.controls.pack_puts.open();
    life.join(first);
    life.join(second);
    life.crash();
}
