//! The local disk misbehaves: it is full, fails at a flush, refuses a file, loses power. Nothing is acknowledged that
//! it did not take, nothing acknowledged is lost, and work goes on without help.

use std::time::Duration;

use crate::common::disk::{Disk, Fault, Step};
use crate::common::*;
use forebay_fs::{FsConfig, LogConfig, Stage, Volume};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability, Trouble, Verifier};

const ALWAYS: u64 = u64::MAX;

/// Few, small segments.
fn small_log(config: &mut FsConfig) {
    config.log = LogConfig::Disk {
        limit: 4 << 20,
        segment: 1 << 20,
    };
}

async fn commit(volume: &Volume, inode: Inode) -> Result<Verifier, Error> {
    let (_, verifier) = volume.commit(&ROOT, inode, 0, 0).await?;
    Ok(verifier)
}

/// The verifier of a write that is accepted.
fn verifier(life: &Life, inode: Inode) -> Verifier {
    life.try_write(inode, 0, b"v").unwrap().verifier
}

/// Waits until the log is replaced.
fn log_works(life: &Life) {
    eventually("the log restarts", || {
        life.volume.status().log_trouble.is_none()
    });
}

/// Makes a flush fail during a commit.
fn break_log(life: &Life, disk: &Disk, inode: Inode) {
    life.write(inode, 1 << 20, b"under way", Stability::Unstable);
    disk.fail(Step::Flush, Fault::Io, 0, 1);
    let committed = life.run(|volume| async move { commit(&volume, inode).await });
    assert_eq!(committed, Err(Error::Delay));
    assert!(life.volume.status().log_trouble.is_some());
}

// The disk is full.

#[test]
fn a_disk_without_room_for_the_first_segment_is_refused_with_what_to_do() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"in the log", Stability::FileSync);
    life.stop();
    disk.fail(Step::Create, Fault::NoSpace, 0, ALWAYS);
    disk.fail(Step::Rename, Fault::NoSpace, 0, ALWAYS);
    let refusal = bucket.try_start_on(&disk, small_log).err().unwrap();
    let text = refusal.to_string();
    assert!(text.contains("free space"), "{text}");
    assert!(text.contains("No space left"), "{text}");
    disk.kill();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 10), b"in the log");
}

#[test]
fn whichever_segment_the_disk_refuses_writers_wait_and_none_fails() {
    for (refused, fault) in (1..7).zip([Fault::NoSpace, Fault::Short].into_iter().cycle()) {
        let (bucket, disk) = (Bucket::new(), Disk::default());
        let life = bucket.start_on(&disk, small_log);
        let inode = life.create(b"file");
        disk.fail(Step::Create, fault, refused - 1, 3);
        disk.fail(Step::Rename, fault, refused, 3);
        for i in 0..16u64 {
            let data = pattern(i, 700_000);
            life.write(inode, i * 700_000, &data, Stability::FileSync);
        }
        assert!(disk.struck() >= 3, "the disk refused nothing");
        life.crash();
        disk.power_cut_losing_all();
        let life = bucket.start_on(&disk, small_log);
        for i in 0..16u64 {
            let found = life.read(inode, i * 700_000, 700_000);
            assert_bytes(&found, &pattern(i, 700_000));
        }
    }
}

#[test]
fn a_disk_that_stays_full_lets_writers_go_on_when_it_has_room_and_says_meanwhile_why() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    // Not even a recycled segment can be used again.
    disk.fail(Step::Create, Fault::NoSpace, 0, ALWAYS);
    disk.fail(Step::Rename, Fault::NoSpace, 0, ALWAYS);
    let healed = Moment::default();
    let writer = life.spawn_until(&healed, move |volume| async move {
        for i in 0..8u64 {
            let data = pattern(i, 700_000);
            write(&volume, inode, i * 700_000, &data, Stability::Unstable).await;
        }
    });
    eventually("the shortage is told", || {
        let trouble = life.volume.status().log_trouble;
        trouble.is_some_and(|(why, _)| why.contains("No space left"))
    });
    eventually("the writer waits for the log", || {
        life.waiting(Trouble::LogFull) == 1
    });
    healed.mark();
    disk.heal();
    let ((), waited) = life.join(writer);
    assert!(waited, "it wrote more than the log has room for");
    assert_eq!(life.volume.status().log_trouble, None);
    assert_bytes(&life.read(inode, 4_900_000, 700_000), &pattern(7, 700_000));
}

