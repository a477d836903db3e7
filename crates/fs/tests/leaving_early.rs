//! Eager upload: blocks that a stream has filled go to the bucket before their checkpoint closes, and can be evicted
//! then. They read as they were written, whatever is written, cut off, removed or published around them, and a crash
//! loses none of them.

use proptest::prelude::*;

use crate::common::*;
use crate::histories::try_all;
use forebay_fs::FsConfig;
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::Stability;

const MIB: u64 = 1 << 20;
const BLOCK: usize = BLOCK_SIZE as usize;

/// Little memory, and no publications; blocks are uploaded as soon as they are full, each in a pack of its own.
fn eager(config: &mut FsConfig) {
    config.memory_limit = 16 * MIB;
    config.pack_bytes = BLOCK_SIZE;
    config.early_bytes = 0;
    config.compression = forebay_fs::Compression::Off;
}

/// Waits until all packs that were begun are in the bucket, and at least this many.
fn arrived(bucket: &Bucket, life: &Life, packs: usize) {
    eventually("the blocks have left", || {
        bucket.packs().len() >= packs && life.volume.status().uploads == 0
    });
}

#[test]
fn a_stream_larger_than_memory_goes_through_without_a_publication() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"stream");
    life.flush();
    let published = life.volume.status().published;
    let data = pattern(1, 16 * BLOCK);
    life.write(inode, 0, &data, Stability::Unstable);
    eventually("all of it has left", || {
        life.volume.status().dirty_bytes == 0
    });
    assert_eq!(life.volume.status().published, published);
    // Three quarters of it cannot be in memory.
    let before = bucket.counts();
    assert_bytes(&life.read(inode, 0, data.len()), &data);
    assert!(bucket.counts().gets > before.gets);
    // None of it is lost with this gateway, nor uploaded twice.
    life.crash();
    let life = bucket.start(eager);
    assert_bytes(&life.read(inode, 0, data.len()), &data);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(eager);
    assert_bytes(&life.read(inode, 0, data.len()), &data);
}

#[test]
fn the_memory_of_packs_is_given_back_though_the_checkpoint_stays_open() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        eager(config);
        // No writer needs the room.
        config.memory_limit = 64 * MIB;
    });
    let inode = life.create(b"stream");
    life.flush();
    let published = life.volume.status().published;
    life.write(inode, 0, &pattern(1, 2 * BLOCK), Stability::Unstable);
    arrived(&bucket, &life, 2);
    let kept = life.volume.status().leased_bytes;
    assert!(kept >= BLOCK_SIZE, "it serves the next pack: {kept} bytes");
    eventually("it is given back", || {
        life.volume.status().leased_bytes == 0
    });
    assert_eq!(life.volume.status().published, published);
}

#[test]
fn what_left_early_is_not_uploaded_again_and_is_counted_once() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"stream");
    let data = pattern(1, 8 * BLOCK);
    life.write(inode, 0, &data, Stability::Unstable);
    arrived(&bucket, &life, 8);
    let before = bucket.pack_bytes();
    life.flush();
    assert_eq!(bucket.pack_bytes(), before);
    assert_eq!(life.volume.status().used_bytes, data.len() as u64);
    assert_eq!(life.getattr(inode).unwrap().used, data.len() as u64);
    life.remove(b"stream");
    life.flush();
    life.flush();
    assert_eq!(life.volume.status().used_bytes, 0);
    eventually("the packs are deleted", || bucket.packs().is_empty());
}

#[test]
fn a_file_that_may_be_gone_again_soon_stays_until_its_checkpoint_closes_and_a_stream_leaves_as_a_whole()
 {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.pack_bytes = BLOCK_SIZE;
        config.early_bytes = FsConfig::new("as usual".into()).early_bytes;
    });
    for number in 0..3 {
        let name = format!("temporary-{number}");
        let inode = life.create(name.as_bytes());
        life.write(inode, 0, &pattern(1, 2 * BLOCK - 1), Stability::Unstable);
        life.remove(name.as_bytes());
    }
    life.flush();
    let put = bucket.counts().bytes_put;
    assert!(put < MIB, "names and no data: {put} bytes");
    let inode = life.create(b"stream");
    life.write(inode, 0, &pattern(1, 6 * BLOCK), Stability::Unstable);
    // From the first block on.
    arrived(&bucket, &life, 6);
    assert_eq!(bucket.packs().len(), 6);
}

