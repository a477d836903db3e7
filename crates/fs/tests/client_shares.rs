//! Memory that waits for the bucket is divided between clients: one that fills it leaves a part to others.

use std::time::Duration;

use crate::common::*;
use forebay_fs::{FsConfig, LogConfig, Volume};
use forebay_types::Inode;
use forebay_vfs::{
    ClientId, CreateMode, Credentials, Error, FileSystem, Groups, SetAttributes, Stability,
};

const COPY: Credentials = client(1);
const EDITOR: Credentials = client(2);

const fn client(number: u64) -> Credentials {
    Credentials {
        uid: 0,
        gid: 0,
        groups: Groups::new_const(),
        client: ClientId(number),
        trash: 0,
    }
}

async fn write(
    volume: &Volume,
    caller: &Credentials,
    file: Inode,
    offset: u64,
    bytes: usize,
) -> Result<(), Error> {
    let data = pattern(offset, bytes);
    let written = volume
        .write(caller, file, offset, &data, Stability::Unstable)
        .await;
    written.map(drop)
}

async fn create(volume: &Volume, caller: &Credentials, name: &str) -> Result<(), Error> {
    let mode = CreateMode::Guarded(SetAttributes::default());
    let made = volume
        .create(caller, Inode::ROOT, name.as_bytes(), &mode)
        .await;
    made.map(drop)
}

/// A volume that is full soon, and soon answers calls that wait for room.
fn small(config: &mut FsConfig) {
    config.memory_limit = 64 << 20;
    // No pack is built before memory is full.
    config.early_bytes = 1 << 40;
    config.overlay_limit = 1 << 20;
    // The log has room in its first segment, so that only memory delays a call.
    config.log = LogConfig::Disk {
        limit: 512 << 20,
        segment: 128 << 20,
    };
    config.room_wait = Duration::from_millis(20);
}

#[test]
fn a_client_that_fills_memory_leaves_room_for_the_writes_of_others() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    let (large, notes) = (life.create(b"large"), life.create(b"notes"));
    life.flush();
    bucket.controls.everything.close();
    life.run(|volume| async move {
        write(&volume, &EDITOR, notes, 0, 1).await.unwrap();
        let mut at = 0;
        let full = loop {
            match write(&volume, &COPY, large, at, 1 << 20).await {
                Ok(()) => at += 1 << 20,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Error::Delay);
        assert!(
            at >= 32 << 20,
            "a client fills more than half of memory: {at}"
        );
        // Any number of times, up to the size that counts as little.
        for i in 0..16 {
            write(&volume, &EDITOR, notes, i << 16, 1 << 16)
                .await
                .unwrap();
        }
        // A client that has written nothing yet is admitted as well.
        write(&volume, &client(3), notes, 2 << 20, 1 << 16)
            .await
            .unwrap();
        let still = write(&volume, &COPY, large, at, 1 << 20).await;
        assert_eq!(still, Err(Error::Delay));
    });
    bucket.controls.everything.open();
    life.flush();
    assert_bytes(
        &life.read(notes, 15 << 16, 1 << 16),
        &pattern(15 << 16, 1 << 16),
    );
}

#[test]
fn a_client_that_writes_alone_may_fill_all_of_memory() {
    let filled = |clients: Vec<Credentials>| {
        let bucket = Bucket::new();
        let life = bucket.start(small);
        let large = life.create(b"large");
        life.flush();
        bucket.controls.everything.close();
        let filled = life.run(move |volume| async move {
            for other in &clients {
                write(&volume, other, large, 1 << 30, 1).await.unwrap();
            }
            let mut at = 0;
            while write(&volume, &COPY, large, at, 1 << 20).await.is_ok() {
                at += 1 << 20;
            }
            at
        });
        bucket.controls.everything.open();
        life.flush();
        filled
    };
    let (alone, beside) = (filled(Vec::new()), filled(vec![EDITOR]));
    assert!(
        alone >= beside + (6 << 20),
        "{alone} alone, {beside} beside"
    );
}

#[test]
fn a_client_that_makes_names_without_end_leaves_room_for_the_names_of_others() {
    let bucket = Bucket::new();
    let life = bucket.start(small);
    life.create(b"file");
    life.flush();
    bucket.controls.everything.close();
    life.run(|volume| async move {
        create(&volume, &EDITOR, "first").await.unwrap();
        let mut made = 0;
        let full = loop {
            match create(&volume, &COPY, &format!("name-{made}")).await {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Error::Delay);
        assert!(made > 50, "{made} names");
        for i in 0..10 {
            create(&volume, &EDITOR, &format!("draft-{i}"))
                .await
                .unwrap();
        }
        let still = create(&volume, &COPY, "one more").await;
        assert_eq!(still, Err(Error::Delay));
    });
    bucket.controls.everything.open();
    life.flush();
    life.lookup(b"draft-9");
}