// The state file cannot be replaced.

#[test]
fn a_state_file_that_cannot_be_replaced_refuses_the_start_and_loses_nothing() {
    for passes in 0..2 {
        let (bucket, disk) = (Bucket::new(), Disk::default());
        let life = bucket.start_on(&disk, small_log);
        let inode = life.create(b"file");
        life.write(inode, 0, b"in the log only", Stability::FileSync);
        let before = verifier(&life, inode);
        life.crash();
        disk.kill();
        // Twice: the notes of the first attempt must not mislead the second.
        for _ in 0..2 {
            disk.fail(Step::ReplaceState, Fault::NoSpace, passes, 1);
            let refusal = bucket.try_start_on(&disk, small_log).err().unwrap();
            let text = refusal.to_string();
            assert!(text.contains("state"), "{text}");
            assert!(text.contains("its disk is not full"), "{text}");
            disk.kill();
        }
        let life = bucket.start_on(&disk, small_log);
        assert_eq!(life.read(inode, 1, 14), b"n the log only");
        assert_eq!(verifier(&life, inode), before, "nothing was lost");
    }
}

#[test]
fn openings_that_end_at_any_moment_do_not_disown_the_log() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"in the log only", Stability::FileSync);
    life.crash();
    disk.kill();
    // The first has put its epoch into the bucket and ends before it has noted that.
    disk.fail(Step::ReplaceState, Fault::Io, 1, 1);
    assert!(bucket.try_start_on(&disk, small_log).is_err());
    disk.kill();
    // The second has noted its intent and ends before the bucket gets the epoch.
    let controls = bucket.controls.clone();
    disk.after_replace(move || controls.everything.close());
    let opening = std::thread::scope(|scope| {
        let opening = scope.spawn(|| bucket.open_for(&disk, Duration::from_millis(500)));
        opening.join().unwrap()
    });
    assert!(opening.is_none(), "it was opened without the bucket");
    bucket.controls.everything.open();
    disk.kill();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 15), b"in the log only");
}

// A flush fails.

#[test]
fn a_failed_flush_acknowledges_nothing_and_the_log_begins_again_by_itself() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 100_000), Stability::FileSync);
    let first = verifier(&life, inode);
    life.write(inode, 200_000, b"unstable", Stability::Unstable);

    // Three calls wait for one flush.
    let files = disk.log_files();
    files.hold_flushes(true);
    let held = files.flushes();
    let committed = life.spawn(move |volume| async move { commit(&volume, inode).await });
    eventually("the flush is under way", || files.flushes() > held);
    let written = life.spawn(move |volume| async move {
        let data = b"synchronous";
        volume
            .write(&ROOT, inode, 300_000, data, Stability::FileSync)
            .await
    });
    let made = life.spawn(|volume| async move {
        let mode = CreateMode::Guarded(SetAttributes::default());
        volume.create(&ROOT, Inode::ROOT, b"made", &mode).await
    });
    eventually("both are in memory", || {
        life.try_lookup(Inode::ROOT, b"made").is_ok()
            && life.getattr(inode).unwrap().size == 300_011
    });
    bucket.controls.everything.close();
    files.fail_flushes(true);
    files.hold_flushes(false);
    assert_eq!(life.join(committed).unwrap_err(), Error::Delay);
    assert_eq!(life.join(written).unwrap_err(), Error::Delay);
    // A second attempt would find the name and take it for another client's.
    assert_eq!(life.join(made).unwrap_err(), Error::Io);
    files.fail_flushes(false);

    // Until the bucket has everything, nothing is accepted, and everything can be read.
    let (why, since) = life.volume.status().log_trouble.unwrap();
    assert!(why.contains("a flush failed") && since.is_some(), "{why}");
    assert_eq!(life.try_write(inode, 0, b"x").unwrap_err(), Error::Delay);
    assert_eq!(life.read(inode, 300_000, 20), b"synchronous");
    bucket.controls.everything.open();
    log_works(&life);

    let second = verifier(&life, inode);
    assert_ne!(second, first, "whose writes may be lost must be told");
    let committed = life.run(|volume| async move { commit(&volume, inode).await });
    assert_eq!(committed, Ok(second));
    life.crash();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, small_log);
    let mut expected = pattern(1, 100_000);
    expected[0] = b'v';
    assert_bytes(&life.read(inode, 0, 100_000), &expected);
    assert_eq!(life.read(inode, 200_000, 8), b"unstable");
    assert_eq!(life.read(inode, 300_000, 11), b"synchronous");
    life.lookup(b"made");
}