#[test]
fn a_file_that_is_removed_before_its_checkpoint_closes_leaves_nothing_behind() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"stream");
    life.write(inode, 0, &pattern(1, 4 * BLOCK), Stability::Unstable);
    arrived(&bucket, &life, 4);
    life.remove(b"stream");
    life.flush();
    assert_eq!(life.volume.status().used_bytes, 0);
    life.flush();
    eventually("the packs are deleted", || bucket.packs().is_empty());
}

#[test]
fn a_block_that_changes_on_its_way_goes_again_with_its_checkpoint() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"file");
    bucket.controls.pack_puts.close();
    let mut data = pattern(1, BLOCK);
    life.write(inode, 0, &data, Stability::Unstable);
    eventually("it is on its way", || life.volume.status().uploads == 1);
    data[1000..1005].copy_from_slice(b"later");
    life.write(inode, 1000, b"later", Stability::Unstable);
    bucket.controls.pack_puts.open();
    arrived(&bucket, &life, 1);
    // Not without a flush: a writer that overwrites the same bytes again and again pays for two uploads at most.
    assert_eq!(life.volume.status().dirty_bytes, BLOCK_SIZE);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(eager);
    assert_bytes(&life.read(inode, 0, BLOCK), &data);
    assert_eq!(life.volume.status().used_bytes, BLOCK_SIZE);
}

#[test]
fn a_checkpoint_waits_for_what_is_on_its_way_though_the_next_one_writes_there() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"file");
    bucket.controls.pack_puts.close();
    let first = pattern(1, BLOCK);
    life.write(inode, 0, &first, Stability::Unstable);
    eventually("it is on its way", || life.volume.status().uploads == 1);
    let before = life.volume.status().checkpoint;
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("the checkpoint closes", || {
        life.volume.status().checkpoint > before
    });
    let copy = {
        let mut second = first.clone();
        second[5..10].copy_from_slice(b"later");
        life.write(inode, 5, b"later", Stability::Unstable);
        bucket.controls.pack_puts.open();
        life.join(flush);
        assert_eq!(
            bucket.packs().len(),
            1,
            "a waiting flush does not upload it again"
        );
        let copy = bucket.copy();
        assert_bytes(&life.read(inode, 0, BLOCK), &second);
        copy
    };
    life.flush();
    // The first published state is that of the first checkpoint.
    let elsewhere = copy.start(eager);
    assert_bytes(&elsewhere.read(inode, 0, BLOCK), &first);
}

#[test]
fn what_the_next_checkpoint_cuts_off_is_kept_for_this_one_and_not_read() {
    let bucket = Bucket::new();
    let life = bucket.start(eager);
    let inode = life.create(b"file");
    let data = pattern(1, 2 * BLOCK);
    life.write(inode, 0, &data, Stability::Unstable);
    arrived(&bucket, &life, 2);
    // Another upload that keeps the publisher waiting.
    bucket.controls.pack_puts.close();
    let other = life.create(b"other");
    life.write(other, 0, b"other", Stability::Unstable);
    let before = life.volume.status().checkpoint;
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    eventually("the checkpoint closes", || {
        life.volume.status().checkpoint > before
    });
    life.truncate(inode, 1000);
    life.truncate(inode, data.len() as u64);
    let mut cut = data.clone();
    cut[1000..].fill(0);
    assert_bytes(&life.read(inode, 0, cut.len()), &cut);
    bucket.controls.pack_puts.open();
    life.join(flush);
    let copy = bucket.copy();
    assert_bytes(&life.read(inode, 0, cut.len()), &cut);
    life.flush();
    life.crash();
    assert_bytes(&copy.start(eager).read(inode, 0, data.len()), &data);
    let life = bucket.start_elsewhere(eager);
    assert_bytes(&life.read(inode, 0, cut.len()), &cut);
}

