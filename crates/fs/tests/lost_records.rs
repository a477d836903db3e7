//! Bytes that were in the log alone, which cannot return them: their range is lost, and nothing else is.

use std::ops::Range;
use std::time::Duration;

use crate::common::disk::{Disk, Fault, Step};
use crate::common::{Bucket, Life, ROOT, assert_bytes, eventually, pattern};
use crate::scrub::{scrub, status};
use crate::sealing::key_file;
use forebay_fs::{CommitMode, DamageState, Dedup, Expected, FsConfig, LogConfig};
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::{Error, FileSystem, Stability};
use forebay_wal::Storage;

const MIB: usize = 1 << 20;
const BLOCK: usize = BLOCK_SIZE as usize;
const SEGMENT: u64 = 4 << 20;

/// Segments for three or four writes each, and no pauses before the log is read once more.
fn config(config: &mut FsConfig) {
    config.log = LogConfig::Disk {
        limit: 256 << 20,
        segment: SEGMENT,
    };
    config.seal_log = matches!(config.expected, Expected::Sealed(_));
    config.log_read_pause = Duration::from_millis(1);
}

/// Where a record lies in the log.
struct Place {
    file: String,
    at: usize,
}

/// The middle of the record that `write` leaves in the log. There must be a segment already.
fn record(disk: &Disk, write: impl FnOnce()) -> Place {
    const STEP: usize = 4096;
    let content = |name: &String| {
        let file = disk.log_files().read(name).ok()?;
        let mut bytes = vec![0; file.size().ok()? as usize];
        file.read_at(0, &mut bytes).ok()?;
        Some(bytes)
    };
    let names: Vec<String> = disk.names();
    let before: Vec<_> = names.iter().map(content).collect();
    write();
    let mut longest: Option<(usize, Place)> = None;
    for (name, before) in names.iter().zip(before) {
        let (Some(before), Some(after)) = (before, content(name)) else {
            continue;
        };
        let steps = before.chunks(STEP).zip(after.chunks(STEP)).enumerate();
        let changed = steps.filter(|(_, (before, after))| before != after);
        let changed: Vec<usize> = changed.map(|(number, _)| number * STEP).collect();
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
            continue;
        };
        let differs = |at: &usize| before[*at] != after[*at];
        let (mut first, last) = (*first..first + STEP, *last..last + STEP);
        let (Some(first), Some(last)) = (first.find(differs), last.rev().find(differs)) else {
            continue;
        };
        let at = (first + last) / 2;
        let place = Place {
            file: name.clone(),
            at,
        };
        if longest.as_ref().is_none_or(|(len, _)| *len < last - first) {
            longest = Some((last - first, place));
        }
    }
    longest.expect("the write is in the log").1
}

/// Flips a byte of the log. Records that are appended to this segment afterwards do not reach the disk.
fn damage(disk: &Disk, place: &Place) {
    let log = disk.log_files();
    log.edit(&place.file, |file| file[place.at] ^= 1);
}

/// Writes these MiB of a file, one a call, and spills them. Returns the place of the record of one of them.
fn written(life: &Life, disk: &Disk, inode: Inode, content: &[u8], which: usize) -> Place {
    let mut place = None;
    for (number, part) in content.chunks(MIB).enumerate() {
        let write = || {
            let at = (number * MIB) as u64;
            life.write(inode, at, part, Stability::FileSync);
        };
        match number == which {
            true => place = Some(record(disk, write)),
            false => write(),
        }
        life.spill();
    }
    place.unwrap()
}

/// The range is an error, whole or in part; all else is as it was written.
#[track_caller]
fn assert_lost_alone(life: &Life, inode: Inode, content: &[u8], lost: &Range<usize>) {
    let size = life.getattr(inode).unwrap().size;
    assert_eq!(size, content.len() as u64);
    for good in [0..lost.start, lost.end..content.len()] {
        let found = life.read(inode, good.start as u64, good.len());
        assert_bytes(&found, &content[good]);
    }
    let read = |at: usize, len| life.try_read(inode, at as u64, len);
    for at in [lost.start, lost.start + lost.len() / 2, lost.end - 1] {
        assert_eq!(read(at, 1), Err(Error::Io), "byte {at}");
    }
    assert_eq!(read(lost.start - 1, 2), Err(Error::Io));
    assert_eq!(read(lost.end - 1, 2), Err(Error::Io));
}

/// The list of damages has this range of the file as lost, and nothing else.
#[track_caller]
fn assert_listed(life: &Life, inode: Inode, lost: &Range<usize>) {
    let frames = || status(life).damaged_frames;
    eventually("what can be done is done", || {
        frames()
            .iter()
            .all(|frame| frame.state != DamageState::Found)
    });
    let mut at = lost.start as u64;
    for frame in frames() {
        assert_eq!((frame.inode, frame.state), (inode, DamageState::Lost));
        assert_eq!(frame.from, at);
        at = frame.to;
    }
    assert_eq!(at, lost.end as u64);
    assert!(life.volume.status().damaged_frames > 0);
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    pattern(seed, len)
}

