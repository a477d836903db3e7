//! At a limit writers wait and nothing fails; without the bucket all local work goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, Error, FileSystem, SetAttributes, Stability, Trouble};

fn memory(limit: u64) -> impl Fn(&mut FsConfig) + Copy {
    move |config| config.memory_limit = limit
}

#[test]
fn many_times_the_memory_is_written_while_writers_wait_and_memory_stays_within_its_limit() {
    const LIMIT: u64 = 32 << 20;
    const EACH: u64 = 50;
    let bucket = Bucket::new();
    let life = bucket.start(memory(LIMIT));
    let inodes: Vec<Inode> = (0..4u8).map(|i| life.create(&[b'a' + i])).collect();
    let writers: Vec<_> = inodes
        .iter()
        .map(|&inode| {
            life.spawn(move |volume| async move {
                for i in 0..EACH {
                    let data = pattern(inode.0 + i, 1 << 20);
                    write(&volume, inode, i << 20, &data, Stability::Unstable).await;
                }
            })
        })
        .collect();
    let mut highest = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        highest = highest.max(life.volume.status().memory_bytes);
        std::thread::sleep(Duration::from_millis(1));
    }
    writers.into_iter().for_each(|writer| life.join(writer));
    assert!(highest > LIMIT / 2, "the limit was never near");
    // Copies that writers make of bytes in upload may exceed it by a little.
    assert!(highest < LIMIT + (8 << 20), "{highest} bytes");
    for inode in &inodes {
        for i in 0..EACH {
            let found = life.read(*inode, i << 20, 1 << 20);
            assert_bytes(&found, &pattern(inode.0 + i, 1 << 20));
        }
    }
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(memory(LIMIT));
    for inode in inodes {
        let found = life.read(inode, (EACH - 1) << 20, 2 << 20);
        assert_bytes(&found, &pattern(inode.0 + EACH - 1, 1 << 20));
    }
}

#[test]
fn single_bytes_all_over_a_file_do_not_exhaust_the_memory() {
    let bucket = Bucket::new();
    let life = bucket.start(memory(16 << 20));
    let inode = life.create(b"file");
    life.run(|volume| async move {
        for i in 0..8000u64 {
            volume
                .write(&ROOT, inode, i * 70_000, b"x", Stability::Unstable)
                .await
                .unwrap();
        }
    });
    assert!(life.volume.status().memory_bytes < 24 << 20);
    for i in (0..8000).step_by(997) {
        assert_eq!(life.read(inode, i * 70_000, 1), b"x");
    }
}

#[test]
fn a_pack_of_the_smallest_files_counts_with_all_of_its_headers() {
    const FILES: u64 = 1000;
    /// Bytes of a frame's header and its entry in the index.
    const HEADER: u64 = 172;
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    for number in 0..FILES {
        let inode = life.create(format!("file-{number}").as_bytes());
        life.write(inode, 0, b"x", Stability::Unstable);
    }
    bucket.controls.pack_puts.close();
    let flush = life.spawn(|volume| async move { volume.flush().await.map(drop) });
    eventually("a pack is on its way", || {
        bucket.controls.pack_puts.held() > 0
    });
    let leased = life.volume.status().leased_bytes;
    bucket.controls.pack_puts.open();
    life.join(flush).unwrap();
    let pack = bucket.pack_bytes();
    assert!(pack >= FILES * (HEADER + 1), "{pack} bytes");
    assert!(leased >= pack, "{leased} bytes for a pack of {pack}");
    let kept = life.volume.status().leased_bytes;
    assert!(kept >= pack, "it serves the next burst: {kept} bytes");
    eventually("all is given back", || {
        life.volume.status().leased_bytes == 0
    });
}