#[derive(Clone, Debug)]
enum Event {
    /// A whole block.
    Fill(u64, u64),
    Write(u64, usize, u64),
    Truncate(u64),
    /// A stream of another file, for which clean blocks must be evicted.
    Stream(u64),
    Read(u64, usize),
    Flush,
    FlushBeside,
    Crash,
}

const BLOCKS: u64 = 5;

fn event() -> impl Strategy<Value = Event> {
    let end = BLOCKS * BLOCK_SIZE;
    let at = prop_oneof![
        0..end,
        (0..BLOCKS, 0..3u64).prop_map(|(block, off)| (block * BLOCK_SIZE + off).saturating_sub(1))
    ];
    prop_oneof![
        8 => (0..BLOCKS, any::<u64>()).prop_map(|(block, seed)| Event::Fill(block, seed)),
        5 => (at.clone(), 1..300_000usize, any::<u64>()).prop_map(|(at, len, seed)| Event::Write(at, len, seed)),
        4 => at.clone().prop_map(Event::Truncate),
        3 => any::<u64>().prop_map(Event::Stream),
        5 => (at, 1..3_000_000usize).prop_map(|(at, len)| Event::Read(at, len)),
        2 => Just(Event::Flush),
        3 => Just(Event::FlushBeside),
        1 => Just(Event::Crash),
    ]
}

/// The expected content of a file.
#[derive(Default)]
struct Expected(Vec<u8>);

impl Expected {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.0.resize(self.0.len().max(at + bytes.len()), 0);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn check(&self, life: &Life, inode: Inode) {
        assert_bytes(&life.read(inode, 0, self.0.len() + 1), &self.0);
    }
}

fn run(events: &[Event]) {
    let bucket = Bucket::new();
    let mut life = bucket.start(eager);
    let (inode, other) = (life.create(b"file"), life.create(b"other"));
    let mut expected = Expected::default();
    for event in events {
        match *event {
            Event::Fill(block, seed) => {
                let bytes = pattern(seed, BLOCK);
                life.write(inode, block * BLOCK_SIZE, &bytes, Stability::Unstable);
                expected.write(block * BLOCK_SIZE, &bytes);
            }
            Event::Write(at, len, seed) => {
                let bytes = pattern(seed, len);
                life.write(inode, at, &bytes, Stability::Unstable);
                expected.write(at, &bytes);
            }
            Event::Truncate(size) => {
                life.truncate(inode, size);
                expected.0.resize(size as usize, 0);
            }
            Event::Stream(seed) => {
                life.write(other, 0, &pattern(seed, 5 * BLOCK), Stability::Unstable);
            }
            Event::Read(at, len) => {
                let found = life.read(inode, at, len);
                let end = expected.0.len();
                let range = (at as usize).min(end)..(at as usize + len).min(end);
                assert_bytes(&found, &expected.0[range]);
            }
            Event::Flush => life.flush(),
            Event::FlushBeside => {
                drop(life.spawn(|volume| async move { volume.flush().await }));
            }
            Event::Crash => {
                life.crash();
                life = bucket.start(eager);
                expected.check(&life, inode);
            }
        }
    }
    expected.check(&life, inode);
    life.flush();
    expected.check(&life, inode);
    life.crash();
    let life = bucket.start_elsewhere(eager);
    expected.check(&life, inode);
    // The counts are those of the existing objects.
    life.remove(b"file");
    life.remove(b"other");
    life.flush();
    life.flush();
    assert_eq!(life.volume.status().used_bytes, 0);
}

#[test]
fn files_read_as_they_were_written_whatever_leaves_early() {
    let histories = prop::collection::vec(event(), 5..40);
    try_all(&histories, |events| run(&events));
}
