//! Checks the consistency of the bucket's content without the product's file system.

mod trash;

use std::collections::{BTreeMap, BTreeSet};

use forebay_meta::record::{
    BlockMap, CookieRecord, Garbage, HeldPack, Holding, InodeRecord, Kind, NameRecord, PackFrames,
    PackRecord, QuotaRecord, Referrer, ScrubRecord, SnapshotRecord, TrashOwner, TrashRecord,
    TrashUntil, Truncated, UsageRecord, VolumeState, holder, kept_name,
};
use forebay_meta::{Key, Record};
use forebay_pack::{object_name, parse_object_name};
use forebay_types::{BlockKey, PackId, SnapshotId};

use crate::bucket::BucketImage;

/// The entries of the metadata, by kind.
#[derive(Default)]
struct Entries {
    volume: Option<VolumeState>,
    inodes: BTreeMap<u64, InodeRecord>,
    names: BTreeMap<(u64, Vec<u8>), NameRecord>,
    cookies: BTreeMap<(u64, u64), CookieRecord>,
    blocks: Vec<(BlockKey, BlockMap)>,
    packs: BTreeMap<u64, PackRecord>,
    garbage: BTreeSet<u64>,
    /// Files with truncated blocks that are still to be collected.
    truncated: BTreeSet<u64>,
    dead_packs: BTreeSet<u64>,
    snapshots: BTreeMap<u64, SnapshotRecord>,
    held: BTreeMap<u64, HeldPack>,
    /// Holders and the packs that they hold.
    holdings: BTreeSet<(u64, u64)>,
    scrubs: BTreeSet<u64>,
    /// Packs with notes on their frames.
    noted: BTreeSet<u64>,
    usages: BTreeMap<u64, UsageRecord>,
    trash: BTreeMap<u64, TrashRecord>,
    /// Ends of entries in the trash, and their objects.
    trash_order: BTreeSet<(u64, u64)>,
}

impl Entries {
    /// The objects that have names.
    fn live(&self) -> impl Iterator<Item = (&u64, &InodeRecord)> {
        self.inodes
            .iter()
            .filter(|(_, object)| !object.is_in_trash())
    }
}

/// The published LSN of the bucket.
pub(crate) fn published(bucket: &BucketImage) -> Result<u64, String> {
    let key = Key::Volume.encode();
    let value = bucket.metadata.entries.get(&key);
    let value = value.ok_or("there is no state of the volume")?;
    let state = VolumeState::decode(&key, value).map_err(|error| error.to_string())?;
    Ok(state.published.0)
}

/// The snapshots of the bucket whose deletion has not begun, by name: whether their states are kept.
pub(crate) fn snapshots(bucket: &BucketImage) -> Result<BTreeMap<String, bool>, String> {
    let entries = read(bucket).map_err(|error| format!("metadata: {error}"))?;
    let snapshots = entries.snapshots.into_iter();
    let live = snapshots.filter(|(_, snapshot)| !snapshot.is_being_deleted);
    let kept = &bucket.metadata.kept;
    Ok(live
        .map(|(id, snapshot)| {
            let is_kept = kept.contains_key(&kept_name(SnapshotId(id)));
            (snapshot.name, is_kept)
        })
        .collect())
}

/// Number of snapshots in the bucket, with those that are being deleted.
pub(crate) fn snapshot_records(bucket: &BucketImage) -> Result<usize, String> {
    let entries = read(bucket).map_err(|error| format!("metadata: {error}"))?;
    Ok(entries.snapshots.len())
}

/// Checks the bucket as a whole.
pub(crate) fn audit(bucket: &BucketImage) -> Result<(), String> {
    let entries = read(bucket).map_err(|error| format!("metadata: {error}"))?;
    names(&entries)?;
    blocks(&entries, bucket)?;
    trash::trash(&entries)?;
    held(&entries, bucket)
}