/// Bytes that compress, and no two frames of which are the same.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let lines =
        (0..).map(|line: u64| format!("{seed} takes what comes, line {line}\n").into_bytes());
    lines.flatten().take(len).collect()
}

type Content = fn(u64, usize) -> Vec<u8>;

/// Sealed or not, deduplicated or not, compressed or not.
fn all_volumes(test: impl Fn(&Bucket, Dedup, Content)) {
    test(&Bucket::new(), Dedup::Off, noise);
    test(&Bucket::new(), Dedup::Full, text);
    let sealed = Bucket::of(Expected::Sealed(key_file(7)));
    test(&sealed, Dedup::Fast, text);
}

#[test]
fn a_record_that_cannot_be_read_is_lost_alone_until_it_is_written_again() {
    all_volumes(|bucket, dedup, content| {
        let disk = Disk::default();
        let change = |settings: &mut FsConfig| {
            config(settings);
            settings.dedup = dedup;
        };
        let life = bucket.start_on(&disk, change);
        let inode = life.create(b"file");
        let bytes = content(1, 12 * MIB);
        let place = written(&life, &disk, inode, &bytes, 5);
        damage(&disk, &place);
        let before = life.volume.status().log.unwrap().0;
        life.flush();
        let lost = 5 * MIB..6 * MIB;
        assert_lost_alone(&life, inode, &bytes, &lost);
        assert_listed(&life, inode, &lost);
        let frames = status(&life).damaged_frames;
        let why = &frames[0].why;
        assert!(why.contains(&place.file) && why.contains("LSN"), "{why}");
        eventually("the log shrinks", || {
            life.volume.status().log.unwrap().0 < before
        });
        life.crash();
        disk.kill();

        let life = bucket.start_on(&disk, change);
        assert_lost_alone(&life, inode, &bytes, &lost);
        life.stop();

        let other = bucket.start_elsewhere(change);
        assert_lost_alone(&other, inode, &bytes, &lost);
        assert_eq!(scrub(&other).damaged_packs.len(), 1);
        assert_listed(&other, inode, &lost);
        other.stop();

        let life = bucket.start_elsewhere(change);
        let again = &bytes[lost.clone()];
        life.write(inode, lost.start as u64, again, Stability::Unstable);
        assert_bytes(&life.read(inode, 0, bytes.len()), &bytes);
        life.flush();
        life.stop();
        let life = bucket.start_elsewhere(change);
        assert_bytes(&life.read(inode, 0, bytes.len()), &bytes);
        life.crash();
    });
}

/// What an answer says that promises that the bucket has everything that was written into the file.
fn in_bucket(life: &Life, inode: Inode) -> Result<(), Error> {
    life.run(|volume| async move {
        let volume = volume.with_commit_mode(CommitMode::Bucket);
        let committed = volume.commit(&ROOT, inode, 0, 0).await.map(drop);
        let at = 20 * MIB as u64;
        let written = volume
            .write(&ROOT, inode, at, b"end", Stability::FileSync)
            .await;
        assert_eq!(written.map(drop), committed);
        committed
    })
}

#[test]
fn no_answer_says_that_the_bucket_has_bytes_that_were_lost_on_their_way() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, config);
    let (inode, other) = (life.create(b"file"), life.create(b"other"));
    let bytes = noise(1, 8 * MIB);
    let place = written(&life, &disk, inode, &bytes, 5);
    life.write(other, 0, &bytes, Stability::Unstable);
    damage(&disk, &place);
    for _ in 0..2 {
        assert_eq!(in_bucket(&life, inode), Err(Error::Io));
        assert_eq!(in_bucket(&life, other), Ok(()));
    }
    // The disk does not have them either.
    let on_disk =
        |inode| life.run(|volume| async move { volume.commit(&ROOT, inode, 0, 0).await.map(drop) });
    assert_eq!(on_disk(inode), Err(Error::Io));
    assert_eq!(on_disk(other), Ok(()));
    scrub(&life);
    assert_eq!(in_bucket(&life, inode), Err(Error::Io));

    let half = &bytes[5 * MIB..][..MIB / 2];
    life.write(inode, 5 * MIB as u64, half, Stability::Unstable);
    assert_eq!(in_bucket(&life, inode), Err(Error::Io));
    life.truncate(inode, (5 * MIB + MIB / 2) as u64);
    assert_eq!(in_bucket(&life, inode), Ok(()));
    assert_eq!(on_disk(inode), Ok(()));
    assert_bytes(
        &life.read(inode, 0, 5 * MIB + MIB / 2),
        &bytes[..5 * MIB + MIB / 2],
    );
    life.crash();
}

#[test]
fn a_damaged_end_of_the_log_is_lost_alone_across_a_restart() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, config);
    let inode = life.create(b"file");
    let bytes = noise(1, 2 * MIB);
    let place = written(&life, &disk, inode, &bytes, 1);
    damage(&disk, &place);
    life.flush();
    let lost = MIB..2 * MIB;
    assert_listed(&life, inode, &lost);
    life.crash();
    disk.kill();
    let life = bucket.start_on(&disk, config);
    assert_lost_alone(&life, inode, &bytes, &lost);
    life.write(inode, MIB as u64, &bytes[lost], Stability::FileSync);
    life.crash();
    disk.kill();
    let life = bucket.start_on(&disk, config);
    assert_bytes(&life.read(inode, 0, bytes.len()), &bytes);
    life.crash();
}

