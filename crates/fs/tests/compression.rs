//! Compression of files: as set by the export through which they were written last, at a level that depends on the
//! link; and they read as they were written.

use crate::common::*;
use forebay_fs::{Compression, CompressionStatus, Levels};
use forebay_types::Inode;
use forebay_vfs::{FileSystem, Stability};

const MIB: usize = 1 << 20;

fn text(len: usize) -> Vec<u8> {
    let lines =
        (0_u64..).flat_map(|n| format!("{n:08} it takes what comes, at once\n").into_bytes());
    lines.take(len).collect()
}

/// Raw and stored bytes of the packs of one publication.
fn published(life: &Life) -> (u64, u64) {
    let before = life.volume.status().compression;
    life.flush();
    let after = life.volume.status().compression;
    (
        after.raw_bytes - before.raw_bytes,
        after.stored_bytes - before.stored_bytes,
    )
}

fn write_through(life: &Life, compression: Compression, inode: Inode, data: &[u8]) {
    let data = data.to_vec();
    life.run(|volume| async move {
        let seen = volume.with_compression(compression);
        seen.write(&ROOT, inode, 0, &data, Stability::Unstable)
            .await
    })
    .unwrap();
}

#[test]
fn the_export_that_a_file_was_written_through_last_decides() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.compression = Compression::Off);
    let data = text(MIB);
    let inode = life.create(b"file");
    let nine = Compression::Auto(Levels::new(9, 9).unwrap());
    for (through, level) in [
        (Compression::Off, None),
        (nine, Some(9)),
        (Compression::Off, None),
    ] {
        write_through(&life, through, inode, &data);
        let (raw, stored) = published(&life);
        assert_eq!(raw, MIB as u64);
        assert_eq!(stored < raw / 2, level.is_some(), "{stored}");
        assert_eq!(life.volume.status().compression.level, level);
        assert_bytes(&life.read(inode, 0, data.len()), &data);
    }
}

#[test]
fn what_is_replayed_is_compressed_as_the_volume_says() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    let data = text(MIB);
    write_through(&life, Compression::Off, inode, &data);
    life.crash();
    let life = bucket.start(|config| config.compression = Compression::default());
    let (raw, stored) = published(&life);
    assert!(stored < raw / 2, "{stored} of {raw}");
    assert_bytes(&life.read(inode, 0, data.len()), &data);
}

#[test]
fn files_of_several_exports_share_a_pack_and_keep_their_own_ways() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let data = text(MIB);
    let inodes = [b"0", b"1", b"2"].map(|name| life.create(name));
    let ways = [
        Compression::Off,
        Compression::Auto(Levels::ONE),
        Compression::Auto(Levels::new(7, 9).unwrap()),
    ];
    for (inode, way) in inodes.into_iter().zip(ways) {
        write_through(&life, way, inode, &data);
    }
    let (raw, stored) = published(&life);
    assert_eq!(bucket.packs().len(), 1);
    assert!(stored > MIB as u64 && stored < raw / 2, "{stored} of {raw}");
    for inode in inodes {
        assert_bytes(&life.read(inode, 0, data.len()), &data);
    }
    // Without a limit, and with a link that has carried nothing, the lowest level that is allowed.
    let CompressionStatus { level, .. } = life.volume.status().compression;
    assert_eq!(level, Some(1));
}