#[test]
fn writers_wait_while_the_log_is_full_and_go_on_when_it_was_published() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.log = LogConfig::Disk {
            limit: 8 << 20,
            segment: 4 << 20,
        };
    });
    let inode = life.create(b"file");
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            life.spawn(move |volume| async move {
                for i in 0..20 {
                    let at = (writer * 20 + i) << 20;
                    write(
                        &volume,
                        inode,
                        at,
                        &pattern(at, 1 << 20),
                        Stability::Unstable,
                    )
                    .await;
                }
            })
        })
        .collect();
    let names = life.spawn(|volume| async move {
        for i in 0..300 {
            let mode = CreateMode::Guarded(SetAttributes::default());
            let name = format!("name-{i}");
            volume
                .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                .await
                .unwrap();
        }
    });
    writers.into_iter().for_each(|writer| life.join(writer));
    life.join(names);
    let (used, limit) = life.volume.status().log.unwrap();
    assert!(used <= limit);
    life.crash();
    let life = bucket.start(|config| {
        config.log = LogConfig::Disk {
            limit: 8 << 20,
            segment: 4 << 20,
        };
    });
    for at in (0..60u64).map(|i| i << 20) {
        assert_bytes(&life.read(inode, at, 1 << 20), &pattern(at, 1 << 20));
    }
    assert_eq!(life.list(Inode::ROOT, 100).len(), 303);
}

#[test]
fn a_write_larger_than_a_log_segment_is_refused_and_harms_nothing() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.log = LogConfig::Disk {
            limit: 1 << 20,
            segment: 256 << 10,
        };
    });
    let inode = life.create(b"file");
    assert_eq!(
        life.try_write(inode, 0, &pattern(1, 1 << 20)),
        Err(Error::FileTooLarge)
    );
    life.write(inode, 0, b"small", Stability::FileSync);
    assert_eq!(life.read(inode, 0, 10), b"small");
}

#[test]
fn whoever_makes_names_waits_at_the_limit_of_unpublished_ones() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.overlay_limit = 64 << 10);
    let makers: Vec<_> = (0..3)
        .map(|maker| {
            life.spawn(move |volume| async move {
                for i in 0..200 {
                    let mode = CreateMode::Guarded(SetAttributes::default());
                    let name = format!("name-{maker}-{i}");
                    volume
                        .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    makers.into_iter().for_each(|maker| life.join(maker));
    assert!(life.volume.status().published > forebay_types::Lsn::ZERO);
    assert_eq!(life.list(Inode::ROOT, 1000).len(), 602);
}

#[test]
fn nodes_in_memory_stay_near_their_limit() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.node_limit = 1);
    for i in 0..3000 {
        life.create(format!("{i}").as_bytes());
        if i % 500 == 499 {
            life.flush();
        }
    }
    // 64 shards of at least 16.
    for i in 0..3000 {
        life.lookup(format!("{i}").as_bytes());
    }
    let nodes = life.volume.status().nodes;
    assert!(nodes <= 64 * 17, "{nodes} nodes");
}

#[test]
fn without_the_bucket_everything_local_goes_on_and_resumes_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.memory_limit = 32 << 20;
        config.checkpoint_interval = Duration::from_millis(200);
    });
    let inode = life.create(b"file");
    let mut expected = pattern(1, 4 << 20);
    life.write(inode, 0, &expected, Stability::Unstable);
    life.flush();
    bucket.controls.set_down(true);

    // Cached reads, writes, commits and names.
    let begun = Instant::now();
    assert_bytes(&life.read(inode, 0, 5 << 20), &expected);
    for i in 0..20u64 {
        let at = (i * 100_000) as usize;
        life.write(inode, at as u64, &pattern(i, 5000), Stability::Unstable);
        expected[at..at + 5000].copy_from_slice(&pattern(i, 5000));
        life.commit(inode);
    }
    let other = life.create(b"other");
    life.rename((Inode::ROOT, b"other"), (Inode::ROOT, b"renamed"))
        .unwrap();
    life.write(other, 0, b"data", Stability::FileSync);
    life.truncate(inode, 3 << 20);
    expected.truncate(3 << 20);
    life.link(inode, (Inode::ROOT, b"link")).unwrap();
    life.remove(b"link");
    assert_bytes(&life.read(inode, 0, 5 << 20), &expected);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "something waited for the bucket"
    );
    eventually("the trouble is noticed", || {
        life.volume.status().store_trouble.is_some()
    });
    let status = life.volume.status();
    assert!(status.unpublished_bytes() > 0 && status.stopped.is_none());

    // Up to the limit, where writers wait and do not fail.
    let back = Moment::default();
    let writer = life.spawn_until(&back, move |volume| async move {
        for i in 0..60u64 {
            let at = (8 << 20) + (i << 20);
            write(
                &volume,
                inode,
                at,
                &pattern(i, 1 << 20),
                Stability::Unstable,
            )
            .await;
        }
    });
    eventually("the writer waits: 60 MiB do not fit in 32", || {
        life.waiting(Trouble::MemoryFull) == 1
    });
    assert!(life.volume.status().memory_bytes <= 33 << 20);
    // Other clients read and commit meanwhile.
    assert_bytes(&life.read(inode, 0, 1 << 20), &expected[..1 << 20]);
    life.commit(inode);

    back.mark();
    bucket.controls.set_down(false);
    let ((), waited) = life.join(writer);
    assert!(waited, "60 MiB do not fit in 32");
    eventually("everything is published", || {
        life.volume.status().unpublished_bytes() == 0
    });
    assert_eq!(life.volume.status().store_trouble, None);
    life.crash();
    let life = bucket.start_elsewhere(memory(32 << 20));
    assert_bytes(&life.read(inode, 0, 3 << 20), &expected);
    assert_bytes(&life.read(inode, 67 << 20, 2 << 20), &pattern(59, 1 << 20));
    assert_eq!(life.read(life.lookup(b"renamed").inode, 0, 9), b"data");
}