#[test]
fn of_a_damaged_record_only_what_was_not_written_again_is_lost() {
    all_volumes(|bucket, dedup, content| {
        let disk = Disk::default();
        let life = bucket.start_on(&disk, |settings| {
            config(settings);
            settings.dedup = dedup;
        });
        let inode = life.create(b"file");
        let mut bytes = content(1, 4 * MIB);
        let place = written(&life, &disk, inode, &bytes, 2);
        for range in [
            2 * MIB - 7..2 * MIB + 100_001,
            3 * MIB - 300_000..3 * MIB + 1,
        ] {
            let news = content(2, range.len());
            life.write(inode, range.start as u64, &news, Stability::FileSync);
            bytes[range].copy_from_slice(&news);
        }
        life.spill();
        damage(&disk, &place);
        life.flush();
        let lost = 2 * MIB + 100_001..3 * MIB - 300_000;
        assert_lost_alone(&life, inode, &bytes, &lost);
        assert_listed(&life, inode, &lost);
        life.crash();
        let other = bucket.start_elsewhere(|_| {});
        assert_lost_alone(&other, inode, &bytes, &lost);
        other.crash();
    });
}

/// After this number of small writes the publisher writes the block again in one piece.
#[test]
fn a_block_that_is_defragmented_keeps_its_lost_range() {
    const WRITES: usize = 700;
    all_volumes(|bucket, dedup, content| {
        let disk = Disk::default();
        let change = |settings: &mut FsConfig| {
            config(settings);
            settings.dedup = dedup;
        };
        let life = bucket.start_on(&disk, change);
        let inode = life.create(b"file");
        let mut bytes = content(1, BLOCK);
        life.write(inode, 0, &bytes, Stability::Unstable);
        life.flush();
        let mut place = None;
        // More than a page of the log each, so that the middle is of the record alone.
        let news = content(2, 5000);
        for number in 0..WRITES {
            let at = number * 5900;
            let write = || life.write(inode, at as u64, &news, Stability::FileSync);
            match number {
                300 => place = Some(record(&disk, write)),
                _ => write(),
            }
            bytes[at..at + news.len()].copy_from_slice(&news);
        }
        life.spill();
        damage(&disk, &place.unwrap());
        life.flush();
        let lost = 300 * 5900..300 * 5900 + 5000;
        assert_lost_alone(&life, inode, &bytes, &lost);
        assert_listed(&life, inode, &lost);
        life.crash();
        let other = bucket.start_elsewhere(change);
        assert_lost_alone(&other, inode, &bytes, &lost);
        // It cannot be defragmented any more, and the lost range stays what it is.
        for number in 0..WRITES {
            let at = number * 5900 + 5000;
            if !(290..310).contains(&number) {
                other.write(inode, at as u64, &[7; 100], Stability::Unstable);
                bytes[at..at + 100].copy_from_slice(&[7; 100]);
            }
        }
        other.flush();
        assert_lost_alone(&other, inode, &bytes, &lost);
        other.crash();
    });
}

#[test]
fn an_eager_upload_loses_the_same() {
    const BLOCKS: usize = 8;
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, |settings| {
        config(settings);
        settings.memory_limit = 64 << 20;
        settings.pack_bytes = BLOCK_SIZE;
        settings.early_bytes = 0;
        settings.upload_parallel = 1;
    });
    let inode = life.create(b"file");
    life.flush();
    let published = life.volume.status().published;
    bucket.controls.pack_puts.close();
    let bytes = noise(1, BLOCKS * BLOCK);
    let which = bytes.len() / MIB - 2;
    let place = written(&life, &disk, inode, &bytes, which);
    damage(&disk, &place);
    bucket.controls.pack_puts.open();
    eventually("all blocks have left", || {
        life.volume.status().dirty_bytes == 0
    });
    assert_eq!(life.volume.status().published, published);
    let lost = which * MIB..(which + 1) * MIB;
    assert_lost_alone(&life, inode, &bytes, &lost);
    life.flush();
    assert_lost_alone(&life, inode, &bytes, &lost);
    assert_listed(&life, inode, &lost);
    life.crash();
    let other = bucket.start_elsewhere(|_| {});
    assert_lost_alone(&other, inode, &bytes, &lost);
    other.crash();
}

#[test]
fn a_log_that_is_read_at_last_loses_nothing() {
    let (bucket, disk) = (Bucket::new(), Disk::default());
    let life = bucket.start_on(&disk, config);
    let inode = life.create(b"file");
    let bytes = noise(1, 3 * MIB);
    written(&life, &disk, inode, &bytes, 1);
    disk.fail(Step::Read, Fault::Io, 0, 10);
    life.flush();
    assert_eq!(disk.struck(), 10);
    assert!(status(&life).damaged_frames.is_empty());
    assert_bytes(&life.read(inode, 0, bytes.len()), &bytes);
    life.crash();
}
