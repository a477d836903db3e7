//! The collector: rewrites packs that are mostly dead, and deletes orphans.

use std::time::Duration;

use forebay_fs::{CollectRefusal, CollectorWait, Compression, FsConfig};
use forebay_object::faults::{FaultKind, Request};
use forebay_types::Inode;
use forebay_vfs::Stability;

use crate::common::{Bucket, Life, eventually, pattern};

mod accounts;
mod fragments;
mod orphans;

const MIB: u64 = 1 << 20;

/// Packs of 1 MiB, and a collector that does not rest.
fn eager(config: &mut FsConfig) {
    config.compression = Compression::Off;
    config.pack_bytes = MIB;
    config.background_rate = 1 << 40;
    config.background_requests = 1 << 20;
    config.orphan_grace = Duration::ZERO;
}

fn unhurried(config: &mut FsConfig) {
    eager(config);
    config.rewrite_below = 0;
}

fn write(life: &Life, inode: Inode, at: u64, seed: u64, len: u64) {
    let bytes = pattern(seed, len as usize);
    life.write(inode, at, &bytes, Stability::Unstable);
}

/// Makes a publication, after which the collector looks for work.
fn nudge(life: &Life) {
    life.create(format!("nudge-{:x}", crate::common::random()).as_bytes());
    life.flush();
}

/// Waits until nothing is left to rewrite or delete.
fn collected(life: &Life) {
    eventually("everything is collected", || {
        let status = life.volume.status().collector;
        status.space.is_some() && status.to_rewrite == 0
    });
}

#[test]
fn a_pack_that_is_mostly_overwritten_is_rewritten_and_the_bucket_shrinks() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    let mut content = pattern(1, 4 * MIB as usize);
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    let new = pattern(2, 3 * MIB as usize);
    life.write(inode, MIB / 2, &new, Stability::Unstable);
    content[MIB as usize / 2..][..new.len()].copy_from_slice(&new);
    life.flush();
    let full = bucket.pack_bytes();
    assert!(full > 7 * MIB);
    life.stop();

    let life = bucket.start(eager);
    nudge(&life);
    eventually("the old pack has gone", || {
        bucket.pack_bytes() < full - 2 * MIB
    });
    collected(&life);
    let status = life.volume.status().collector;
    assert_eq!((status.rewritten, status.copied_bytes), (1, MIB));
    let space = status.space.unwrap();
    assert_eq!(space.live_bytes, 4 * MIB);
    assert_eq!(space.stored_bytes, bucket.pack_bytes());
    assert_eq!(space.packs, bucket.packs().len() as u64);
    assert_eq!(life.volume.status().used_bytes, 4 * MIB);
    assert!(life.read(inode, 0, 4 * MIB as usize) == content);
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    assert!(elsewhere.read(inode, 0, 4 * MIB as usize) == content);
}

#[test]
fn what_is_left_of_many_small_files_lies_together_again() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    let len = 8 << 10;
    let files: Vec<_> = (0..512_u64)
        .map(|number| {
            let inode = life.create(format!("{number}").as_bytes());
            write(&life, inode, 0, number, len);
            (number, inode)
        })
        .collect();
    life.flush();
    assert!(bucket.packs().len() >= 4);
    for (number, _) in files.iter().filter(|(number, _)| number % 8 != 0) {
        life.remove(format!("{number}").as_bytes());
    }
    life.flush();
    life.stop();

    let life = bucket.start(eager);
    nudge(&life);
    eventually("one pack has them all", || bucket.packs().len() == 1);
    assert!(bucket.pack_bytes() < 64 * (len + 1024));
    life.stop();
    let elsewhere = bucket.start_elsewhere(unhurried);
    let gets = bucket.counts().bytes_got;
    for (number, inode) in files.iter().filter(|(number, _)| number % 8 == 0) {
        let content = pattern(*number, len as usize);
        assert!(elsewhere.read(*inode, 0, len as usize) == content);
    }
    assert!(
        bucket.counts().bytes_got - gets < 2 * MIB,
        "few GETs bring them"
    );
}

