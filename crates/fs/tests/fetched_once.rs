//! Readers that want the same bytes at about the same time: the bucket is asked for each of them once.

use forebay_fs::{Compression, FsConfig};
use forebay_types::Inode;
use forebay_vfs::Stability;

use crate::common::{Bucket, Life, assert_bytes, eventually, pattern, read};

const BLOCK: u64 = 4 << 20;
/// The bytes of one frame. Too long for a window of a pack.
const FRAME: u64 = 256 << 10;

fn plain(config: &mut FsConfig) {
    config.compression = Compression::Off;
}

/// A bucket with a file that has a frame of its own pack at each of these offsets, and a gateway that has nothing of
/// it in memory.
fn cold(frames: [u64; 2]) -> (Bucket, Life, Inode) {
    let bucket = Bucket::new();
    let life = bucket.start(plain);
    let inode = life.create(b"cold");
    for at in frames {
        life.write(inode, at, &pattern(at, FRAME as usize), Stability::Unstable);
        life.flush();
    }
    life.stop();
    let life = bucket.start(plain);
    (bucket, life, inode)
}

/// From now on GETs of the older of two packs are held.
fn hold_the_older_pack(bucket: &Bucket) {
    let packs = bucket.packs();
    assert_eq!(packs.len(), 2);
    let name = packs[0].0.file_name().unwrap().to_str().unwrap();
    bucket.controls.hold_gets_of(name);
    bucket.controls.pack_gets.close();
}

#[test]
fn a_frame_that_has_come_is_not_asked_for_again_while_its_reader_waits_for_another() {
    let (bucket, life, inode) = cold([0, FRAME]);
    hold_the_older_pack(&bucket);
    let (gets, got) = (
        bucket.controls.pack_gets.arrived(),
        bucket.counts().bytes_got,
    );
    let both = life.spawn(move |volume| async move {
        let bytes = read(&volume, inode, 0, 2 * FRAME as usize).await.unwrap();
        assert_bytes(&bytes[..FRAME as usize], &pattern(0, FRAME as usize));
        assert_bytes(&bytes[FRAME as usize..], &pattern(FRAME, FRAME as usize));
    });
    eventually("the second frame has come, and the first has not", || {
        let came = bucket.counts().bytes_got - got;
        came >= FRAME && bucket.controls.pack_gets.held() == 1
    });
    let second = life.read(inode, FRAME, FRAME as usize);
    assert_bytes(&second, &pattern(FRAME, FRAME as usize));
    bucket.controls.pack_gets.open();
    life.join(both);
    assert_eq!(bucket.controls.pack_gets.arrived() - gets, 2);
}

#[test]
fn bytes_that_have_come_since_a_read_was_planned_are_not_asked_for_again() {
    // On both sides of the border of two blocks, which a read fetches one after the other.
    let (bucket, life, inode) = cold([BLOCK - FRAME, BLOCK]);
    hold_the_older_pack(&bucket);
    let gets = bucket.controls.pack_gets.arrived();
    let both = life.spawn(move |volume| async move {
        let from = BLOCK - FRAME;
        let bytes = read(&volume, inode, from, 2 * FRAME as usize)
            .await
            .unwrap();
        assert_bytes(&bytes[..FRAME as usize], &pattern(from, FRAME as usize));
        assert_bytes(&bytes[FRAME as usize..], &pattern(BLOCK, FRAME as usize));
    });
    eventually("it waits for the first block", || {
        bucket.controls.pack_gets.held() == 1
    });
    let second = life.read(inode, BLOCK, FRAME as usize);
    assert_bytes(&second, &pattern(BLOCK, FRAME as usize));
    bucket.controls.pack_gets.open();
    life.join(both);
    assert_eq!(bucket.controls.pack_gets.arrived() - gets, 2);
}