#[test]
fn a_read_that_needs_the_bucket_asks_to_come_back_while_it_is_away() {
    let bucket = Bucket::new();
    let mut life = bucket.start(memory(16 << 20));
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    life.evict();
    bucket.controls.set_down(true);
    assert_eq!(life.try_read(inode, 0, 1000), Err(Error::Delay));
    bucket.controls.set_down(false);
    // The next request to the store is sent a moment later, not at once.
    life.patient = true;
    assert_bytes(&life.read(inode, 0, 1 << 20), &pattern(1, 1 << 20));
}

#[test]
fn a_stop_without_the_bucket_ends_in_time_and_loses_nothing() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.write(inode, 0, b"not published", Stability::Unstable);
    bucket.controls.set_down(true);
    let begun = Instant::now();
    let closed = life.run(|volume| async move { volume.close(Duration::from_secs(1)).await });
    assert_eq!(closed, forebay_fs::Closed::InLog);
    assert!(begun.elapsed() < Duration::from_secs(40));
    life.crash();
    bucket.controls.set_down(false);
    let life = bucket.start(|_| {});
    assert_eq!(life.read(inode, 0, 100), b"not published");
}

#[test]
fn a_burst_larger_than_memory_is_replayed() {
    let bucket = Bucket::new();
    let life = bucket.start(memory(64 << 20));
    let inode = life.create(b"file");
    for i in 0..40u64 {
        life.write(inode, i << 20, &pattern(i, 1 << 20), Stability::Unstable);
    }
    life.crash();
    // A third of the bytes in the log.
    let life = bucket.start(memory(16 << 20));
    for i in 0..40u64 {
        assert_bytes(&life.read(inode, i << 20, 1 << 20), &pattern(i, 1 << 20));
    }
}

