//! Checkpoints: the bucket has exactly a state of the log, at no more requests and bytes than necessary.

use std::time::Duration;

use crate::common::model::{Model, Op, draw};
use crate::common::*;
use forebay_fs::Compression;
use forebay_fs::FsConfig;
use forebay_types::{BLOCK_SIZE, Inode, Lsn};
use forebay_vfs::{FileSystem, SetAttributes, Stability, Trouble};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn uncompressed(config: &mut FsConfig) {
    config.compression = Compression::Off;
}

#[test]
fn the_bucket_holds_exactly_the_state_at_its_published_lsn() {
    let seed =
        std::env::var("FOREBAY_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap());
    eprintln!("FOREBAY_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 64 << 20);
    let mut model = Model::default();
    // Every state that the log went through, by its LSN; but not those in the middle of an operation of several
    // calls.
    let mut history: Vec<(Lsn, Model)> = Vec::new();
    let mut in_pieces: Vec<std::ops::Range<Lsn>> = Vec::new();
    let mut checked = 0;
    for i in 0..600 {
        let op = draw::op().new_tree(&mut runner).unwrap().current();
        let begin = life.volume.status().end;
        model.step(&life, &op);
        let end = life.volume.status().end;
        history.push((end, model.clone()));
        if matches!(op, Op::Write { len, .. } if len > 1 << 20) {
            in_pieces.push(begin..end);
        }
        // Flushes run beside the operations.
        if i % 11 == 0 {
            drop(life.spawn(|volume| async move { volume.flush().await }));
        }
        if i % 60 == 59 {
            // The machine is lost at this moment: uploads in flight never arrive.
            let copy = bucket.copy();
            let other = copy.start_elsewhere(|_| {});
            let published = other.volume.status().published;
            let (lsn, then) = history
                .iter()
                .rev()
                .find(|(lsn, _)| *lsn <= published)
                .cloned()
                .unwrap_or_default();
            if lsn == published {
                then.check(&other);
                checked += usize::from(published > Lsn::ZERO);
            } else {
                let between = in_pieces.iter().any(|write| write.contains(&published));
                assert!(between, "{published} is not the end of an operation");
            }
            other.crash();
        }
    }
    assert!(checked >= 7, "only {checked} states were checked");
}

#[test]
fn a_small_rewrite_of_a_large_block_uploads_only_itself() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let inode = life.create(b"file");
    life.write(
        inode,
        0,
        &pattern(1, BLOCK_SIZE as usize),
        Stability::Unstable,
    );
    life.flush();
    let before = bucket.pack_bytes();
    assert!(
        (BLOCK_SIZE..BLOCK_SIZE + 4096).contains(&before),
        "{before}"
    );
    life.write(inode, 1_000_000, &pattern(2, 4096), Stability::Unstable);
    life.flush();
    let uploaded = bucket.pack_bytes() - before;
    assert!(
        (4096..4096 + 512).contains(&uploaded),
        "{uploaded} bytes for 4096"
    );
    let put = bucket.counts().bytes_put;
    life.write(inode, 1_000_000, &pattern(3, 4096), Stability::Unstable);
    life.flush();
    let all = bucket.counts().bytes_put - put;
    assert!(all < 64 << 10, "{all} bytes with the metadata");
}

#[test]
fn small_files_share_packs() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let inodes: Vec<Inode> = (0..500u64)
        .map(|i| {
            let inode = life.create(format!("file-{i}").as_bytes());
            life.write(inode, 0, &pattern(i, 3000), Stability::Unstable);
            inode
        })
        .collect();
    life.flush();
    assert_eq!(bucket.packs().len(), 1, "1.5 MB in files of 3 KB");
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    for (i, inode) in inodes.into_iter().enumerate() {
        assert_eq!(life.read(inode, 0, 5000), pattern(i as u64, 3000));
    }
}

#[test]
fn what_is_made_and_removed_within_a_checkpoint_uploads_nothing() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    for i in 0..20u8 {
        let inode = life.create(&[b'a' + i]);
        life.write(inode, 0, &pattern(1, 100_000), Stability::FileSync);
        life.remove(&[b'a' + i]);
    }
    let kept = life.create(b"kept");
    life.write(kept, 0, &pattern(1, 100_000), Stability::FileSync);
    life.truncate(kept, 0);
    life.flush();
    assert_eq!(bucket.packs(), []);
    assert_eq!(life.volume.status().used_bytes, 0);
}

#[test]
fn an_idle_volume_makes_no_requests() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.checkpoint_interval = Duration::from_millis(200));
    let inode = life.create(b"file");
    for i in 0..15 {
        life.write(inode, i * 1000, &pattern(i, 1000), Stability::Unstable);
        life.flush();
    }
    life.remove(b"file");
    life.flush();
    // Work after a publication (collecting, merging of tables) ends by itself.
    let mut last = bucket.counts();
    let mut quiet = 0;
    for _ in 0..60 {
        std::thread::sleep(Duration::from_millis(500));
        let now = bucket.counts();
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        if quiet == 6 {
            return;
        }
    }
    panic!("there are requests all the time: {last:?}");
}

