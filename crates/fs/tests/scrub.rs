//! The scrub: every pack is read back, the time is recorded, and no client notices.

use std::fs;
use std::time::Duration;

use crate::common::{Bucket, Life, eventually, pattern};
use forebay_fs::{ScrubRefusal, ScrubStatus, ScrubWait};
use forebay_object::faults::{FaultKind, Request};
use forebay_types::Inode;
use forebay_vfs::Stability;

pub(crate) fn status(life: &Life) -> ScrubStatus {
    life.run(|volume| async move { volume.scrub_status().await.unwrap() })
}

pub(crate) fn is_over(life: &Life) -> bool {
    status(life).running.is_none()
}

/// Runs a round over all packs, to its end.
pub(crate) fn scrub(life: &Life) -> ScrubStatus {
    life.volume.start_scrub(Duration::ZERO).unwrap();
    eventually("the scrub ends", || is_over(life));
    status(life)
}

/// Makes a file in a pack of its own.
pub(crate) fn file(life: &Life, name: &str, len: usize) -> Inode {
    let inode = life.create(name.as_bytes());
    life.write(inode, 0, &pattern(len as u64, len), Stability::Unstable);
    life.flush();
    inode
}

#[test]
fn every_byte_of_every_pack_is_read_and_it_is_noted_across_restarts() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    for (name, len) in [("a", 5), ("b", 300_000), ("c", 9 << 20)] {
        file(&life, name, len);
    }
    let before = status(&life);
    let packs = bucket.packs().len() as u64;
    assert!(packs >= 3);
    assert_eq!((before.packs, before.never), (packs, packs));
    assert_eq!(
        (before.oldest, before.newest, before.next),
        (None, None, None)
    );
    let got = bucket.counts().bytes_got;
    let after = scrub(&life);
    assert_eq!((after.packs, after.never), (packs, 0));
    assert_eq!(after.bytes, bucket.pack_bytes());
    let last = after.last.unwrap();
    assert_eq!((last.packs, last.damaged, last.cut_short), (packs, 0, None));
    assert_eq!(last.bytes, bucket.pack_bytes());
    assert!(bucket.counts().bytes_got - got >= bucket.pack_bytes());
    assert!(after.damaged_packs.is_empty() && after.damaged_frames.is_empty());
    life.stop();

    let life = bucket.start(|_| {});
    let again = status(&life);
    assert_eq!((again.packs, again.never), (packs, 0));
    assert_eq!((again.oldest, again.newest), (after.oldest, after.newest));
    assert_eq!(again.last, None);
}

#[test]
fn a_round_costs_the_metadata_one_batch_and_then_all_is_quiet() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    for name in ["a", "b", "c", "d"] {
        file(&life, name, 1000);
    }
    let before = bucket.counts().puts;
    scrub(&life);
    // A table and a manifest, and the housekeeping after a commit.
    let puts = bucket.counts().puts - before;
    assert!(puts <= 8, "{puts} puts");
    eventually("nothing is asked any more", || {
        let before = bucket.counts();
        std::thread::sleep(Duration::from_millis(300));
        bucket.counts() == before
    });
}

#[test]
fn packs_that_go_take_their_checks_along() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = file(&life, "a", 1000);
    file(&life, "b", 1000);
    scrub(&life);
    life.write(inode, 0, &pattern(7, 1000), Stability::Unstable);
    life.flush();
    let status = status(&life);
    assert_eq!((status.packs, status.never), (2, 1));
}

#[test]
fn those_that_were_read_lately_are_left_out_if_wanted() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    file(&life, "a", 1000);
    scrub(&life);
    file(&life, "b", 1000);
    life.volume.start_scrub(Duration::from_secs(3600)).unwrap();
    eventually("the scrub ends", || is_over(&life));
    let status = status(&life);
    assert_eq!((status.packs, status.never), (2, 0));
    assert_eq!(status.last.unwrap().packs, 1, "the new one alone");
}

