//! The file layer: `forebay-fs`, over a bucket in memory and a log in a folder in memory.
//!
//! The runtime is entered and never run: its background work does not happen, and an operation that had to wait for it
//! would end the program. So changes are as stable as with `commit = async`, which never waits.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use forebay_fs::{CommitMode, FsConfig, LogConfig, Volume};
use forebay_object::StoreOptions;
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, NewNode, SetAttributes, Stability};
use tokio::runtime::{Builder, Runtime};

use crate::operation::{Operation, Turn, ready};
use crate::surroundings;

const KIB_4: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
/// Less than the size from which on data are uploaded eagerly.
const FILE_BYTES: u64 = 4 * MIB;

static ROOT: Credentials = Credentials::ROOT;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("fs/getattr", 1024, getattr),
        Operation::new("fs/lookup", 1024, lookup),
        Operation::new("fs/create", 1024, || create(|_| Inode::ROOT)),
        Operation::new("fs/create in a directory made here", 1024, || {
            create(published_directory)
        }),
        Operation::new("fs/write 4 KiB", 1024, || write(KIB_4)),
        Operation::new("fs/write 1 MiB", 8, || write(MIB)),
        Operation::new("fs/read 4 KiB", 1024, || read(KIB_4)),
        Operation::new("fs/read 1 MiB", 16, || read(MIB)),
    ]
}

/// An open volume with a file.
struct Opened {
    volume: Volume,
    file: Inode,
    runtime: Runtime,
    _local: tempfile::TempDir,
}

const NAME: &[u8] = b"file";

fn open() -> Opened {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let local = tempfile::tempdir_in(surroundings::memory_folder()).expect("a local folder");
    let mut config = FsConfig::new(local.path().to_owned());
    // Counted operations never fill the first segment.
    let segment = 32 << 20;
    config.log = LogConfig::Disk {
        limit: 2 * segment,
        segment,
    };
    let (volume, made) = runtime.block_on(async {
        let store = forebay_object::open("memory://", &StoreOptions::default()).await;
        let store = store.expect("a store in memory");
        Volume::format(&store).await.expect("a new volume");
        let volume = Volume::open(&store, config).await.expect("an open volume");
        let volume = volume.with_commit_mode(CommitMode::Async);
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = volume.create(&ROOT, Inode::ROOT, NAME, &mode).await;
        (volume, made.expect("a new file"))
    });
    Opened {
        volume,
        file: made.attributes.inode,
        runtime,
        _local: local,
    }
}

impl Opened {
    /// Writes every byte of the file.
    fn fill(&self) {
        let _entered = self.runtime.enter();
        let data = surroundings::noise(1, MIB as usize);
        for offset in (0..FILE_BYTES).step_by(MIB as usize) {
            self.write(offset, &data);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let written = self
            .volume
            .write(&ROOT, self.file, offset, data, Stability::Unstable);
        let written = ready(written).expect("written");
        assert_eq!(written.count as usize, data.len());
    }

    /// Runs `turn` at each turn.
    fn turns(self, turn: impl Fn(&Opened) + 'static) -> Turn {
        Box::new(move || {
            let _entered = self.runtime.enter();
            turn(&self);
        })
    }
}

fn getattr() -> Turn {
    open().turns(|opened| {
        let got = ready(opened.volume.getattr(black_box(opened.file)));
        black_box(got.expect("attributes"));
    })
}

fn lookup() -> Turn {
    open().turns(|opened| {
        let found = ready(opened.volume.lookup(&ROOT, Inode::ROOT, black_box(NAME)));
        black_box(found.expect("the file"));
    })
}

/// Makes one new file after the other in one directory, which is published.
fn create(directory: impl Fn(&Opened) -> Inode) -> Turn {
    let made = Rc::new(Cell::new(0));
    let opened = open();
    let directory = directory(&opened);
    opened.turns(move |opened| {
        let name = format!("made {:08}", made.replace(made.get() + 1));
        let mode = CreateMode::Guarded(SetAttributes::default());
        let created = opened
            .volume
            .create(&ROOT, directory, name.as_bytes(), &mode);
        black_box(ready(created).expect("a new file"));
    })
}

/// A directory whose names this gateway has all seen.
fn published_directory(opened: &Opened) -> Inode {
    opened.runtime.block_on(async {
        let set = SetAttributes::default();
        let made = opened
            .volume
            .make(&ROOT, Inode::ROOT, b"made", NewNode::Directory, &set)
            .await;
        opened.volume.flush().await.expect("published");
        made.expect("a new directory").attributes.inode
    })
}

/// Writes sequentially through the file, repeatedly.
fn write(bytes: u64) -> Turn {
    let opened = open();
    opened.fill();
    let (data, offset) = (surroundings::noise(2, bytes as usize), Cell::new(0));
    opened.turns(move |opened| {
        opened.write(offset.get(), &data);
        offset.set((offset.get() + bytes) % FILE_BYTES);
    })
}

/// Reads sequentially through the file, whose bytes are all in memory.
fn read(bytes: u64) -> Turn {
    let opened = open();
    opened.fill();
    let offset = Cell::new(0);
    opened.turns(move |opened| {
        let read = opened
            .volume
            .read(&ROOT, opened.file, offset.get(), bytes as u32);
        let read = ready(read).expect("read");
        let length: usize = read.data.iter().map(|piece| piece.len()).sum();
        assert_eq!(length as u64, bytes);
        offset.set((offset.get() + bytes) % FILE_BYTES);
    })
}
