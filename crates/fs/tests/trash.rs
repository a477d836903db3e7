//! The trash: what is removed or replaced stays as long as the caller says, through crashes, and gives way.

mod moves;
mod room;
mod seen;
mod speed;
mod undelete;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::*;
use forebay_fs::{Clock, Environment, FsConfig, TrashEntry, TrashError, Undeleted, Wanted};
use forebay_types::Inode;
use forebay_vfs::{Credentials, FileSystem, Stability, Timestamp};
use tokio::sync::mpsc;

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
    life.run(|volume| async move {
        let page = volume.trash_after(None, 10_000).await.unwrap();
        assert_eq!(page.next, None);
        page.entries
    })
}

fn paths(life: &Life) -> Vec<String> {
    let path = |entry: TrashEntry| String::from_utf8(entry.path.unwrap()).unwrap();
    listed(life).into_iter().map(path).collect()
}

/// What is back, and what has been done.
fn undelete_wanted(
    life: &Life,
    wanted: Wanted,
    to: Option<&str>,
) -> Result<(Vec<TrashEntry>, Undeleted), TrashError> {
    let to = to.map(|to| to.as_bytes().to_vec());
    life.run(|volume| async move {
        let (send, mut back) = mpsc::channel(1000);
        let done = volume.undelete(&wanted, to.as_deref(), &send).await?;
        drop(send);
        let mut entries = Vec::new();
        while let Some(entry) = back.recv().await {
            entries.push(entry);
        }
        assert_eq!(entries.len() as u64, done.objects);
        Ok((entries, done))
    })
}

fn undelete(life: &Life, path: &str) -> Result<Vec<TrashEntry>, TrashError> {
    let wanted = Wanted::Path(path.as_bytes().to_vec());
    undelete_wanted(life, wanted, None).map(|(entries, _)| entries)
}

fn undelete_to(life: &Life, inode: Inode, to: &str) -> Result<(), TrashError> {
    undelete_wanted(life, Wanted::Id(inode), Some(to)).map(drop)
}

fn empty(life: &Life) {
    life.run(|volume| async move { volume.empty_trash().await.unwrap() });
}

fn count(life: &Life) -> (u64, u64) {
    let status = life.volume.status();
    (status.trash_entries, status.trash_bytes)
}