#[test]
fn with_an_interval_rounds_begin_by_themselves_and_not_before_they_are_due() {
    let bucket = Bucket::new();
    let every = |config: &mut forebay_fs::FsConfig| {
        config.scrub_interval = Duration::from_secs(7200);
    };
    let life = bucket.start(|_| {});
    file(&life, "a", 1000);
    life.stop();
    let life = bucket.start(every);
    eventually("a round", || {
        let status = status(&life);
        status.never == 0 && status.next.is_some()
    });
    let first = status(&life);
    assert_eq!(first.next, first.newest.map(|newest| newest + 3600));
    life.stop();
    // The next gateway continues from there.
    let life = bucket.start(every);
    eventually("a plan", || status(&life).next.is_some());
    let second = status(&life);
    assert_eq!((second.next, second.last), (first.next, None));
}

#[test]
fn while_packs_cannot_be_read_it_waits_and_goes_on_by_itself() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    file(&life, "a", 1000);
    bucket.controls.only("packs/");
    bucket.controls.fail_at_random(FaultKind::ServerError, 1.0);
    life.volume.start_scrub(Duration::ZERO).unwrap();
    eventually("it waits", || {
        let running = status(&life).running;
        let waits_for = running.and_then(|running| running.waits_for);
        matches!(waits_for, Some(ScrubWait::Bucket(_)))
    });
    bucket.controls.fail_at_random(FaultKind::ServerError, 0.0);
    eventually("the scrub ends", || is_over(&life));
    let status = status(&life);
    assert_eq!((status.never, status.damaged_packs.len()), (0, 0));
}

#[test]
fn what_arrives_damaged_and_is_sound_is_no_damage() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    file(&life, "a", 100_000);
    for times in 1..3 {
        let get = Request::Get;
        bucket
            .controls
            .next(get, ".pack", FaultKind::WrongBytes, times);
        let status = scrub(&life);
        assert_eq!(status.last.unwrap().damaged, 0, "{times} times");
        assert!(status.damaged_frames.is_empty());
    }
}

#[test]
fn it_keeps_its_rate_can_be_stopped_and_runs_once_at_a_time() {
    let bucket = Bucket::new();
    // After the first piece, the second one must wait for hours.
    let life = bucket.start(|config| config.scrub_rate = 1);
    file(&life, "a", 100_000);
    assert!(!life.volume.stop_scrub(), "there is nothing to stop");
    life.volume.start_scrub(Duration::ZERO).unwrap();
    eventually("the first piece", || {
        let running = status(&life).running;
        running.is_some_and(|running| running.packs == 1 && running.bytes_done > 0)
    });
    let refused = life.volume.start_scrub(Duration::ZERO);
    assert_eq!(refused, Err(ScrubRefusal::Running));
    assert!(life.volume.stop_scrub());
    eventually("it stops", || is_over(&life));
    let status = status(&life);
    let last = status.last.unwrap();
    assert_eq!((last.packs, status.never), (0, 1));
    assert!(last.cut_short.is_some_and(|why| why.contains("stopped")));
}

#[test]
fn damage_anywhere_in_a_pack_is_found() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.compression = forebay_fs::Compression::Off);
    file(&life, "a", 700_000);
    life.stop();
    let [(pack, len)] = &bucket.packs()[..] else {
        panic!("more than one pack")
    };
    let sound = fs::read(pack).unwrap();
    // Header of the pack, headers of its frames, their bytes, the index and its footer.
    let places = [
        0,
        10,
        39,
        41,
        200,
        300_000,
        len / 2,
        len - 130,
        len - 80,
        len - 1,
    ];
    for place in places {
        let mut bytes = sound.clone();
        bytes[place as usize] ^= 1;
        fs::write(pack, bytes).unwrap();
        // Nothing is in memory that could heal it.
        let life = bucket.start(|_| {});
        let status = scrub(&life);
        assert_eq!(status.damaged_packs.len(), 1, "byte {place}");
        assert_eq!(status.last.unwrap().damaged, 1);
        assert_eq!(
            status.damaged_packs[0].damaged_frames > 0,
            (40..len - 80 - 3 * 44).contains(&place),
            "byte {place}"
        );
        life.stop();
    }
    // Cut off, and missing.
    fs::write(pack, &sound[..sound.len() - 1]).unwrap();
    let life = bucket.start(|_| {});
    assert!(!scrub(&life).damaged_packs[0].missing);
    fs::remove_file(pack).unwrap();
    assert!(scrub(&life).damaged_packs[0].missing);
    // When it is restored, the damage is not reported any more.
    fs::write(pack, &sound).unwrap();
    let status = scrub(&life);
    assert!(status.damaged_packs.is_empty() && status.damaged_frames.is_empty());
}