/// Checks that each held pack is there, has the holder that it should have, and is counted.
fn held(entries: &Entries, bucket: &BucketImage) -> Result<(), String> {
    let mut bytes = 0;
    for (pack, record) in &entries.held {
        let kept = entries
            .snapshots
            .iter()
            .filter(|(id, snapshot)| !snapshot.is_being_deleted || **id == record.holder.0);
        let kept = kept.map(|(id, snapshot)| (SnapshotId(*id), snapshot.commit));
        if holder(&record.life, kept) != Some(record.holder) {
            return Err(format!(
                "pack {pack:016x} is held by snapshot {}, which is not the newest that refers to it",
                record.holder
            ));
        }
        if !entries.holdings.contains(&(record.holder.0, *pack)) {
            return Err(format!(
                "pack {pack:016x} is not marked as held by snapshot {}",
                record.holder
            ));
        }
        let length = bucket
            .pack(&object_name(PackId(*pack)))
            .map(|object| object.len() as u64);
        if length != Some(record.life.bytes) {
            return Err(format!(
                "held pack {pack:016x} has {length:?} bytes, and should have {}",
                record.life.bytes
            ));
        }
        if entries.packs.contains_key(pack) || entries.dead_packs.contains(pack) {
            return Err(format!(
                "pack {pack:016x} is held and is not dead, or is to be deleted"
            ));
        }
        bytes += record.life.bytes;
    }
    if entries.holdings.len() != entries.held.len() {
        return Err("packs are marked as held that are not".into());
    }
    let counted = entries.volume.map_or(0, |volume| volume.history.held_bytes);
    if counted != bytes {
        return Err(format!(
            "the volume counts {counted} held bytes, and has {bytes}"
        ));
    }
    Ok(())
}

fn read(bucket: &BucketImage) -> Result<Entries, forebay_meta::Corrupt> {
    let mut entries = Entries::default();
    for (key, value) in &bucket.metadata.entries {
        match Key::decode(key)? {
            Key::Volume => entries.volume = Some(VolumeState::decode(key, value)?),
            Key::Inode(inode) => {
                entries
                    .inodes
                    .insert(inode.0, InodeRecord::decode(key, value)?);
            }
            Key::Name(directory, name) => {
                entries.names.insert(
                    (directory.0, name.to_vec()),
                    NameRecord::decode(key, value)?,
                );
            }
            Key::Cookie(directory, cookie) => {
                entries
                    .cookies
                    .insert((directory.0, cookie), CookieRecord::decode(key, value)?);
            }
            Key::Block(block) => entries.blocks.push((block, BlockMap::decode(key, value)?)),
            Key::Pack(pack) => {
                entries
                    .packs
                    .insert(pack.0, PackRecord::decode(key, value)?);
            }
            Key::Garbage(inode) => {
                Garbage::decode(key, value)?;
                entries.garbage.insert(inode.0);
            }
            Key::Truncated(inode) => {
                Truncated::decode(key, value)?;
                entries.truncated.insert(inode.0);
            }
            Key::Snapshot(id) => {
                let record = SnapshotRecord::decode(key, value)?;
                entries.snapshots.insert(id.0, record);
            }
            Key::HeldPack(pack) => {
                entries.held.insert(pack.0, HeldPack::decode(key, value)?);
            }
            Key::Holding(holder, pack) => {
                Holding::decode(key, value)?;
                entries.holdings.insert((holder.0, pack.0));
            }
            Key::DeadPack(pack) => {
                entries.dead_packs.insert(pack.0);
            }
            Key::Quota(_) => drop(QuotaRecord::decode(key, value)?),
            Key::Scrub(pack) => {
                ScrubRecord::decode(key, value)?;
                entries.scrubs.insert(pack.0);
            }
            Key::PackFrames(pack, _) => {
                PackFrames::decode(key, value)?;
                entries.noted.insert(pack.0);
            }
            Key::Referrer(pack, _) => {
                Referrer::decode(key, value)?;
                entries.noted.insert(pack.0);
            }
            Key::Trash(inode) => {
                let record = TrashRecord::decode(key, value)?;
                entries.trash.insert(inode.0, record);
            }
            Key::TrashUntil(until, inode) => {
                TrashUntil::decode(key, value)?;
                entries.trash_order.insert((until, inode.0));
            }
            Key::TrashOwner(..) => drop(TrashOwner::decode(key, value)?),
            Key::Usage(tree) => {
                entries
                    .usages
                    .insert(tree.0, UsageRecord::decode(key, value)?);
            }
        }
    }
    Ok(entries)
}