#[test]
fn while_the_bucket_is_away_a_failed_log_stays_failed_and_nothing_is_lost() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"stable", Stability::FileSync);
    bucket.controls.set_down(true);
    break_log(&life, &disk, inode);
    eventually("the bucket has refused what the log waits for", || {
        life.volume.status().store_trouble.is_some()
    });
    assert!(life.volume.status().log_trouble.is_some());
    assert_eq!(life.try_write(inode, 0, b"x").unwrap_err(), Error::Delay);
    assert_eq!(life.read(inode, 1 << 20, 9), b"under way");
    bucket.controls.set_down(false);
    log_works(&life);
    life.write(inode, 9, b"later", Stability::FileSync);
    life.crash();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 14), b"stable\0\0\0later");
    assert_eq!(life.read(inode, 1 << 20, 9), b"under way");
}

#[test]
fn a_failed_log_stays_failed_until_a_checkpoint_that_a_snapshot_closed_is_in_the_bucket() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"first", Stability::FileSync);
    bucket.controls.manifest_puts.close();
    let _flushed = life.spawn(|volume| async move { volume.flush().await });
    eventually("the first checkpoint is at its commit", || {
        let stage = life.volume.status().stage;
        stage == Stage::Publishing && bucket.controls.manifest_puts.held() > 0
    });
    bucket.controls.pack_puts.close();
    life.write(inode, 100, b"second", Stability::FileSync);
    // The snapshot's own record is the last change: the open checkpoint stays empty.
    disk.fail(Step::Flush, Fault::Io, 0, 1);
    let made = life.run(|volume| async move { volume.make_snapshot("s", "a test").await });
    assert!(made.is_err(), "{made:?}");
    assert!(life.volume.status().log_trouble.is_some());
    bucket.controls.manifest_puts.open();
    // One task publishes both, and looks at the log in between.
    eventually("the second checkpoint is under way", || {
        bucket.controls.pack_puts.held() == 1
    });
    let refused = life.try_write(inode, 200, b"x").err();
    life.crash();
    bucket.controls.pack_puts.open();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 100, 6), b"second");
    assert_eq!(refused, Some(Error::Delay));
}

#[test]
fn a_new_segment_is_tried_until_the_disk_takes_one() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 1 << 20, b"under way", Stability::Unstable);
    disk.fail(Step::Remove, Fault::Io, 0, 1);
    disk.fail(Step::Create, Fault::NoSpace, 0, 2);
    disk.fail(Step::Flush, Fault::Io, 0, 3);
    let committed = life.run(|volume| async move { commit(&volume, inode).await });
    assert_eq!(committed, Err(Error::Delay));
    // No call wakes it.
    log_works(&life);
    assert_eq!(disk.struck(), 6);
    life.write(inode, 0, b"new", Stability::FileSync);
    life.crash();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 3), b"new");
    assert_eq!(life.read(inode, 1 << 20, 9), b"under way");
}

#[test]
fn every_failure_of_several_is_told_by_another_verifier() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    let mut verifiers = vec![verifier(&life, inode)];
    for round in 0..4u64 {
        life.write(
            inode,
            round * 100,
            &pattern(round, 100),
            Stability::Unstable,
        );
        break_log(&life, &disk, inode);
        log_works(&life);
        verifiers.push(verifier(&life, inode));
    }
    verifiers.sort_by_key(|verifier| verifier.0);
    verifiers.dedup();
    assert_eq!(verifiers.len(), 5);
    life.crash();
    disk.power_cut_losing_all();
    let life = bucket.start_on(&disk, small_log);
    for round in 1..4u64 {
        let found = life.read(inode, round * 100, 100);
        assert_bytes(&found, &pattern(round, 100));
    }
}

#[test]
fn a_failed_flush_that_nobody_waits_for_is_noticed() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    let first = verifier(&life, inode);
    disk.fail(Step::Flush, Fault::Io, 0, 1);
    // Full segments are flushed in the background. Writes after the failure are refused.
    life.run(|volume| async move {
        let data = pattern(1, 500_000);
        for i in 0..5 {
            let written = volume
                .write(&ROOT, inode, i * 500_000, &data, Stability::Unstable)
                .await;
            if written.is_err() {
                break;
            }
        }
    });
    eventually("the flush has failed", || disk.struck() == 1);
    // It may not be known yet; and until the log is replaced, writes are refused.
    eventually("the verifier is another", || {
        let written = life.try_write(inode, 0, b"v");
        written.is_ok_and(|reply| reply.verifier != first)
    });
}