#[test]
fn an_idle_volume_publishes_by_itself_when_the_interval_is_over() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.checkpoint_interval = Duration::from_millis(300));
    let inode = life.create(b"file");
    life.write(inode, 0, b"data", Stability::Unstable);
    assert!(life.volume.status().oldest_unpublished.is_some());
    assert!(life.volume.status().unpublished_bytes() > 0);
    eventually("it is published", || {
        life.volume.status().unpublished_bytes() == 0
    });
    life.crash();
    assert_eq!(bucket.start_elsewhere(|_| {}).read(inode, 0, 9), b"data");
}

#[test]
fn packs_of_removed_truncated_and_rewritten_files_are_deleted() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.pack_bytes = 1 << 20);
    let inodes: Vec<Inode> = (0..3u64)
        .map(|i| {
            let inode = life.create(format!("file-{i}").as_bytes());
            life.write(inode, 0, &pattern(i, 9 << 20), Stability::Unstable);
            inode
        })
        .collect();
    life.flush();
    let all = bucket.pack_bytes();
    life.remove(b"file-0");
    life.truncate(inodes[1], 100);
    life.write(inodes[2], 0, &pattern(9, 9 << 20), Stability::Unstable);
    life.flush();
    // The rest: one frame of file 1 (its pack holds a whole block), all of file 2.
    eventually("dead packs are deleted", || bucket.pack_bytes() < all / 2);
    assert_eq!(life.volume.status().used_bytes, (9 << 20) + 100);
    life.remove(b"file-1");
    life.remove(b"file-2");
    life.flush();
    eventually("all packs are deleted", || bucket.packs().is_empty());
    eventually("nothing is used", || life.volume.status().used_bytes == 0);
}

#[test]
fn garbage_that_a_crash_left_is_collected_after_the_next_opening() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    life.remove(b"file");
    life.crash();
    let life = bucket.start(|_| {});
    life.flush();
    life.crash();
    let _life = bucket.start(|_| {});
    eventually("the pack is deleted", || bucket.packs().is_empty());
}

#[test]
fn a_bucket_that_refuses_to_delete_does_not_hold_up_publishing() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    bucket.controls.set_deletes_refused(true);
    life.remove(b"file");
    for _ in 0..3 {
        life.create(format!("{:x}", random()).as_bytes());
        life.flush();
    }
    assert_eq!(bucket.packs().len(), 1);
    bucket.controls.set_deletes_refused(false);
    life.create(b"last");
    life.flush();
    eventually("the pack is deleted in the end", || {
        bucket.packs().is_empty()
    });
}

#[test]
fn thousands_of_tiny_writes_to_a_block_are_rewritten_in_one_piece_and_read_right() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let inode = life.create(b"file");
    let mut expected = pattern(0, BLOCK_SIZE as usize);
    life.write(inode, 0, &expected, Stability::Unstable);
    life.flush();
    life.run(|volume| {
        let expected = &mut expected;
        async move {
            for i in 0..3000usize {
                let at = i * 1381 % (BLOCK_SIZE as usize - 10);
                let data = pattern(i as u64, 3);
                volume
                    .write(&ROOT, inode, at as u64, &data, Stability::Unstable)
                    .await
                    .unwrap();
                expected[at..at + 3].copy_from_slice(&data);
                if i % 400 == 399 {
                    volume.flush().await.unwrap();
                }
            }
            volume.flush().await.unwrap();
        }
    });
    assert_bytes(&life.read(inode, 0, 5 << 20), &expected);
    eventually("packs of the pieces are deleted", || {
        bucket.pack_bytes() < 3 * BLOCK_SIZE
    });
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    let gets = bucket.counts().gets;
    assert_bytes(&life.read(inode, 0, 5 << 20), &expected);
    let gets = bucket.counts().gets - gets;
    assert!(gets < 1100, "{gets} requests to read one block");
}

#[test]
fn a_rewrite_in_one_piece_respects_a_truncate() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 2 << 20), Stability::Unstable);
    life.flush();
    life.truncate(inode, 1 << 20);
    life.truncate(inode, 2 << 20);
    let mut expected = vec![0; 2 << 20];
    expected[..1 << 20].copy_from_slice(&pattern(1, 1 << 20));
    for i in 0..700 {
        let at = i * 2993;
        life.write(inode, at as u64, b"x", Stability::Unstable);
        expected[at] = b'x';
    }
    life.flush();
    life.crash();
    assert_bytes(
        &bucket.start_elsewhere(|_| {}).read(inode, 0, 3 << 20),
        &expected,
    );
}