/// Checks that every name has its cookie and its object, every object its names, and nothing is left over.
fn names(entries: &Entries) -> Result<(), String> {
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for ((directory, name), record) in &entries.names {
        let shown = format!("name {} in {directory}", name.escape_ascii());
        let cookie = entries.cookies.get(&(*directory, record.cookie));
        if cookie.is_none_or(|cookie| cookie.inode != record.inode || cookie.name != name[..]) {
            return Err(format!("{shown} and its cookie contradict each other"));
        }
        let Some(object) = entries.inodes.get(&record.inode.0) else {
            return Err(format!("{shown} refers to an object that does not exist"));
        };
        if object.kind() != record.kind {
            return Err(format!("{shown} is of another kind than its object"));
        }
        if object
            .directory()
            .is_some_and(|own| own.parent.0 != *directory)
        {
            return Err(format!("{shown} is a directory that says it is elsewhere"));
        }
        *links.entry(record.inode.0).or_default() += 1;
        *counts.entry(*directory).or_default() += 1;
        if record.kind == Kind::Directory {
            *links.entry(*directory).or_default() += 1;
        }
    }
    if entries.cookies.len() != entries.names.len() {
        return Err("there are cookies without names".into());
    }
    for (inode, object) in entries.live() {
        let own = match object.directory() {
            Some(directory) => {
                let entries = counts.get(inode).copied().unwrap_or_default();
                if directory.entries != entries {
                    return Err(format!(
                        "directory {inode} counts {} names and has {entries}",
                        directory.entries
                    ));
                }
                // Its own "."; the root has no name but its "..".
                1 + u32::from(*inode == 1)
            }
            None => 0,
        };
        let links = links.get(inode).copied().unwrap_or_default() + own;
        if object.nlink != links {
            return Err(format!(
                "object {inode} counts {} links and has {links}",
                object.nlink
            ));
        }
    }
    match &entries.volume {
        Some(volume) if volume.used_inodes != entries.live().count() as u64 => Err(format!(
            "the volume counts {} objects and has {}",
            volume.used_inodes,
            entries.live().count()
        )),
        _ => Ok(()),
    }
}

/// Checks that every frame lies in an existing pack, and that all accounts sum up.
fn blocks(entries: &Entries, bucket: &BucketImage) -> Result<(), String> {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    let mut total = 0;
    for (block, map) in &entries.blocks {
        let inode = &block.inode.0;
        if !entries.inodes.contains_key(inode) && !entries.garbage.contains(inode) {
            return Err(format!(
                "there are blocks of object {inode}, which is not there"
            ));
        }
        let last = map.extents().last().map_or(0, |extent| extent.range.end);
        let object = entries.inodes.get(inode);
        let counts = object.is_some_and(|object| !object.truncated.contains(block.block));
        if counts && object.is_some_and(|object| block.block.start() + last > object.size) {
            return Err(format!(
                "block {} of object {inode} has bytes behind the end of the file",
                block.block.0
            ));
        }
        for extent in map.extents() {
            let frame = &extent.frame;
            let object = bucket.pack(&object_name(frame.pack));
            let Some(object) = object else {
                return Err(format!(
                    "object {inode} refers to pack {}, which is not there",
                    frame.pack
                ));
            };
            let end = u64::from(frame.offset) + u64::from(frame.stored_len);
            let stored = object.get(frame.offset as usize..end as usize);
            if stored.and_then(crc32) != Some(frame.crc32) {
                return Err(format!(
                    "object {inode} refers to a frame that pack {} does not hold",
                    frame.pack
                ));
            }
            *live.entry(frame.pack.0).or_default() += extent.range.len();
            total += extent.range.len();
            if counts {
                *used.entry(*inode).or_default() += extent.range.len();
            }
        }
    }
    for (pack, record) in &entries.packs {
        let bytes = live.remove(pack).unwrap_or_default();
        if record.live_bytes != bytes {
            return Err(format!(
                "pack {pack:x} counts {} live bytes and has {bytes}",
                record.live_bytes
            ));
        }
        let name = object_name(forebay_types::PackId(*pack));
        if bucket.pack(&name).map(|object| object.len() as u64) != Some(record.bytes) {
            return Err(format!(
                "pack {pack:x} has an account, and is not there as it says"
            ));
        }
    }
    if let Some(pack) = entries
        .scrubs
        .iter()
        .find(|pack| !entries.packs.contains_key(pack) && !entries.held.contains_key(pack))
    {
        return Err(format!(
            "pack {pack:x} was checked, and has no account and is not held"
        ));
    }
    let mut noted = entries.noted.iter();
    if let Some(pack) =
        noted.find(|pack| !entries.packs.contains_key(pack) && !entries.dead_packs.contains(pack))
    {
        return Err(format!(
            "the frames of pack {pack:x} are noted, and it is gone"
        ));
    }
    if let Some((pack, bytes)) = live.first_key_value() {
        return Err(format!(
            "pack {pack:x} has {bytes} live bytes and no account"
        ));
    }
    for (inode, object) in &entries.inodes {
        if !object.truncated.is_empty() && !entries.truncated.contains(inode) {
            return Err(format!(
                "the blocks of object {inode} are not noted for collection"
            ));
        }
        let bytes = used.get(inode).copied().unwrap_or_default();
        if object.kind() == Kind::Regular && object.used != bytes {
            return Err(format!(
                "object {inode} counts {} bytes and has {bytes}",
                object.used
            ));
        }
    }
    usages(entries)?;
    match &entries.volume {
        Some(volume) if volume.used_bytes != total => Err(format!(
            "the volume counts {} bytes and has {total}",
            volume.used_bytes
        )),
        Some(_) => Ok(()),
        None => Err("there is no state of the volume".into()),
    }
}

