//! Openings that end before they are complete, one after the other: none of them may lose the log.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use forebay_fs::{Environment, LocalFolder, Volume};
use forebay_types::Inode;
use forebay_wal::Storage;

/// A local folder whose state file can be replaced this many times, and then no more.
struct Ending {
    folder: Arc<dyn LocalFolder>,
    replacements: AtomicUsize,
    /// Whether the failing replacement takes effect nevertheless.
    last_is_made: bool,
}

impl LocalFolder for Ending {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> io::Result<Arc<dyn Storage>> {
        self.folder.log()
    }

    fn load_state(&self) -> io::Result<Option<Vec<u8>>> {
        self.folder.load_state()
    }

    fn replace_state(&self, content: &[u8]) -> io::Result<()> {
        let left = self.replacements.fetch_sub(1, Ordering::SeqCst);
        if left > 1 || self.last_is_made {
            self.folder.replace_state(content)?;
        }
        if left > 1 {
            return Ok(());
        }
        Err(io::Error::other("the process ends here"))
    }

    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        self.folder.mark()
    }

    fn set_mark(&self, line: &[u8]) -> io::Result<()> {
        self.folder.set_mark(line)
    }

    fn write_note(&self, label: &str, text: &[u8]) -> io::Result<()> {
        self.folder.write_note(label, text)
    }

    fn boot_id(&self) -> [u8; 16] {
        self.folder.boot_id()
    }
}

/// Opens the volume until its state file is about to be replaced, or was just replaced, for the `replacement`th time.
fn open_until(bucket: &Bucket, replacement: usize, last_is_made: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let opened = runtime.block_on(async {
        let config = bucket.config();
        let mut environment = Environment::real(config.data_dir.clone());
        environment.local = Arc::new(Ending {
            folder: environment.local,
            replacements: AtomicUsize::new(replacement),
            last_is_made,
        });
        let store = bucket.store().await;
        let opened = Volume::open_in(&store, config, environment).await;
        opened.map(drop).unwrap_err().to_string()
    });
    assert!(opened.contains("the process ends here"), "{opened}");
    runtime.shutdown_timeout(TIMEOUT);
}

#[test]
fn two_openings_that_ended_early_leave_the_log_to_the_third() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.crash();
    // The bucket has this one's epoch, and the folder knows it only as an intent ...
    open_until(&bucket, 2, false);
    // ... which this one replaces by its own, before the bucket has that epoch.
    open_until(&bucket, 1, true);
    let life = bucket.start(|_| {});
    assert_eq!(life.try_lookup(Inode::ROOT, b"file").unwrap().inode, inode);
}

/// The epoch that such an opening was about to take is none that the bucket has had.
#[test]
fn an_opening_after_a_takeover_that_ended_early_leaves_the_volume_to_the_next() {
    let bucket = Bucket::new();
    bucket.start(|_| {}).stop();
    let life = bucket.start_elsewhere(|_| {});
    let inode = life.create(b"file");
    life.stop();
    for (replacement, last_is_made) in [(1, true), (1, true), (2, false)] {
        open_until(&bucket, replacement, last_is_made);
    }
    let life = bucket.start(|_| {});
    assert_eq!(life.try_lookup(Inode::ROOT, b"file").unwrap().inode, inode);
}