#[test]
fn a_closed_gate_does_not_stop_readers_of_published_bytes() {
    let bucket = Bucket::new();
    let life = bucket.start(memory(16 << 20));
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 1 << 20), Stability::Unstable);
    life.flush();
    life.evict();
    let other = life.create(b"other");
    bucket.controls.pack_puts.close();
    let opened = Moment::default();
    let writer = life.spawn_until(&opened, move |volume| async move {
        for i in 0..40u64 {
            write(
                &volume,
                other,
                i << 20,
                &pattern(i, 1 << 20),
                Stability::Unstable,
            )
            .await;
        }
    });
    eventually("the cache is full of dirty bytes", || {
        bucket.controls.pack_puts.held() > 0 && life.waiting(Trouble::MemoryFull) == 1
    });
    assert_bytes(&life.read(inode, 0, 1 << 20), &pattern(1, 1 << 20));
    opened.mark();
    bucket.controls.pack_puts.open();
    let ((), waited) = life.join(writer);
    assert!(waited, "40 MiB do not fit in 16");
}

fn small_log(config: &mut FsConfig) {
    config.log = LogConfig::Disk {
        limit: 8 << 20,
        segment: 2 << 20,
    };
}

/// Writes to `file` until the log or memory makes writers wait.
fn fill(life: &Life, file: Inode) -> tokio::task::JoinHandle<()> {
    life.spawn(move |volume| async move {
        for i in 0..40u64 {
            let data = pattern(i, 1 << 20);
            write(&volume, file, i << 20, &data, Stability::Unstable).await;
        }
    })
}

#[test]
fn with_the_store_away_and_the_log_full_writers_wait_and_all_go_on_when_it_is_back() {
    let bucket = Bucket::new();
    let life = bucket.start(small_log);
    let files: Vec<Inode> = (0..3u8).map(|i| life.create(&[b'a' + i])).collect();
    life.flush();
    bucket.controls.set_down(true);
    // Read below, whichever writer gets the rest of the log.
    life.write(files[0], 0, &pattern(0, 1 << 20), Stability::Unstable);
    let writers: Vec<_> = files.iter().map(|&file| fill(&life, file)).collect();
    eventually("the log is full", || {
        let (used, limit) = life.volume.status().log.unwrap();
        used + (2 << 20) > limit
    });
    eventually("all writers wait", || {
        life.volume.troubles().counts(Trouble::LogFull).waiting == 3
    });
    assert!(!writers.iter().any(tokio::task::JoinHandle::is_finished));
    let (used, limit) = life.volume.status().log.unwrap();
    assert!(used <= limit);
    // A client that only reads or looks up waits for nothing.
    assert_bytes(&life.read(files[0], 0, 1 << 20), &pattern(0, 1 << 20));
    life.lookup(b"b");
    bucket.controls.set_down(false);
    writers.into_iter().for_each(|writer| life.join(writer));
    for file in files {
        for i in 0..40u64 {
            assert_bytes(&life.read(file, i << 20, 1 << 20), &pattern(i, 1 << 20));
        }
    }
}

#[test]
fn a_call_for_which_there_is_no_room_in_time_is_asked_to_come_back_and_leaves_nothing_behind() {
    type Full = fn(&mut FsConfig);
    let full: [Full; 3] = [
        |config| config.memory_limit = 16 << 20,
        |config| small_log(config),
        |config| config.overlay_limit = 64 << 10,
    ];
    for (of_names, change) in [false, false, true].into_iter().zip(full) {
        let bucket = Bucket::new();
        let life = bucket.start(|config| {
            change(config);
            config.room_wait = Duration::from_millis(20);
        });
        let file = life.create(b"file");
        life.flush();
        bucket.controls.everything.close();
        let fill = move |volume: Volume| async move {
            for i in 0..10_000u64 {
                let done = if of_names {
                    let mode = CreateMode::Guarded(SetAttributes::default());
                    let name = format!("name-{i}");
                    let made = volume
                        .create(&ROOT, Inode::ROOT, name.as_bytes(), &mode)
                        .await;
                    made.map(drop)
                } else {
                    let data = pattern(i, 1 << 20);
                    let written = volume
                        .write(&ROOT, file, i << 20, &data, Stability::Unstable)
                        .await;
                    written.map(drop)
                };
                if let Err(error) = done {
                    return (i, error);
                }
            }
            panic!("there is room for everything");
        };
        // The bucket stays closed until the call is answered.
        let (before, error) = life.run(fill);
        assert_eq!(error, Error::Delay);
        assert!(before > 0);
        assert_eq!(life.volume.status().admitted_bytes, 0);
        // Other clients are served meanwhile.
        life.lookup(b"file");
        bucket.controls.everything.open();
        life.flush();
        // The write was not made, and can be made now.
        let data = pattern(7, 1 << 20);
        life.write(file, 1 << 40, &data, Stability::Unstable);
        life.create(b"later");
        assert_bytes(&life.read(file, 1 << 40, 1 << 20), &data);
        life.flush();
    }
}

