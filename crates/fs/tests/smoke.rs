//! The main flow of a volume, on a store in memory.

mod common;

use common::*;
use forebay_vfs::{CreateMode, FileSystem, Stability};

#[test]
fn written_bytes_are_read_back_and_survive_in_the_bucket_alone() {
    let bucket = Bucket::new();
    let data = pattern(1, 10 << 20);
    let life = bucket.start(|config| config.memory_limit = 64 << 20);
    let inode = life.run(|volume| async move {
        let made = volume
            .create(&ROOT, forebay_types::Inode::ROOT, b"file", &CreateMode::Guarded(Default::default()))
            .await
            .unwrap();
        made.attributes.inode
    });
    life.write(inode, 0, &data, Stability::Unstable);
    life.write(inode, 12 << 20, b"tail", Stability::FileSync);
    assert_eq!(life.read(inode, 0, 10 << 20), data);
    assert_eq!(life.read(inode, 10 << 20, 2 << 20), vec![0; 2 << 20]);
    life.flush();
    life.crash();

    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.read(inode, 0, 10 << 20), data);
    assert_eq!(life.read(inode, 10 << 20, 2 << 20), vec![0; 2 << 20]);
    assert_eq!(life.read(inode, 12 << 20, 100), b"tail");
}
