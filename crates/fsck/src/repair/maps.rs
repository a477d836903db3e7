//! Repairs block maps: removes blocks behind the end of a file, and gives up unreadable ones if that was agreed to.

use forebay_meta::record::{BlockMap, Garbage, Kind};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{BLOCK_SIZE, BlockIndex, BlockKey, Inode};

use super::names;
use super::work::Work;
use crate::finding::Finding;
use crate::judge::maps::impossible;

/// Repairs block maps of an object that is no file, or is missing.
pub(super) async fn without_file(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, blocks): (Inode, u64),
) -> Result<(), StoreError> {
    if !work.has(&Key::Inode(inode)).await? {
        return names::file_of_blocks(work, finding, inode).await;
    }
    let record = work.inode(inode).await?;
    let is_other = record.is_some_and(|record| record.kind() != Kind::Regular);
    if !is_other || !work.accept_loss {
        return Ok(());
    }
    // Report the step before its first batch is committed.
    work.did(
        finding,
        format!("removed {blocks} block maps of inode {inode}, which is not a file"),
    );
    let mut maps = work.cursor(KeyRange::blocks(inode, BlockIndex(0)));
    while let Some((key, _)) = maps.next().await? {
        work.delete_encoded(key);
        work.settle().await?;
    }
    Ok(())
}

/// Repairs a block that reaches behind the end of its file.
pub(super) async fn behind_end(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, block, size): (Inode, u64, u64),
) -> Result<(), StoreError> {
    let key = key(inode, block);
    let begins = block.saturating_mul(BLOCK_SIZE);
    let Some(mut map) = work.get::<BlockMap>(&key).await? else {
        return Ok(());
    };
    let cut: u64 = map.truncate(size.saturating_sub(begins)).values().sum();
    replace(work, &key, &map);
    let what = format!(
        "removed {cut} bytes of block {block} of inode {inode}, which were behind the end of the file at {size}"
    );
    work.did(finding, what);
    Ok(())
}

/// Repairs impossible frames of a block.
pub(super) async fn impossible_frame(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, block): (Inode, u64),
    is_wrong: impl Fn(&forebay_meta::FrameAddress) -> bool,
) -> Result<(), StoreError> {
    let key = key(inode, block);
    let Some(map) = work.get::<BlockMap>(&key).await? else {
        return Ok(());
    };
    if !work.accept_loss {
        return Ok(());
    }
    let mut left = map.clone();
    let begins = block.saturating_mul(BLOCK_SIZE);
    let mut lost = Vec::new();
    for extent in map.extents() {
        if (impossible(&extent.frame).is_some() || is_wrong(&extent.frame))
            && left.cut(extent.range).is_ok()
        {
            let at = |byte: u64| begins.saturating_add(byte);
            lost.push(format!(
                "{} to {}",
                at(extent.range.start),
                at(extent.range.end)
            ));
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    replace(work, &key, &left);
    let lost = lost.join(", ");
    work.did(finding, format!("bytes {lost} of inode {inode} are lost: their block map refers to an impossible frame. They read as zeros from now on"));
    Ok(())
}

/// Repairs a note of a removed file that still exists.
pub(super) fn living(work: &mut Work<'_>, finding: &Finding, inode: Inode) {
    work.delete(&Key::Garbage(inode));
    work.did(
        finding,
        format!("inode {inode} is no longer noted for collection"),
    );
}

/// Repairs a removed file with a block map that counts as collected already: lowers the first block to be collected.
pub(super) async fn collected(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, block): (Inode, u64),
) -> Result<(), StoreError> {
    let key = Key::Garbage(inode);
    let Some(garbage) = work.get::<Garbage>(&key).await? else {
        return Ok(());
    };
    let first_block = garbage.first_block.min(BlockIndex(block));
    work.put(
        &key,
        &Garbage {
            first_block,
            ..garbage
        },
    );
    work.did(
        finding,
        format!(
            "noted the removed inode {inode} for collection from block {first_block} on",
            first_block = first_block.0
        ),
    );
    Ok(())
}

/// Repairs the bytes that a file counts.
pub(super) async fn used(
    work: &mut Work<'_>,
    finding: &Finding,
    (inode, is): (Inode, u64),
) -> Result<(), StoreError> {
    if work.edit(inode, |record| record.used = is).await? {
        work.did(
            finding,
            format!("set the byte count of inode {inode} to {is}"),
        );
    }
    Ok(())
}

fn key(inode: Inode, block: u64) -> Key {
    let block = BlockIndex(block);
    Key::Block(BlockKey { inode, block })
}

fn replace(work: &mut Work<'_>, key: &Key, map: &BlockMap) {
    match map.is_empty() {
        true => work.delete(key),
        false => work.put(key, map),
    }
}