/// Checks that the recorded usage of the volume and of each tree is that of its objects.
fn usages(entries: &Entries) -> Result<(), String> {
    let mut counted: BTreeMap<u64, UsageRecord> = BTreeMap::new();
    let mut bytes = 0;
    for (_, object) in entries.live() {
        bytes += object.charged_bytes();
        if let Some(tree) = object.tree {
            let usage = counted.entry(tree.0).or_default();
            usage.bytes += object.charged_bytes();
            usage.files += 1;
        }
    }
    if counted != entries.usages {
        return Err(format!(
            "trees count {:?} and have {counted:?}",
            entries.usages
        ));
    }
    let files = entries.live().count() as u64;
    match &entries.volume {
        Some(volume) if volume.charged_bytes.is_some_and(|charged| charged != bytes) => {
            Err(format!(
                "the volume is charged {:?} bytes and has {bytes}",
                volume.charged_bytes
            ))
        }
        Some(volume) if volume.used_inodes != files => Err(format!(
            "the volume counts {} objects and has {files}",
            volume.used_inodes
        )),
        _ => Ok(()),
    }
}

/// Number of packs that the metadata do not name: what a crash between upload and publication leaves.
pub(crate) fn unknown_packs(bucket: &BucketImage) -> u64 {
    let known = |name: &str| {
        parse_object_name(name).is_none_or(|pack| {
            [Key::Pack(pack), Key::DeadPack(pack), Key::HeldPack(pack)]
                .iter()
                .any(|key| bucket.metadata.entries.contains_key(&key.encode()))
        })
    };
    bucket.objects.keys().filter(|name| !known(name)).count() as u64
}

/// Checks that nothing is left over after a gateway has had the time to collect everything.
pub(crate) fn leftovers(
    bucket: &BucketImage,
    rewrite_below: u32,
    least: u64,
) -> Result<(), String> {
    let unknown = unknown_packs(bucket);
    if unknown > 0 {
        return Err(format!(
            "{unknown} packs that nothing knows are never deleted"
        ));
    }
    let entries = read(bucket).map_err(|error| format!("metadata: {error}"))?;
    if !entries.snapshots.is_empty() || !entries.held.is_empty() {
        return Err("a deleted snapshot still holds packs".into());
    }
    if !entries.trash.is_empty() {
        return Err("the trash keeps what is over".into());
    }
    if !entries.dead_packs.is_empty() || !entries.garbage.is_empty() {
        return Err("dead packs or removed files are never collected".into());
    }
    for (pack, record) in &entries.packs {
        // With shared frames, more bytes may be live than the pack has.
        let dead = record.raw_bytes.saturating_sub(record.live_bytes);
        let is_sparse = record.live_bytes * 100 < record.raw_bytes * u64::from(rewrite_below);
        // Stored bytes are a little more than raw ones.
        if is_sparse && dead > least {
            return Err(format!(
                "pack {pack:x} has {} live bytes of {} and is never rewritten",
                record.live_bytes, record.raw_bytes
            ));
        }
    }
    Ok(())
}

/// The CRC32 of a stored frame: over all its bytes except the four in its header that hold it.
fn crc32(frame: &[u8]) -> Option<u32> {
    let mut crc32 = crc32fast::Hasher::new();
    crc32.update(frame.get(..124)?);
    crc32.update(frame.get(128..)?);
    Some(crc32.finalize())
}
