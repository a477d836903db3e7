//! Restarts, takeovers and damage: the state that is found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use forebay_fs::{FsConfig, LogConfig, Stopped};
use forebay_types::{BLOCK_SIZE, Inode};
use forebay_vfs::{CreateMode, Error, FileSystem, SetAttributes, Stability, Verifier};

fn verifier(life: &Life) -> Verifier {
    let inode = match life.try_lookup(Inode::ROOT, b"verified") {
        Ok(found) => found.inode,
        Err(_) => life.create(b"verified"),
    };
    let written = life.try_write(inode, 0, b"x").unwrap().verifier;
    let (_, committed) =
        life.run(|volume| async move { volume.commit(&ROOT, inode, 0, 0).await.unwrap() });
    assert_eq!(written, committed);
    written
}

/// Changes a line of the gateway's state file, as a reboot would.
fn reboot(bucket: &Bucket) {
    let path = bucket.local.path().join("state");
    let text = fs::read_to_string(&path).unwrap();
    let body: String = text
        .lines()
        .filter(|line| !line.starts_with("crc32 "))
        .map(|line| match line.strip_prefix("boot ") {
            Some(_) => format!("boot {}\n", "5a".repeat(16)),
            None => format!("{line}\n"),
        })
        .collect();
    let crc = crc32fast::hash(body.as_bytes());
    fs::write(path, format!("{body}crc32 {crc:08x}\n")).unwrap();
}

#[test]
fn the_verifier_stays_when_nothing_can_have_been_lost_and_changes_otherwise() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let first = verifier(&life);
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(verifier(&life), first, "a kill loses nothing");
    life.stop();
    reboot(&bucket);
    let life = bucket.start(|_| {});
    assert_eq!(
        verifier(&life),
        first,
        "an orderly stop before a reboot loses nothing"
    );
    life.crash();
    reboot(&bucket);
    let life = bucket.start(|_| {});
    let second = verifier(&life);
    assert_ne!(second, first, "a power cut may have lost something");
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(verifier(&life), second);
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_ne!(verifier(&life), second, "the local folder is gone");
    life.crash();
    let life = bucket.take_over();
    assert_ne!(verifier(&life), second, "another gateway has been there");
}

#[test]
fn everything_is_found_again_after_a_kill_at_any_moment_of_a_checkpoint() {
    let bucket = Bucket::new();
    let mut life = bucket.start(|_| {});
    let inode = life.create(b"file");
    let mut expected = Vec::new();
    for round in 0..6u64 {
        let data = pattern(round, 300_000);
        life.write(inode, round * 300_000, &data, Stability::Unstable);
        expected.extend_from_slice(&data);
        let name = format!("name-{round}");
        life.create(name.as_bytes());
        let gate = match round % 3 {
            0 => &bucket.controls.pack_puts,
            1 => &bucket.controls.meta_puts,
            _ => &bucket.controls.pack_gets,
        };
        gate.close();
        let flush = life.spawn(|volume| async move { volume.flush().await });
        if round % 3 < 2 {
            eventually("the checkpoint is under way", || gate.held() > 0);
        } else {
            std::thread::sleep(Duration::from_millis(20 * round));
        }
        life.write(inode, 7, b"during", Stability::Unstable);
        expected[7..13].copy_from_slice(b"during");
        drop(flush);
        life.crash();
        gate.open();
        life = bucket.start(|_| {});
        assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
        assert_eq!(life.list(Inode::ROOT, 100).len() as u64, 3 + round + 1);
    }
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(&life.read(inode, 0, 4 << 20), &expected);
}