#[test]
fn a_process_that_ends_before_a_failed_log_is_replaced_comes_back_with_another_verifier() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"stable", Stability::FileSync);
    let first = verifier(&life, inode);
    bucket.controls.set_down(true);
    break_log(&life, &disk, inode);
    eventually("it is noted on the disk", || {
        disk.state_text().contains(&"00".repeat(16))
    });
    life.crash();
    // The kernel still runs, but its pages need not be on the disk.
    disk.kill();
    bucket.controls.set_down(false);
    let life = bucket.start_on(&disk, small_log);
    let second = verifier(&life, inode);
    assert_ne!(second, first);
    assert_eq!(life.read(inode, 1, 5), b"table");
    life.crash();
    disk.kill();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(verifier(&life, inode), second, "that is over");
}

#[test]
fn a_kill_after_the_log_was_replaced_keeps_the_verifier() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    break_log(&life, &disk, inode);
    log_works(&life);
    let second = verifier(&life, inode);
    eventually("it is noted on the disk", || {
        !disk.state_text().contains(&"00".repeat(16))
    });
    life.write(inode, 0, b"after", Stability::Unstable);
    life.crash();
    disk.kill();
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 5), b"after");
    assert_eq!(verifier(&life, inode), second);
}

// The power goes.

#[test]
fn after_power_cuts_every_stable_byte_is_back_under_a_new_verifier() {
    let rounds: u64 = if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        300
    } else {
        12
    };
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let mut life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    const PIECE: u64 = 5000;
    let mut stable = Vec::new();
    let mut last = verifier(&life, inode);
    for round in 0..rounds {
        for i in 0..40 {
            let piece = round * 40 + i;
            let (at, data) = (1 + piece * PIECE, pattern(piece, PIECE as usize));
            let sync = (piece * 7 + round) % 3 == 0;
            let how = if sync {
                Stability::FileSync
            } else {
                Stability::Unstable
            };
            life.write(inode, at, &data, how);
            if sync {
                stable.push(piece);
            }
        }
        let name = format!("name-{round}");
        life.create(name.as_bytes());
        if round % 4 == 1 {
            life.flush();
        }
        life.write(
            inode,
            1 + round * 40 * PIECE,
            &pattern(round, 9),
            Stability::Unstable,
        );
        life.crash();
        disk.power_cut(round);
        life = bucket.start_on(&disk, small_log);
        let now = verifier(&life, inode);
        assert_ne!(now, last);
        last = now;
        for piece in &stable {
            let skip = if piece % 40 == 0 { 9 } else { 0 };
            let at = 1 + piece * PIECE + skip;
            let found = life.read(inode, at, (PIECE - skip) as usize);
            assert_bytes(&found, &pattern(*piece, PIECE as usize)[skip as usize..]);
        }
        for round in 0..=round {
            life.lookup(format!("name-{round}").as_bytes());
        }
    }
}

// Files are damaged, removed, or cannot be read.

/// Damage to a segment.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Remove,
    Empty,
    Halve,
    Header,
    Payload,
    RecordHeader,
    Garbage,
}

const HARMS: [Harm; 7] = [
    Harm::Remove,
    Harm::Empty,
    Harm::Halve,
    Harm::Header,
    Harm::Payload,
    Harm::RecordHeader,
    Harm::Garbage,
];

impl Harm {
    fn apply(self, disk: &Disk, name: &str) {
        use forebay_wal::Storage;
        let files = disk.log_files();
        let edit = |change: fn(&mut Vec<u8>)| files.edit(name, change);
        match self {
            Harm::Remove => files.remove(name).unwrap(),
            Harm::Empty => edit(Vec::clear),
            Harm::Halve => edit(|bytes| bytes.truncate(bytes.len() / 2)),
            Harm::Header => edit(|bytes| bytes[..4096].fill(0)),
            Harm::Payload => edit(|bytes| bytes[4096 + 20_000] ^= 0x40),
            Harm::RecordHeader => edit(|bytes| {
                let is_record = |at: &usize| bytes[*at + 4..*at + 6] == *b"FR";
                let record = (200_000..bytes.len() - 8).step_by(8).find(is_record);
                bytes[record.unwrap() + 8] ^= 0x40;
            }),
            Harm::Garbage => edit(|bytes| bytes[100_000..].fill(0xa5)),
        }
    }

