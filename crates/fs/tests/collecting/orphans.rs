//! Orphaned packs.

use forebay_fs::FsConfig;

use super::{MIB, eager, order, write};
use crate::common::{Bucket, Life, eventually, pattern};

#[test]
fn packs_of_this_gateway_that_are_not_published_yet_are_no_orphans() {
    let bucket = Bucket::new();
    let early = |config: &mut FsConfig| {
        eager(config);
        config.early_bytes = 0;
    };
    let life = bucket.start(early);
    let inode = life.create(b"file");
    life.flush();
    let stream = |life: &Life, seed| {
        let before = bucket.packs().len();
        for block in 0..16 {
            write(life, inode, block * MIB, seed + block, MIB);
        }
        eventually("some has left", || {
            bucket.packs().len() > before + 1 && life.volume.status().uploads == 0
        });
    };
    stream(&life, 1);
    life.crash();
    let orphans = bucket.packs().len() as u64;

    // Blocks that are streamed while the first commit is held are in the bucket when the collector looks, and in no
    // metadata.
    let life = bucket.start_elsewhere(early);
    bucket.controls.manifest_puts.close();
    life.create(b"other");
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("the commit is held up", || {
        bucket.controls.manifest_puts.held() > 0
    });
    stream(&life, 100);
    let before = bucket.packs();
    bucket.controls.manifest_puts.open();
    life.join(flush);
    eventually("the orphans have gone", || {
        life.volume.status().collector.orphans_deleted >= orphans
    });
    // The order ends only after the look that has deleted them.
    order(&life);
    let after = bucket.packs();
    let gone = before.iter().filter(|pack| !after.contains(pack)).count();
    assert_eq!(gone as u64, orphans);
    life.flush();
    life.crash();
    let elsewhere = bucket.start_elsewhere(eager);
    for block in 0..16 {
        let content = pattern(100 + block, MIB as usize);
        assert!(
            elsewhere.read(inode, block * MIB, MIB as usize) == content,
            "block {block}"
        );
    }
}
