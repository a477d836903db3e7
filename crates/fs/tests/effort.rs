//! Uploads use what clients leave: a burst that fits the log meets none, and a load without a pause is published all the same.

use std::time::Duration;

use forebay_fs::{FsConfig, LogConfig};
use forebay_types::Inode;
use forebay_vfs::{Stability, Trouble};

use crate::common::{Bucket, Life, assert_bytes, eventually, pattern};

const MIB: usize = 1 << 20;
/// More than what closes a checkpoint, in blocks that could be uploaded early; no writer waits for memory.
const BURST: usize = 40 * MIB;

/// A gateway whose clients count as busy from the first change on.
fn busy(config: &mut FsConfig) {
    config.busy_time = Duration::from_secs(3600);
    config.memory_limit = 64 << 20;
    config.checkpoint_bytes = 8 << 20;
    config.early_bytes = 0;
    config.log = LogConfig::Disk {
        limit: 1 << 30,
        segment: 16 << 20,
    };
}

fn write(life: &Life, bytes: &[u8]) -> Inode {
    let inode = life.create(b"file");
    life.write(inode, 0, bytes, Stability::Unstable);
    life.commit(inode);
    inode
}

fn puts(bucket: &Bucket) -> usize {
    bucket.controls.pack_puts.arrived()
}

#[test]
fn a_burst_that_fits_meets_no_upload_and_is_uploaded_in_the_pause_after_it() {
    let bucket = Bucket::new();
    let bytes = pattern(1, BURST);
    let life = bucket.start(busy);
    let inode = write(&life, &bytes);
    let status = life.volume.status();
    assert_eq!((puts(&bucket), status.dirty_bytes), (0, BURST as u64));
    life.crash();

    // Nothing is recorded: a pause.
    let life = bucket.start(busy);
    eventually("checkpoints of the replay are published", || {
        life.volume.status().dirty_bytes < BURST as u64
    });
    assert_bytes(&life.read(inode, 0, BURST), &bytes);
    life.crash();
}

#[test]
fn a_burst_is_uploaded_as_soon_as_a_call_waits_for_the_bucket() {
    let bucket = Bucket::new();
    let life = bucket.start(busy);
    write(&life, &pattern(1, BURST));
    assert_eq!(puts(&bucket), 0);
    life.flush();
    assert_eq!(life.volume.status().dirty_bytes, 0);
    life.crash();
}

#[test]
fn clients_without_a_pause_are_published_when_the_interval_is_over() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        busy(config);
        config.checkpoint_interval = Duration::from_millis(300);
    });
    write(&life, &pattern(1, BURST));
    eventually("all is in the bucket", || {
        life.volume.status().dirty_bytes == 0
    });
    assert_eq!(life.waiting(Trouble::Bucket), 0);
    life.crash();
}

#[test]
fn a_log_that_fills_is_uploaded_before_the_interval_is_over() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        busy(config);
        config.log = LogConfig::Disk {
            limit: 128 << 20,
            segment: 16 << 20,
        };
    });
    // A third of the log.
    write(&life, &pattern(1, BURST));
    eventually("the log has room", || {
        life.volume.status().dirty_bytes < BURST as u64
    });
    life.crash();
}