/// A file whose pack is a quarter live, and a gateway that is just copying that quarter: the put of the new pack is
/// held.
fn copying(bucket: &Bucket) -> (Life, Inode) {
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    write(&life, inode, MIB, 2, 3 * MIB);
    life.flush();
    life.stop();
    let life = bucket.start(eager);
    bucket.controls.pack_puts.close();
    nudge(&life);
    eventually("the copy is on its way", || {
        bucket.controls.pack_puts.held() == 1
    });
    (life, inode)
}

#[test]
fn what_is_cut_off_while_it_is_copied_does_not_come_back() {
    let bucket = Bucket::new();
    let (life, inode) = copying(&bucket);
    life.truncate(inode, MIB / 4);
    life.flush();
    bucket.controls.pack_puts.open();
    // The copy itself is rewritten soon: most of it is dead by now.
    eventually("it is redirected", || {
        life.volume.status().collector.rewritten >= 1
    });
    collected(&life);
    life.truncate(inode, MIB);
    let mut content = pattern(1, MIB as usize);
    content[MIB as usize / 4..].fill(0);
    assert!(life.read(inode, 0, MIB as usize) == content);
    life.flush();
    assert_eq!(life.volume.status().used_bytes, MIB / 4);
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    assert!(elsewhere.read(inode, 0, MIB as usize) == content);
}

#[test]
fn a_file_that_is_removed_while_it_is_copied_leaves_nothing_behind() {
    let bucket = Bucket::new();
    let (life, _) = copying(&bucket);
    life.remove(b"file");
    life.flush();
    bucket.controls.pack_puts.open();
    eventually("nothing is left", || bucket.packs().is_empty());
    assert_eq!(life.volume.status().used_bytes, 0);
}

#[test]
fn a_pack_that_is_deleted_before_it_is_copied_is_not_left_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    write(&life, inode, MIB, 2, 3 * MIB);
    life.flush();
    life.stop();
    let life = bucket.start(eager);
    bucket.controls.pack_gets.close();
    nudge(&life);
    eventually("the collector asks for the pack", || {
        bucket.controls.pack_gets.held() > 0
    });
    life.remove(b"file");
    life.flush();
    eventually("all packs are deleted", || bucket.packs().is_empty());
    bucket.controls.pack_gets.open();
    // It ends after the copy that was begun.
    order(&life);
    assert_eq!(life.volume.status().collector.left_alone, 0);
}

#[test]
fn what_is_written_while_it_is_copied_wins() {
    let bucket = Bucket::new();
    let (life, inode) = copying(&bucket);
    let mut content = [pattern(1, MIB as usize), pattern(2, 3 * MIB as usize)].concat();
    let new = pattern(3, MIB as usize / 2);
    life.write(inode, 7, &new, Stability::Unstable);
    content[7..7 + new.len()].copy_from_slice(&new);
    let flush = life.spawn(|volume| async move { volume.flush().await.unwrap() });
    bucket.controls.pack_puts.open();
    life.join(flush);
    nudge(&life);
    collected(&life);
    assert!(life.read(inode, 0, 4 * MIB as usize) == content);
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    assert!(elsewhere.read(inode, 0, 4 * MIB as usize) == content);
    assert_eq!(elsewhere.volume.status().used_bytes, 4 * MIB);
}

#[test]
fn a_crash_before_maps_are_redirected_leaves_the_old_pack_and_an_orphan_that_goes() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    write(&life, inode, MIB, 2, 3 * MIB);
    life.flush();
    life.stop();
    let content = [pattern(1, MIB as usize), pattern(2, 3 * MIB as usize)].concat();
    let before = bucket.packs();

    let life = bucket.start(eager);
    nudge(&life);
    // Timing decides whether maps refer to it already, and whether the old pack is deleted; all of that must be
    // right.
    eventually("the copy is there", || {
        bucket.packs().iter().any(|pack| !before.contains(pack))
    });
    life.crash();
    let life = bucket.start(eager);
    assert!(life.read(inode, 0, 4 * MIB as usize) == content);
    nudge(&life);
    eventually("all that is left is in use", || {
        let status = life.volume.status().collector;
        let packs = bucket.packs().len() as u64;
        status
            .space
            .is_some_and(|space| space.packs == packs && space.live_bytes == 4 * MIB)
            && bucket.pack_bytes() < 4 * MIB + (64 << 10)
    });
    assert!(life.read(inode, 0, 4 * MIB as usize) == content);
}