#[test]
fn handles_cookies_and_inodes_survive_a_restart_and_a_move() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.create(b"other");
    let (key, entries) = (life.volume.handle_key(), life.list(Inode::ROOT, 1));
    life.flush();
    life.remove(b"other");
    life.create(b"third");
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(life.volume.handle_key(), key);
    let after = life.list(Inode::ROOT, 1);
    assert_eq!(after[..3], entries[..3]);
    assert!(
        after[3].cookie > entries[3].cookie,
        "a cookie is never used again"
    );
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.volume.handle_key(), key);
    assert_eq!(life.list(Inode::ROOT, 1), after);
    // Numbers are never used again either.
    let new = life.create(b"new");
    assert!(new.0 > after[3].inode.0 && new != inode);
}

#[test]
fn a_log_that_another_gateway_has_overtaken_is_put_aside_and_not_replayed() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, b"published", Stability::FileSync);
    life.flush();
    life.write(inode, 0, b"forgotten", Stability::FileSync);
    life.create(b"forgotten");
    life.crash();
    let other = bucket.start_elsewhere(|_| {});
    other.write(inode, 9, b" elsewhere", Stability::FileSync);
    other.flush();
    other.crash();

    for _ in 0..2 {
        let life = bucket.take_over();
        assert_eq!(life.read(inode, 0, 100), b"published elsewhere");
        assert_eq!(
            life.try_lookup(Inode::ROOT, b"forgotten"),
            Err(Error::NotFound)
        );
        life.crash();
    }
    let aside = |path: &Path| path.to_string_lossy().contains("epoch-");
    let kept: Vec<PathBuf> = fs::read_dir(bucket.local.path().join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| aside(path))
        .collect();
    assert!(!kept.is_empty(), "the log is kept for salvage");
    let found = kept.iter().any(|path| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(9).any(|window| window == b"forgotten")
    });
    assert!(found, "what was not published is in it");
}

#[test]
fn a_log_without_its_state_file_is_not_replayed() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.create(b"lost");
    life.crash();
    fs::remove_file(bucket.local.path().join("state")).unwrap();
    let life = bucket.take_over();
    assert_eq!(life.try_lookup(Inode::ROOT, b"lost"), Err(Error::NotFound));
}

#[test]
fn a_second_gateway_fences_the_first_which_stops_writing_and_says_so() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let inode = first.create(b"file");
    first.write(inode, 0, b"published", Stability::FileSync);
    first.flush();
    let second = bucket.start_elsewhere(|_| {});
    assert!(second.volume.epoch() > first.volume.epoch());
    first.write(inode, 0, b"too late ", Stability::FileSync);

    assert_eq!(
        first.run(|volume| async move { volume.flush().await }),
        Err(Stopped::Fenced.into())
    );
    assert_eq!(
        first.run(|volume| async move { volume.stopped().await }),
        Stopped::Fenced
    );
    assert_eq!(first.volume.status().stopped, Some(Stopped::Fenced));
    assert_eq!(first.try_write(inode, 0, b"x"), Err(Error::Delay));
    assert_eq!(
        first.set(&ROOT, inode, SetAttributes::default()),
        Err(Error::Delay)
    );
    assert_eq!(first.try_remove(Inode::ROOT, b"file"), Err(Error::Delay));
    first.run(|volume| async move {
        let mode = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(
            volume.create(&ROOT, Inode::ROOT, b"n", &mode).await,
            Err(Error::Delay)
        );
    });
    second.write(inode, 9, b"!", Stability::FileSync);
    second.flush();
    first.stop();
    second.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.read(inode, 0, 100), b"published!");
}

#[test]
fn a_gateway_whose_successor_came_during_an_upload_publishes_nothing() {
    let bucket = Bucket::new();
    let first = bucket.start(|_| {});
    let inode = first.create(b"file");
    first.flush();
    first.write(inode, 0, b"late", Stability::FileSync);
    bucket.controls.pack_puts.close();
    let flush = first.spawn(|volume| async move { volume.flush().await });
    eventually("an upload is under way", || {
        bucket.controls.pack_puts.held() > 0
    });
    let second = bucket.start_elsewhere(|_| {});
    bucket.controls.pack_puts.open();
    second.write(inode, 0, b"second", Stability::FileSync);
    second.flush();
    assert_eq!(first.join(flush), Err(Stopped::Fenced.into()));
    second.crash();
    assert_eq!(bucket.start_elsewhere(|_| {}).read(inode, 0, 10), b"second");
}

