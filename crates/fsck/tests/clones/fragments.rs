//! Fragmented blocks of a clone: those at its source stay there.

use super::*;

/// The file, one block, and the pages that are written in turns of this many checkpoints.
const LEN: usize = 4 * MIB;
const PAGE: usize = 64 << 10;
const TURNS: usize = 8;

/// Writes a file that lies in many places.
async fn scatter(volume: &Volume, files: &mut Files, name: &str, seed: u64) {
    let inode = create(volume, Inode::ROOT, name).await;
    let bytes = noise(seed, LEN);
    for turn in 0..TURNS {
        for at in (turn * PAGE..LEN).step_by(TURNS * PAGE) {
            write(volume, inode, at as u64, &bytes[at..at + PAGE]).await;
        }
        volume.flush().await.unwrap();
    }
    files.insert(name.to_owned(), bytes);
}

/// Copies fragmented blocks at once.
fn soon(config: &mut FsConfig) {
    eager(config);
    config.pack_bytes = 8 << 20;
    config.defragment_after = Duration::from_millis(10);
}

fn never(config: &mut FsConfig) {
    soon(config);
    config.defragment_after = Duration::ZERO;
}

/// Opens the volume, reads all, and returns how many blocks were copied when nothing is left to copy.
async fn copied(place: &Place, files: &Files, expected: u64) -> u64 {
    let volume = Box::pin(place.open_with(soon)).await;
    compare(&volume, files).await;
    assert_eq!(volume.status().collector.fragmented_blocks, expected);
    // The collector begins with the first commit.
    create(&volume, Inode::ROOT, "nudge").await;
    volume.remove(&WHO, Inode::ROOT, b"nudge").await.unwrap();
    volume.flush().await.unwrap();
    while volume.status().collector.fragmented_blocks > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let copied = volume.status().collector.defragmented_blocks;
    compare(&volume, files).await;
    close(volume).await;
    is_sound(place).await;
    copied
}

#[tokio::test]
async fn a_clone_copies_its_own_fragmented_blocks_alone() {
    let place = empty(&Expected::NotSealed);
    let store = place.store().await;
    Volume::format_as(&store, &place.expected).await.unwrap();
    let mut files = Files::new();
    let volume = Box::pin(place.open_with(never)).await;
    scatter(&volume, &mut files, "of the source", 1).await;
    volume.make_snapshot("s", "a test").await.unwrap();
    volume.flush().await.unwrap();
    close(volume).await;

    let other = empty(&Expected::NotSealed);
    clone(&place, &other, "s").await.unwrap();
    let packs = other.packs();
    assert_eq!(copied(&other, &files, 1).await, 0);
    assert_eq!(other.packs(), packs);

    let volume = Box::pin(other.open_with(never)).await;
    scatter(&volume, &mut files, "of the clone", 2).await;
    close(volume).await;
    assert_eq!(copied(&other, &files, 2).await, 1);

    // Once they are its own, they are copied.
    detached(&other).await.unwrap();
    assert_eq!(copied(&other, &files, 1).await, 1);
}