    /// Whether it is noticed even in the last segment.
    fn is_noticed_in_the_last(self) -> bool {
        matches!(self, Harm::Header | Harm::Payload)
    }
}

#[test]
fn harm_to_a_segment_is_refused_or_costs_what_lies_behind_it_and_serves_nothing_wrong() {
    const PIECES: u64 = 90;
    const PIECE: usize = 33_000;
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(99, 1000), Stability::Unstable);
    life.flush();
    let before = verifier(&life, inode);
    for i in 0..PIECES {
        let at = 1000 + i * PIECE as u64;
        life.write(inode, at, &pattern(i, PIECE), Stability::FileSync);
    }
    life.crash();
    disk.kill();
    // The last one is prepared for the next records.
    let segments = disk.names();
    let begun = &segments[..segments.len() - 1];
    assert!(begun.len() >= 3, "{segments:?}");
    for (place, name) in begun.iter().enumerate() {
        for harm in HARMS {
            let case = format!("{harm:?} of {} of {}", place + 1, begun.len());
            let (copy, copied) = (bucket.copy(), disk.copy());
            harm.apply(&copied, name);
            match copy.try_start_on(&copied, small_log) {
                Err(refusal) => {
                    let text = refusal.to_string();
                    assert!(text.contains("are missing"), "{case}: {text}");
                    assert!(text.contains("move the log away"), "{case}: {text}");
                    assert_eq!(place, 0, "{case}");
                }
                Ok(life) => {
                    let size = life.getattr(inode).unwrap().size;
                    let whole = size.saturating_sub(1000) / PIECE as u64;
                    for i in 0..whole {
                        let found = life.read(inode, 1000 + i * PIECE as u64, PIECE);
                        assert_bytes(&found, &pattern(i, PIECE));
                    }
                    assert!(whole < PIECES, "{case}: nothing is lost");
                    let last = place + 1 == begun.len();
                    let told = verifier(&life, inode) != before;
                    assert!(
                        told || (last && !harm.is_noticed_in_the_last()),
                        "{case}: {whole} of {PIECES} are left, and there is no message"
                    );
                    life.write(inode, 0, b"on", Stability::FileSync);
                }
            }
            // The published part is there in any case.
            let life = copy.start_elsewhere(small_log);
            let found = life.read(inode, 2, 998);
            assert_bytes(&found, &pattern(99, 1000)[2..]);
        }
    }
}

#[test]
fn a_log_that_cannot_be_read_or_opened_refuses_the_start_and_names_what() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, small_log);
    let inode = life.create(b"file");
    life.write(inode, 0, b"in the log", Stability::FileSync);
    life.crash();
    disk.kill();
    let cases = [
        (Step::Read, Fault::Io, vec!["read", ".seg", "Input/output"]),
        (Step::Folder, Fault::Denied, vec!["the log in", "denied"]),
        (
            Step::Folder,
            Fault::ReadOnly,
            vec!["the log in", "Read-only"],
        ),
        (Step::Open, Fault::Denied, vec![".seg", "denied"]),
        (Step::Flush, Fault::Io, vec![".seg", "Input/output"]),
        (Step::Rename, Fault::ReadOnly, vec![".seg", "Read-only"]),
        (
            Step::ReplaceState,
            Fault::ReadOnly,
            vec!["state", "Read-only"],
        ),
    ];
    for (step, fault, words) in cases {
        disk.fail(step, fault, 0, ALWAYS);
        let started = bucket.try_start_on(&disk, small_log);
        match (step, started) {
            // There are records to serve: the volume is opened, and writers wait.
            (Step::Rename, Ok(life)) => {
                let (why, _) = life.volume.status().log_trouble.unwrap();
                assert!(words.iter().all(|word| why.contains(word)), "{why}");
            }
            (_, Err(refusal)) => {
                let text = refusal.to_string();
                assert!(words.iter().all(|word| text.contains(word)), "{text}");
            }
            (_, Ok(_)) => panic!("{step:?} did not matter"),
        }
        disk.kill();
    }
    let life = bucket.start_on(&disk, small_log);
    assert_eq!(life.read(inode, 0, 10), b"in the log");
}