#[test]
fn a_damaged_pack_costs_only_the_range_that_it_held_and_is_named() {
    let messages = messages::collect();
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.compression = forebay_fs::Compression::Off);
    let inode = life.create(b"file");
    let other = life.create(b"other");
    let mut data = pattern(1, 3 * BLOCK_SIZE as usize);
    // In the middle of the second block.
    let needle = b"these bytes are nowhere else";
    data[(BLOCK_SIZE + 777_777) as usize..][..needle.len()].copy_from_slice(needle);
    life.write(inode, 0, &data, Stability::Unstable);
    life.write(other, 0, b"in the same pack, perhaps", Stability::Unstable);
    life.flush();
    life.crash();
    let mut damaged = None;
    for (path, _) in bucket.packs() {
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes
            .windows(needle.len())
            .position(|window| window == needle)
        {
            bytes[at + 7] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            damaged = Some(path);
        }
    }
    let damaged = damaged.expect("the block is in a pack");

    let life = bucket.start_elsewhere(|_| {});
    // Frames end at multiples of 256 KiB.
    let frame = BLOCK_SIZE + (512 << 10)..BLOCK_SIZE + (768 << 10);
    for at in [frame.start, BLOCK_SIZE + 777_777, frame.end - 1] {
        assert_eq!(life.try_read(inode, at, 1), Err(Error::Io), "at {at}");
    }
    let ends = [0..frame.start as usize, frame.end as usize..data.len()];
    for range in ends {
        assert_bytes(
            &life.read(inode, range.start as u64, range.len()),
            &data[range],
        );
    }
    assert_eq!(life.read(other, 0, 100), b"in the same pack, perhaps");
    let pack = damaged.file_name().unwrap().to_str().unwrap();
    let named = |text: &String| text.contains(pack) && text.contains(&format!("inode {inode}"));
    assert!(messages.lock().iter().any(named), "{:?}", messages.lock());
    // Bytes that are written again are readable.
    life.write(
        inode,
        BLOCK_SIZE,
        &data[..BLOCK_SIZE as usize],
        Stability::Unstable,
    );
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_bytes(
        &life.read(inode, BLOCK_SIZE, BLOCK_SIZE as usize),
        &data[..BLOCK_SIZE as usize],
    );
}

#[test]
fn a_damaged_frame_does_not_stop_small_writes_to_its_block() {
    // The byte at this offset of the pack belongs a little before it in the file: headers come first.
    small_writes_go_on_where_a_frame_is_damaged((1 << 20) - 2000, |bytes| bytes[1 << 20] ^= 1);
}

#[test]
fn a_pack_that_was_cut_does_not_stop_small_writes_to_its_blocks() {
    // Within the bytes of a frame, before those of all others.
    small_writes_go_on_where_a_frame_is_damaged((1 << 20) - 2000, |bytes| {
        bytes.truncate(900_000);
    });
    small_writes_go_on_where_a_frame_is_damaged(2000, Vec::clear);
}

/// Damages the pack of a file of 2 MiB; the damage shows at an offset that is not written to.
fn small_writes_go_on_where_a_frame_is_damaged(shows_at: u64, damage: fn(&mut Vec<u8>)) {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.compression = forebay_fs::Compression::Off);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 2 << 20), Stability::Unstable);
    life.flush();
    let (path, _) = bucket.packs().remove(0);
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(&path, bytes).unwrap();
    // Enough that the block would be defragmented.
    life.run(|volume| async move {
        for i in 0..700u64 {
            let at = i * 3000;
            volume
                .write(&ROOT, inode, at, b"x", Stability::Unstable)
                .await
                .unwrap();
        }
    });
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.read(inode, 699 * 3000, 1), b"x");
    assert_eq!(life.try_read(inode, shows_at, 10), Err(Error::Io));
}