#[test]
fn a_rewrite_in_one_piece_ends_where_the_file_ends() {
    // The file is cut off at this size before it is written again: then nothing is left, a part of an extent, or an
    // extent with others behind it.
    for cut in [0, 1000, (1 << 20) + 5] {
        let bucket = Bucket::new();
        let life = bucket.start(|_| {});
        let inode = life.create(b"file");
        let mut expected = pattern(1, 1 << 20);
        life.write(inode, 0, &expected, Stability::Unstable);
        life.flush();
        life.write(inode, 3 << 20, &pattern(2, 1 << 20), Stability::Unstable);
        life.flush();
        assert_eq!(life.volume.status().used_bytes, 2 << 20);
        life.truncate(inode, cut);
        expected.resize(cut as usize, 0);
        for i in 0..700 {
            let at = i * 1381;
            life.write(inode, at as u64, b"x", Stability::Unstable);
            expected.resize(expected.len().max(at + 1), 0);
            expected[at] = b'x';
        }
        life.flush();
        // One frame with all bytes before the end, and nothing behind it.
        let end = (1 << 20).min(expected.len()) as u64;
        assert_eq!(life.volume.status().used_bytes, end, "cut at {cut}");
        let size = expected.len() as u64;
        life.truncate(inode, 4 << 20);
        expected.resize(4 << 20, 0);
        life.flush();
        life.crash();
        let life = bucket.start_elsewhere(|_| {});
        assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
        assert!(size < 2 << 20, "{size} is no end before the second extent");
    }
}

#[test]
fn writes_and_renames_during_an_upload_neither_wait_nor_get_lost() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    let old = pattern(1, 3 << 20);
    life.write(inode, 0, &old, Stability::Unstable);
    bucket.controls.pack_puts.close();
    let opened = Moment::default();
    let flush = life.spawn_until(&opened, |volume| async move {
        volume.flush().await.unwrap();
    });
    eventually("an upload is under way", || {
        bucket.controls.pack_puts.held() > 0
    });
    // None of these returns before the gate opens unless it does without the upload.
    let mut expected = old.clone();
    expected[100..1_000_100].copy_from_slice(&pattern(2, 1_000_000));
    life.write(inode, 100, &pattern(2, 1_000_000), Stability::FileSync);
    life.rename((Inode::ROOT, b"file"), (Inode::ROOT, b"renamed"))
        .unwrap();
    life.truncate(inode, 2 << 20);
    expected.truncate(2 << 20);
    life.create(b"new");
    assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
    opened.mark();
    bucket.controls.pack_puts.open();
    let ((), waited) = life.join(flush);
    assert!(waited);
    let copy = bucket.copy();
    let other = copy.start_elsewhere(|_| {});
    assert_bytes(&other.read(other.lookup(b"file").inode, 0, 4 << 20), &old);
    assert!(other.try_lookup(Inode::ROOT, b"new").is_err());
    other.crash();
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(
        &life.read(life.lookup(b"renamed").inode, 0, 4 << 20),
        &expected,
    );
    assert!(life.try_lookup(Inode::ROOT, b"file").is_err());
    assert!(life.try_lookup(Inode::ROOT, b"new").is_ok());
}

#[test]
fn a_checkpoint_has_the_attributes_of_its_end_though_its_packs_wait_for_one_another() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        (config.pack_bytes, config.upload_parallel) = (1 << 20, 1);
    });
    let inode = life.create(b"file");
    let old = pattern(1, 12 << 20);
    life.write(inode, 0, &old, Stability::Unstable);
    bucket.controls.pack_puts.close();
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    // The checkpoint is closed, and most of its packs are not built: its metadata follow them.
    eventually("an upload is under way", || {
        bucket.controls.pack_puts.held() > 0
    });
    life.truncate(inode, 2 << 20);
    bucket.controls.pack_puts.open();
    life.join(flush);
    let copy = bucket.copy();
    let other = copy.start_elsewhere(|_| {});
    let found = other.lookup(b"file").inode;
    assert_eq!(other.getattr(found).unwrap().size, old.len() as u64);
    assert_bytes(&other.read(found, 0, 12 << 20), &old);
    other.crash();
    life.flush();
    assert_eq!(life.getattr(inode).unwrap().size, 2 << 20);
    life.crash();
}

#[test]
fn a_reader_whose_pack_was_deleted_under_it_reads_what_took_its_place() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    life.evict();
    bucket.controls.pack_gets.close();
    let reader = life.spawn(move |volume| async move { read(&volume, inode, 0, 1 << 20).await });
    eventually("a fetch is under way", || {
        bucket.controls.pack_gets.held() > 0
    });
    let packs = bucket.packs();
    life.write(inode, 0, &pattern(2, 1 << 20), Stability::Unstable);
    life.flush();
    eventually("the old pack is deleted", || {
        bucket.packs() != packs && bucket.packs().len() == 1
    });
    bucket.controls.pack_gets.open();
    let found = life
        .join(reader)
        .expect("the file is whole at every moment");
    assert_bytes(&found, &pattern(2, 1 << 20));
}