#[test]
fn packs_that_a_crash_left_unpublished_are_deleted_and_the_log_has_their_bytes() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        eager(config);
        // Blocks of an eager upload are in the bucket before anything refers to them.
        config.early_bytes = 4 * MIB;
    });
    life.flush();
    let inode = life.create(b"file");
    for block in 0..16 {
        write(&life, inode, block * MIB, block, MIB);
    }
    eventually("some has left", || bucket.packs().len() >= 2);
    life.crash();
    let left = bucket.packs().len();

    let lists = bucket.controls.pack_lists();
    let life = bucket.start(|config| {
        eager(config);
        config.orphan_grace = Duration::from_secs(3600);
    });
    life.flush();
    nudge(&life);
    looked(&life);
    assert!(bucket.controls.pack_lists() > lists);
    assert_eq!(life.volume.status().collector.orphans_deleted, 0);
    assert!(
        bucket.packs().len() > left,
        "they are younger than the grace time"
    );
    life.crash();

    let life = bucket.start(eager);
    nudge(&life);
    eventually("they have gone", || {
        life.volume.status().collector.orphans_deleted == left as u64
    });
    let space = life.volume.status().collector.space.unwrap();
    assert_eq!(space.packs, bucket.packs().len() as u64);
    for block in 0..16 {
        let content = pattern(block, MIB as usize);
        assert!(life.read(inode, block * MIB, MIB as usize) == content);
    }
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    assert!(elsewhere.read(inode, 15 * MIB, MIB as usize) == pattern(15, MIB as usize));
}

#[test]
fn what_cannot_be_understood_is_left_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 4 * MIB);
    life.flush();
    let (pack, len) = bucket.packs().pop().unwrap();
    write(&life, inode, MIB, 2, 3 * MIB);
    life.flush();
    life.stop();
    // One bit of its index.
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes[len as usize - 100] ^= 1;
    std::fs::write(&pack, &bytes).unwrap();

    let life = bucket.start(eager);
    nudge(&life);
    eventually("it is left alone", || {
        life.volume.status().collector.left_alone == 1
    });
    nudge(&life);
    assert!(pack.exists());
    assert!(life.read(inode, 0, MIB as usize) == pattern(1, MIB as usize));
    // When nothing needs it any more, it is deleted like any other.
    life.remove(b"file");
    life.flush();
    eventually("it has gone", || !pack.exists());
}

#[test]
fn reads_and_writes_beside_the_collector_are_right() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        eager(config);
        config.checkpoint_interval = Duration::from_millis(100);
        config.memory_limit = 16 * MIB;
    });
    let inode = life.create(b"file");
    let mut content = vec![0; 8 * MIB as usize];
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for round in 0..400_u64 {
        let len = 1 + random(256 << 10);
        let at = random(8 * MIB - len);
        let bytes = pattern(round, len as usize);
        life.write(inode, at, &bytes, Stability::Unstable);
        content[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        let from = random(7 * MIB);
        let read = life.read(inode, from, 64 << 10);
        let expected = &content[from as usize..][..64 << 10];
        // There are no bytes behind the last one that was written.
        assert!(read == expected[..read.len()], "round {round}");
        if round % 16 == 0 {
            life.flush();
            life.evict();
        }
    }
    life.flush();
    collected(&life);
    assert!(life.volume.status().collector.rewritten > 0);
    let size = life.getattr(inode).unwrap().size as usize;
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    let read = elsewhere.read(inode, 0, 8 * MIB as usize);
    assert!(read == content[..size]);
}

#[test]
fn the_collector_rests_for_as_long_as_its_budget_says() {
    let bucket = Bucket::new();
    let life = bucket.start(unhurried);
    for name in [&b"one"[..], b"other"] {
        let inode = life.create(name);
        write(&life, inode, 0, 1, 4 * MIB);
        life.flush();
        write(&life, inode, MIB, 2, 3 * MIB);
        life.flush();
    }
    life.stop();
    let life = bucket.start(|config| {
        eager(config);
        config.background_requests = 1;
    });
    nudge(&life);
    let status = || life.volume.status().collector;
    eventually("one is rewritten", || status().rewritten == 1);
    // That took more than a few requests, each of which costs a second of rest.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((status().rewritten, status().to_rewrite), (1, 1));
    life.stop();
    // No caller waits for it: with a larger budget all of it is done.
    let life = bucket.start(eager);
    nudge(&life);
    collected(&life);
}