#[test]
fn clients_that_give_up_while_they_wait_for_the_log_or_for_memory_leave_nothing_behind() {
    for tight_memory in [false, true] {
        let bucket = Bucket::new();
        let life = bucket.start(|config| {
            if tight_memory {
                config.memory_limit = 16 << 20;
            } else {
                small_log(config);
            }
        });
        let file = life.create(b"file");
        life.flush();
        bucket.controls.everything.close();
        let writer = fill(&life, file);
        // A hundred clients come and wait. Some may get the last of the room, while the writer has not taken it.
        let kind = match tight_memory {
            true => Trouble::MemoryFull,
            false => Trouble::LogFull,
        };
        let clients: Vec<_> = (0..150u64)
            .map(|i| {
                life.spawn(move |volume| async move {
                    let data = pattern(i, 1 << 20);
                    write(&volume, file, i << 20, &data, Stability::FileSync).await;
                })
            })
            .collect();
        eventually("a hundred wait", || {
            life.volume.troubles().counts(kind).waiting >= 100
        });
        // They give up.
        clients.iter().for_each(tokio::task::JoinHandle::abort);
        writer.abort();
        eventually("all are gone", || {
            writer.is_finished() && clients.iter().all(tokio::task::JoinHandle::is_finished)
        });
        bucket.controls.everything.open();
        life.flush();
        let status = life.volume.status();
        assert_eq!((status.dirty_bytes, status.unpublished_bytes()), (0, 0));
        assert_eq!(status.admitted_bytes, 0);
        // As much is admitted at once as before: a log segment takes one such write.
        bucket.controls.everything.close();
        let fits = if tight_memory { 12 } else { 3 };
        let other = life.spawn(move |volume| async move {
            for i in 0..fits {
                let data = pattern(i, 1 << 20);
                write(&volume, file, i << 20, &data, Stability::FileSync).await;
            }
        });
        life.join(other);
        bucket.controls.everything.open();
    }
}

#[test]
fn what_is_in_memory_is_told_at_once_and_everything_else_is_left_to_read() {
    let bucket = Bucket::new();
    let data = pattern(1, 3 << 20);
    // How many bytes, and whether the file ends with them.
    let at_once = |life: &Life, caller: &Credentials, inode, offset: u64| {
        let reply = life.volume.read_in_memory(caller, inode, offset, 1 << 20)?;
        let bytes: Vec<u8> = reply.data.iter().flat_map(|piece| piece.to_vec()).collect();
        assert_bytes(&bytes, &data[offset as usize..][..bytes.len()]);
        Some((bytes.len(), reply.eof))
    };
    let life = bucket.start(|_| {});
    let file = life.create(b"file");
    life.write(file, 0, &data, Stability::Unstable);
    assert_eq!(at_once(&life, &ROOT, file, 1 << 20), Some((1 << 20, false)));
    assert_eq!(at_once(&life, &ROOT, file, 5 << 19), Some((1 << 19, true)));
    assert_eq!(at_once(&life, &ROOT, file, 3 << 20), Some((0, true)));
    // Reads that end in an error.
    let private = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    life.run(|volume| async move { volume.setattr(&ROOT, file, &private, None).await })
        .unwrap();
    let other = Credentials {
        uid: 1234,
        gid: 1234,
        ..Credentials::default()
    };
    assert_eq!(at_once(&life, &other, file, 0), None);
    assert_eq!(at_once(&life, &ROOT, Inode::ROOT, 0), None);
    assert_eq!(at_once(&life, &ROOT, Inode(1 << 30), 0), None);
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    bucket.controls.everything.close();
    assert_eq!(at_once(&life, &ROOT, file, 2 << 20), None);
    bucket.controls.everything.open();
    assert_bytes(&life.read(file, 2 << 20, 1 << 20), &data[2 << 20..]);
    assert_eq!(at_once(&life, &ROOT, file, 2 << 20), Some((1 << 20, true)));
}