#[test]
fn a_deleted_pack_is_an_error_of_its_range_only() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (lost, kept) = (life.create(b"lost"), life.create(b"kept"));
    life.write(lost, 0, b"lost", Stability::Unstable);
    life.flush();
    let (path, _) = bucket.packs().remove(0);
    life.write(kept, 0, b"kept", Stability::Unstable);
    life.flush();
    life.crash();
    fs::remove_file(path).unwrap();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.try_read(lost, 0, 10), Err(Error::Io));
    assert_eq!(life.read(kept, 0, 10), b"kept");
    assert_eq!(life.lookup(b"lost").size, 4);
}

fn no_log(config: &mut FsConfig) {
    config.log = LogConfig::None;
}

#[test]
fn without_a_log_everything_committed_is_there_after_a_crash() {
    let bucket = Bucket::new();
    let life = bucket.start(no_log);
    let first = verifier(&life);
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.commit(inode);
    life.write(inode, 1 << 20, b"synced", Stability::DataSync);
    life.mkdir(Inode::ROOT, b"directory");
    life.truncate(inode, (1 << 20) + 3);
    let mut expected = pattern(1, 1 << 20);
    expected.extend_from_slice(b"syn");
    life.write(inode, 0, b"unstable", Stability::Unstable);
    life.crash();
    let life = bucket.start(no_log);
    // Uncommitted writes may be lost; the verifier shows it to the client.
    assert_bytes(&life.read(inode, 0, 2 << 20), &expected);
    assert_ne!(verifier(&life), first);
    life.lookup(b"directory");
}

#[test]
fn a_log_is_published_before_a_volume_goes_on_without_one_and_its_lsns_are_not_mixed_up() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 500_000), Stability::FileSync);
    life.crash();

    let life = bucket.start(no_log);
    assert_bytes(&life.read(inode, 0, 1 << 20), &pattern(1, 500_000));
    life.write(inode, 0, b"without", Stability::FileSync);
    life.remove(b"file");
    let other = life.create(b"other");
    life.write(other, 0, b"other", Stability::FileSync);
    life.crash();

    let life = bucket.start(|_| {});
    assert_eq!(life.try_lookup(Inode::ROOT, b"file"), Err(Error::NotFound));
    assert_eq!(life.read(other, 0, 10), b"other");
    life.write(other, 0, b"again", Stability::FileSync);
    life.crash();
    assert_eq!(bucket.start(|_| {}).read(other, 0, 10), b"again");
}

#[test]
fn a_stop_in_order_publishes_everything() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, b"data", Stability::Unstable);
    let closed = life.run(|volume| async move { volume.close(Duration::from_secs(20)).await });
    assert_eq!(closed, forebay_fs::Closed::Published);
    assert_eq!(life.try_write(inode, 0, b"x"), Err(Error::Delay));
    life.crash();
    assert_eq!(bucket.start_elsewhere(|_| {}).read(inode, 0, 9), b"data");
}

/// The program's log messages.
mod messages {
    use std::fmt::Write;
    use std::sync::{Arc, OnceLock};

    use parking_lot::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    pub(super) type Messages = Arc<Mutex<Vec<String>>>;

    struct Collector(Messages);

    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            write!(self.0, "{}={value:?} ", field.name()).unwrap();
        }
    }

    impl Subscriber for Collector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target().starts_with("forebay")
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().push(text.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Collects everything that this process logs from now on.
    pub(super) fn collect() -> Messages {
        static MESSAGES: OnceLock<Messages> = OnceLock::new();
        let messages = MESSAGES.get_or_init(|| {
            let messages = Messages::default();
            tracing::subscriber::set_global_default(Collector(messages.clone())).unwrap();
            messages
        });
        messages.clone()
    }
}