/// A volume with a pack that is three quarters dead, of so few bytes that it waits for others.
fn with_a_small_dead_pack(bucket: &Bucket) -> Inode {
    let life = bucket.start(unhurried);
    let inode = life.create(b"file");
    write(&life, inode, 0, 1, 256 << 10);
    life.flush();
    write(&life, inode, 64 << 10, 2, 192 << 10);
    life.flush();
    life.stop();
    inode
}

fn large_packs(config: &mut FsConfig) {
    eager(config);
    config.pack_bytes = 64 * MIB;
}

/// Orders to rewrite everything that is mostly dead, and waits for it.
fn order(life: &Life) {
    life.volume.collect_now().unwrap();
    eventually("it is done", || !life.volume.status().collector.is_ordered);
}

/// Waits until the collector has done whatever it does while there is nothing to rewrite: the step that ends an order
/// looks for orphans after that, and only a later step ends the next order.
fn looked(life: &Life) {
    order(life);
    order(life);
}

#[test]
fn an_order_has_everything_rewritten_without_a_commit_and_then_there_is_quiet() {
    let bucket = Bucket::new();
    let inode = with_a_small_dead_pack(&bucket);
    let lists = bucket.controls.pack_lists();
    let life = bucket.start(large_packs);
    nudge(&life);
    eventually("it is known", || {
        life.volume.status().collector.to_rewrite == 1
    });
    nudge(&life);
    // It looks for orphans only while there is nothing to rewrite.
    eventually("it finds nothing to rewrite", || {
        bucket.controls.pack_lists() > lists
    });
    assert_eq!(life.volume.status().collector.rewritten, 0);
    life.stop();

    let life = bucket.start(large_packs);
    let published = life.volume.status().published;
    order(&life);
    let status = life.volume.status();
    assert_eq!(
        (status.collector.rewritten, status.collector.to_rewrite),
        (1, 0)
    );
    assert_eq!(status.collector.copied_bytes, 64 << 10);
    assert_eq!(status.published, published, "nothing has changed");
    eventually("the old pack has gone", || bucket.packs().len() == 2);
    // Further orders find no work.
    looked(&life);
    assert_eq!(life.volume.status().collector.rewritten, 1);
    let content = [pattern(1, 64 << 10), pattern(2, 192 << 10)].concat();
    assert!(life.read(inode, 0, content.len()) == content);
    eventually("it is quiet", || {
        let before = bucket.counts();
        std::thread::sleep(Duration::from_millis(500));
        bucket.counts() == before
    });
    // Nor do they send any request, now that the bucket was looked through twice.
    let before = bucket.counts();
    looked(&life);
    assert_eq!(bucket.counts(), before);
    assert_eq!(life.volume.status().collector.rewritten, 1);
    life.crash();
    let elsewhere = bucket.start_elsewhere(unhurried);
    assert!(elsewhere.read(inode, 0, content.len()) == content);
}

#[test]
fn an_order_waits_for_the_bucket_and_says_so_and_is_refused_where_rewriting_is_off() {
    let bucket = Bucket::new();
    with_a_small_dead_pack(&bucket);
    let life = bucket.start(large_packs);
    bucket.controls.set_down(true);
    life.volume.collect_now().unwrap();
    eventually("it says what it waits for", || {
        let waits_for = life.volume.status().collector.waits_for;
        matches!(waits_for, Some(CollectorWait::Bucket(_)))
    });
    bucket.controls.set_down(false);
    eventually("it is done", || {
        let status = life.volume.status().collector;
        !status.is_ordered && status.rewritten == 1 && status.waits_for.is_none()
    });
    assert_eq!(life.volume.status().collector.left_alone, 0);
    life.stop();
    let life = bucket.start(unhurried);
    assert_eq!(life.volume.collect_now(), Err(CollectRefusal::Off));
}