#[test]
fn concurrent_misses_of_one_frame_share_one_get() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    let other = life.create(b"other");
    life.write(other, 0, &pattern(2, 1000), Stability::Unstable);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    for inode in [inode, other] {
        life.getattr(inode).unwrap();
    }
    let gets = &bucket.controls.pack_gets;
    let before = gets.arrived();
    gets.close();
    // In the order of this list; the last one reads a frame of another pack.
    let readers = life.spawn(move |volume| async move {
        let places = (0..8).map(|i| (inode, i * 1000)).chain([(other, 0)]);
        let reads = places.map(|(inode, at)| {
            let volume = volume.clone();
            async move { volume.read(&ROOT, inode, at, 500).await.unwrap() }
        });
        futures_util::future::join_all(reads).await
    });
    eventually("all wait, and the last one has asked the bucket", || {
        life.waiting(Trouble::Bucket) == 9 && gets.held() >= 2
    });
    gets.open();
    let found = life.join(readers);
    assert_eq!(gets.arrived() - before, 2, "one GET for each frame");
    for (i, read) in found[..8].iter().enumerate() {
        let expected = &pattern(1, 1 << 20)[i * 1000..i * 1000 + 500];
        assert_eq!(read.data.concat(), expected);
    }
}

#[test]
fn sequential_readers_are_read_ahead_for_and_random_ones_are_not() {
    let bucket = Bucket::new();
    let life = bucket.start(uncompressed);
    let inode = life.create(b"file");
    let data = pattern(1, 24 << 20);
    life.write(inode, 0, &data, Stability::Unstable);
    let other = life.create(b"other");
    let other_data = pattern(2, 8 << 20);
    life.write(other, 0, &other_data, Stability::Unstable);
    life.flush();
    life.crash();

    let life = bucket.start_elsewhere(|_| {});
    let got = bucket.counts().bytes_got;
    assert_bytes(&life.read(inode, 0, 2 << 20), &data[..2 << 20]);
    eventually("the next block is fetched", || {
        bucket.counts().bytes_got > got + (7 << 20)
    });
    assert_bytes(&life.read(inode, 2 << 20, 22 << 20), &data[2 << 20..]);
    life.crash();

    let life = bucket.start_elsewhere(|_| {});
    let got = bucket.counts().bytes_got;
    for at in [20 << 20, 9 << 20, 15 << 20] {
        assert_bytes(
            &life.read(inode, at, 4096),
            &data[at as usize..at as usize + 4096],
        );
    }
    // What is fetched ahead of this reader has its turn after whatever was fetched ahead of those reads, and all of it
    // has leased memory until it is there.
    assert_bytes(&life.read(other, 0, 8 << 20), &other_data);
    eventually("all fetches have ended", || {
        life.volume.status().leased_bytes == 0
    });
    let got = bucket.counts().bytes_got - got;
    assert!(
        got < (13 << 20),
        "{got} bytes for three reads of one frame each, and a file of 8 MiB"
    );
}

#[test]
fn attributes_names_and_times_reach_the_bucket_without_any_data() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.flush();
    life.set(
        &ROOT,
        inode,
        SetAttributes {
            mode: Some(0o4711),
            uid: Some(5),
            ..Default::default()
        },
    )
    .unwrap();
    let expected = life.getattr(inode).unwrap();
    life.flush();
    assert_eq!(bucket.packs(), []);
    life.crash();
    assert_eq!(bucket.start_elsewhere(|_| {}).getattr(inode), Ok(expected));
}

#[test]
fn ten_thousand_small_files_cost_at_most_twenty_puts() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        uncompressed(config);
        // Otherwise the speed of the machine decides what is published when.
        config.checkpoint_interval = Duration::from_secs(3600);
    });
    life.flush();
    let before = bucket.counts();
    let directory = life.mkdir(Inode::ROOT, b"small");
    for i in 0..10_000u64 {
        let inode = life.create_in(directory, format!("file-{i}").as_bytes());
        life.write(inode, 0, &pattern(i, 4096), Stability::Unstable);
    }
    life.flush();
    let after = bucket.counts();
    let (puts, bytes) = (after.puts - before.puts, after.bytes_put - before.bytes_put);
    assert!(puts <= 20, "{puts} PUTs");
    assert_eq!(after.multipart_uploads, before.multipart_uploads);
    // Each has the header of a frame and its entry in the pack's index, a name, a cookie, attributes and a map.
    assert!(bytes < 10_000 * (4096 + 512), "{bytes} bytes");
}