#[test]
fn calls_that_wait_for_the_disk_do_not_count_as_memory_twice() {
    let bucket = Bucket::new();
    let disk = crate::common::disk::Disk::default();
    let life = bucket.start_on(&disk, memory(16 << 20));
    let file = life.create(b"file");
    disk.log_files().hold_flushes(true);
    let sync: Vec<_> = (0..7u64)
        .map(|i| {
            life.spawn(move |volume| async move {
                let data = pattern(i, 1 << 20);
                write(&volume, file, i << 20, &data, Stability::FileSync).await;
            })
        })
        .collect();
    eventually("all are in memory", || {
        life.volume.status().dirty_bytes == 7 << 20
    });
    // Half of the memory is free.
    bucket.controls.everything.close();
    life.write(file, 7 << 20, &pattern(7, 6 << 20), Stability::Unstable);
    bucket.controls.everything.open();
    disk.log_files().hold_flushes(false);
    sync.into_iter().for_each(|writer| life.join(writer));
}

#[test]
fn under_a_load_without_pauses_nothing_stays_unpublished_for_long() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.checkpoint_interval = Duration::from_millis(200);
        config.checkpoint_bytes = 4 << 20;
    });
    let file = life.create(b"file");
    let writer = life.spawn(move |volume| async move {
        for i in 0..400u64 {
            let at = (i % 30) << 20;
            write(&volume, file, at, &pattern(i, 300_000), Stability::Unstable).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let (mut published, mut seen) = (0, 0);
    while !writer.is_finished() {
        let now = life.volume.status().published.0;
        if now > published {
            (published, seen) = (now, seen + 1);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    life.join(writer);
    assert!(seen > 3, "{seen} publications under the load");
    eventually("the rest follows by itself", || {
        life.volume.status().oldest_unpublished.is_none()
    });
}

#[test]
fn status_requests_without_a_pause_do_not_delay_checkpoints() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let file = life.create(b"file");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    life.volume.status();
                }
            });
        }
        for i in 0..50 {
            life.write(file, i * 100, b"something", Stability::Unstable);
            life.flush();
        }
        over.store(true, Ordering::Release);
    });
    assert!(life.volume.status().oldest_unpublished.is_none());
}

#[test]
fn readers_that_give_up_leave_no_fetch_behind() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.memory_limit = 16 << 20;
        config.fetch_parallel = 2;
    });
    let inode = life.create(b"file");
    life.write(inode, 0, &pattern(1, 8 << 20), Stability::Unstable);
    life.flush();
    life.evict();
    bucket.controls.pack_gets.close();
    life.run(|volume| async move {
        for i in 0..20u64 {
            let at = (i % 8) << 20;
            let time_limit = Duration::from_millis(10);
            let waited = tokio::time::timeout(time_limit, read(&volume, inode, at, 1 << 20)).await;
            assert!(waited.is_err(), "it was in memory");
        }
    });
    bucket.controls.pack_gets.open();
    assert_bytes(&life.read(inode, 0, 8 << 20), &pattern(1, 8 << 20));
}