/// Makes publications until `so` holds: the collector looks for work after each.
fn nudged_until(life: &Life, what: &str, so: impl Fn() -> bool) {
    eventually(what, || {
        nudge(life);
        std::thread::sleep(Duration::from_millis(100));
        so()
    });
}

/// Puts an object into the bucket, as a request that was given up long ago does.
fn arrive(pack: &std::path::Path, bytes: &[u8]) {
    std::fs::create_dir_all(pack.parent().unwrap()).unwrap();
    std::fs::write(pack, bytes).unwrap();
}

fn short_grace(config: &mut FsConfig) {
    unhurried(config);
    config.orphan_grace = Duration::from_secs(1);
}

#[test]
fn a_pack_that_comes_back_by_an_upload_without_an_answer_goes_again() {
    let bucket = Bucket::new();
    let life = bucket.start(short_grace);
    let faults = &bucket.controls;
    faults.next(Request::Put, "packs/", FaultKind::LostAnswer, 1);
    let publish = |name: &[u8], seed| {
        let before = bucket.packs();
        let inode = life.create(name);
        write(&life, inode, 0, seed, MIB);
        life.flush();
        let new =
            |(pack, _): &(std::path::PathBuf, u64)| before.iter().all(|(other, _)| other != pack);
        let (pack, _) = bucket.packs().into_iter().find(new).unwrap();
        let bytes = std::fs::read(&pack).unwrap();
        (pack, bytes)
    };
    let (doubtful, its_bytes) = publish(b"doubtful", 1);
    let (sure, sure_bytes) = publish(b"sure", 2);
    assert_eq!(faults.injected().get(&FaultKind::LostAnswer), Some(&1));
    life.remove(b"doubtful");
    life.remove(b"sure");
    life.flush();
    eventually("both are deleted", || bucket.packs().is_empty());
    arrive(&doubtful, &its_bytes);
    arrive(&sure, &sure_bytes);
    nudged_until(&life, "it is deleted again", || !doubtful.exists());
    assert!(
        sure.exists(),
        "nothing refers to it, so nothing looks for it"
    );
    let counted = || life.volume.status().collector.orphans_deleted == 1;
    // After the answer to the DELETE.
    eventually("it is counted", counted);
    // Only once: another one that is deleted later is looked for later.
    arrive(&doubtful, &its_bytes);
    faults.next(Request::Put, "packs/", FaultKind::LostAnswer, 1);
    let (another, another_bytes) = publish(b"another", 3);
    assert_eq!(faults.injected().get(&FaultKind::LostAnswer), Some(&2));
    life.remove(b"another");
    life.flush();
    eventually("it is deleted", || !another.exists());
    arrive(&another, &another_bytes);
    nudged_until(&life, "it is deleted again", || !another.exists());
    assert!(doubtful.exists());
    life.stop();
    // A pack that comes later is still deleted after the next start.
    let life = bucket.start(eager);
    nudged_until(&life, "all has gone", || bucket.packs().is_empty());
}

#[test]
fn what_a_gateway_before_had_on_its_way_goes_though_it_arrives_after_the_first_look() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        eager(config);
        // Blocks of an eager upload are in the bucket before anything refers to them.
        config.early_bytes = 4 * MIB;
    });
    life.flush();
    let inode = life.create(b"file");
    for block in 0..16 {
        write(&life, inode, block * MIB, block, MIB);
    }
    eventually("some has left", || bucket.packs().len() >= 2);
    life.crash();
    let mut left = bucket.packs();
    let (late, _) = left.pop().unwrap();
    let bytes = std::fs::read(&late).unwrap();
    std::fs::remove_file(&late).unwrap();
    left.iter()
        .for_each(|(pack, _)| std::fs::remove_file(pack).unwrap());

    let lists = bucket.controls.pack_lists();
    let life = bucket.start(short_grace);
    nudge(&life);
    eventually("the first look", || bucket.controls.pack_lists() > lists);
    arrive(&late, &bytes);
    nudged_until(&life, "it is deleted", || !late.exists());
    eventually("it is counted", || {
        life.volume.status().collector.orphans_deleted == 1
    });
    for block in 0..16 {
        let content = pattern(block, MIB as usize);
        assert!(life.read(inode, block * MIB, MIB as usize) == content);
    }
}
