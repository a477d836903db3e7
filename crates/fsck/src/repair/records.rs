//! Repairs records that cannot be read: restores them from others with the same content, or removes them.

use forebay_meta::error::DisplayKey;
use forebay_meta::record::{
    BlockMap, Content, CookieRecord, Directory, Garbage, Kind, NameRecord, QuotaRecord, Recount,
    Referrer, Truncated, UsageRecord, VolumeState,
};
use forebay_meta::{InodeRecord, Key, KeyRange, Record, StoreError};
use forebay_types::{BLOCK_SIZE, BlockIndex, Epoch, Inode, Lsn, PackId};

use super::work::Work;
use super::{packs, snapshots, trash};
use crate::bucket::Bucket;
use crate::ended::Ended;
use crate::finding::{Finding, Name, Nobody, of_kind};
use crate::judge::objects::FIRST_COOKIE;
use crate::judge::packs::COUNTER_BITS;

/// Unknown version bytes up to this one are taken for those of a newer program, whose records are left alone; higher
/// ones for damage.
const LATER_VERSIONS: u8 = 15;
/// Error of a record of such a version.
const OF_OTHER_VERSION: &str = "was written by a version of Forebay that this one does not know";

/// An entry that cannot be read.
pub(super) async fn damaged(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (shown, why): (&DisplayKey, &'static str),
) -> Result<(), Ended> {
    let Some(value) = work.source.get(&shown.0).await? else {
        return Ok(());
    };
    let is_later = value
        .first()
        .is_some_and(|version| *version <= LATER_VERSIONS);
    if why == OF_OTHER_VERSION && is_later {
        return Ok(());
    }
    let Ok(key) = Key::decode(&shown.0) else {
        if work.accept_loss {
            work.delete_encoded(shown.0.clone().into());
            work.did(
                finding,
                format!("removed the entry {shown}, whose key is invalid"),
            );
        }
        return Ok(());
    };
    match key {
        // Also reported as a missing state.
        Key::Volume => Ok(()),
        Key::Inode(inode) => Ok(object(work, finding, inode).await?),
        Key::Name(directory, name) => Ok(self::name(work, finding, directory, Name(name)).await?),
        Key::Cookie(directory, cookie) => Ok(self::cookie(work, finding, directory, cookie).await?),
        Key::Block(block) => {
            if work.accept_loss {
                work.delete(&key);
                let begins = block.block.0.saturating_mul(BLOCK_SIZE);
                let what = format!(
                    "bytes {begins} to {} of inode {} are lost: their block map cannot be read. They read as zeros from now on",
                    begins.saturating_add(BLOCK_SIZE),
                    block.inode,
                );
                work.did(finding, what);
            }
            Ok(())
        }
        // The live bytes would be counted too low, and a pack that only an unreadable map refers to would become
        // garbage.
        Key::Pack(_) if work.maps_are_unknown() => Ok(()),
        Key::Pack(pack) => packs::unreadable_account(work, finding, bucket, pack).await,
        Key::Garbage(inode) => {
            let (size, _) = extent_of(work, inode).await?;
            let first_block = BlockIndex(0);
            work.put(&key, &Garbage { size, first_block });
            let what = format!(
                "noted the removed inode {inode} again for collection, from its first block on"
            );
            work.did(finding, what);
            Ok(())
        }
        Key::Truncated(inode) => {
            work.put(&key, &Truncated);
            let what = format!("noted the truncated blocks of inode {inode} again for collection");
            work.did(finding, what);
            Ok(())
        }
        Key::DeadPack(pack) => packs::unreadable_dead(work, finding, bucket, pack).await,
        Key::Quota(root) => {
            let unlimited = QuotaRecord {
                limit_bytes: u64::MAX,
                limit_files: u64::MAX,
                recount: Recount::Joining,
            };
            work.put(&key, &unlimited);
            let what = format!(
                "the limits of the quota of inode {root} are lost: it has none until they are set again"
            );
            work.did(finding, what);
            Ok(())
        }
        Key::Usage(root) => {
            work.put(&key, &UsageRecord::default());
            work.did(
                finding,
                format!("the usage of the tree of inode {root} is counted again"),
            );
            Ok(())
        }
        Key::Scrub(pack) => {
            work.delete(&key);
            work.did(finding, format!("removed the scrub result of pack {pack}"));
            Ok(())
        }
        Key::Snapshot(id) => {
            snapshots::unreadable(work, finding, id);
            Ok(())
        }
        Key::HeldPack(pack) => snapshots::hold_again(work, finding, bucket, pack).await,
        Key::Holding(holder, pack) => {
            Ok(snapshots::unreadable_mark(work, finding, (holder, pack)).await?)
        }
        Key::Trash(inode) => Ok(trash::unreadable(work, finding, inode).await?),
        Key::TrashUntil(until, inode) => Ok(trash::mark(work, finding, (inode, until)).await?),
        Key::TrashOwner(uid, inode) => Ok(trash::owner(work, finding, (inode, uid)).await?),
        Key::PackFrames(pack, _) => {
            work.delete(&key);
            let what = format!("removed a part of the notes on the frames of pack {pack}");
            work.did(finding, what);
            Ok(())
        }
        Key::Referrer(pack, block) => {
            work.put(&key, &Referrer);
            let inode = block.inode;
            let what = format!("noted again that inode {inode} shares frames of pack {pack}");
            work.did(finding, what);
            Ok(())
        }
    }
}

/// Size and mapped bytes of a file, from its block maps.
pub(super) async fn extent_of(work: &Work<'_>, inode: Inode) -> Result<(u64, u64), StoreError> {
    let (mut size, mut used) = (0, 0_u64);
    let mut blocks = work.cursor(KeyRange::blocks(inode, BlockIndex(0)));
    while let Some((key, map)) = blocks.record::<BlockMap>(&mut Nobody).await? {
        let Key::Block(key) = key else { continue };
        let begins = key.block.0.saturating_mul(BLOCK_SIZE);
        let map = map.unwrap_or_default();
        let last = map
            .extents()
            .last()
            .map_or(BLOCK_SIZE, |extent| extent.range.end);
        size = size.max(begins.saturating_add(last));
        used = used.saturating_add(map.mapped_bytes());
    }
    Ok((size, used))
}

/// A directory's record, from its names and cookies, and its number of links.
pub(super) async fn directory_of(
    work: &Work<'_>,
    inode: Inode,
    parent: Inode,
) -> Result<(Directory, u32), StoreError> {
    let mut own = Directory {
        parent,
        next_cookie: FIRST_COOKIE,
        entries: 0,
    };
    let mut nlink = 2_u32;
    let mut names = work.cursor(KeyRange::names(inode));
    while let Some((_, record)) = names.record::<NameRecord>(&mut Nobody).await? {
        own.entries += 1;
        let Some(record) = record else { continue };
        own.next_cookie = own.next_cookie.max(record.cookie.saturating_add(1));
        nlink = nlink.saturating_add(u32::from(record.kind == Kind::Directory));
    }
    let mut cookies = work.cursor(KeyRange::cookies_after(inode, 0));
    while let Some((key, _)) = cookies.record::<CookieRecord>(&mut Nobody).await? {
        if let Key::Cookie(_, cookie) = key {
            own.next_cookie = own.next_cookie.max(cookie.saturating_add(1));
        }
    }
    Ok((own, nlink))
}

/// Makes an object that belongs to root and that only root may use, from the remains of another.
pub(super) fn new_record(work: &Work<'_>, content: Content, nlink: u32) -> InodeRecord {
    InodeRecord {
        mode: match content.kind() {
            Kind::Directory => 0o700,
            _ => 0o600,
        },
        content,
        uid: 0,
        gid: 0,
        nlink,
        size: 0,
        used: 0,
        atime: work.now,
        mtime: work.now,
        ctime: work.now,
        create_verifier: None,
        tree: None,
        truncated: Default::default(),
    }
}

/// Attributes that cannot be read: the names show the object's kind.
async fn object(work: &mut Work<'_>, finding: &Finding, inode: Inode) -> Result<(), StoreError> {
    let key = Key::Inode(inode);
    let names = work.names_of(inode).await?;
    let (size, used) = extent_of(work, inode).await?;
    let (own, nlink) = directory_of(work, inode, Inode::ROOT).await?;
    let kind = match names.first() {
        _ if inode == Inode::ROOT || own.entries > 0 => Some(Kind::Directory),
        _ if used > 0 => Some(Kind::Regular),
        Some((_, _, kind)) => Some(*kind),
        None => None,
    };
    let links = u32::try_from(names.len()).unwrap_or(u32::MAX).max(1);
    let content = match kind {
        Some(Kind::Directory) => {
            let parent = names.first().map_or(Inode::ROOT, |(holder, _, _)| *holder);
            Content::Directory(Directory { parent, ..own })
        }
        Some(Kind::Regular) => Content::Regular,
        Some(Kind::Fifo) => Content::Fifo,
        Some(Kind::Socket) => Content::Socket,
        Some(Kind::Symlink | Kind::BlockDevice | Kind::CharDevice) if !work.accept_loss => {
            return Ok(());
        }
        lost => {
            work.delete(&key);
            for (holder, name, _) in &names {
                work.remove_name(*holder, name).await?;
            }
            let what = match &lost {
                Some(kind) => format!(
                    "inode {inode} is lost: it was a {}, and its target or device number is stored nowhere else",
                    of_kind(kind)
                ),
                None => format!("removed inode {inode}, which has no data and no name"),
            };
            work.did(finding, what);
            return Ok(());
        }
    };
    let nlink = match content {
        Content::Directory(_) => nlink,
        _ => links,
    };
    let mut record = new_record(work, content, nlink);
    if record.kind() == Kind::Regular {
        (record.size, record.used) = (size, used);
    }
    if let Some((holder, _, _)) = names.first() {
        record.tree = work.inode(*holder).await?.and_then(|holder| holder.tree);
    }
    if work.has(&Key::Quota(inode)).await? && record.kind() == Kind::Directory {
        record.tree = Some(inode);
    }
    let of_size = match record.kind() {
        Kind::Regular => format!(", with {} bytes according to its block maps", record.size),
        _ => String::new(),
    };
    let what = format!(
        "created inode {inode} again as a {}, owned by root with mode {:o}{of_size}; its owner, mode and times are lost",
        of_kind(&record.kind()),
        record.mode,
    );
    work.put(&key, &record);
    work.did(finding, what);
    Ok(())
}

/// A name that cannot be read: its cookie has the same content.
async fn name(
    work: &mut Work<'_>,
    finding: &Finding,
    directory: Inode,
    name: Name,
) -> Result<(), StoreError> {
    let mut cookies = work.cursor(KeyRange::cookies_after(directory, 0));
    while let Some((key, record)) = cookies.record::<CookieRecord>(&mut Nobody).await? {
        let (Key::Cookie(_, cookie), Some(record)) = (key, record) else {
            continue;
        };
        if record.name == name.0 {
            work.put_name(directory, &name.0, (record.inode, record.kind, cookie));
            let what = format!(
                "name {name} in directory {directory} refers to inode {} again, as its cookie says",
                record.inode
            );
            work.did(finding, what);
            return Ok(());
        }
    }
    work.delete(&Key::Name(directory, name.0.clone()));
    work.edit_directory(directory, |own| own.entries = own.entries.saturating_sub(1))
        .await?;
    let what = format!(
        "removed name {name} in directory {directory}: its inode number is stored nowhere else"
    );
    work.did(finding, what);
    Ok(())
}

/// A cookie that cannot be read: its name has the same content.
async fn cookie(
    work: &mut Work<'_>,
    finding: &Finding,
    directory: Inode,
    cookie: u64,
) -> Result<(), StoreError> {
    let mut names = work.cursor(KeyRange::names(directory));
    while let Some((key, record)) = names.record::<NameRecord>(&mut Nobody).await? {
        if let (Key::Name(_, name), Some(record)) = (key, record)
            && record.cookie == cookie
        {
            work.put_name(directory, &name, (record.inode, record.kind, cookie));
            let name = Name(name);
            work.did(
                finding,
                format!("cookie {cookie} in directory {directory} belongs to name {name} again"),
            );
            return Ok(());
        }
    }
    work.delete(&Key::Cookie(directory, cookie));
    work.did(
        finding,
        format!("removed cookie {cookie} in directory {directory}, which belongs to no name"),
    );
    Ok(())
}

/// Whether a later program wrote this state of the volume, so that it must not be changed.
pub(super) fn is_later_state(value: &[u8]) -> bool {
    let known = VolumeState::decode(&Key::Volume.encode(), value);
    let version = value
        .first()
        .is_some_and(|version| *version <= LATER_VERSIONS);
    version && known.is_err_and(|corrupt| corrupt.why == OF_OTHER_VERSION)
}

/// Epochs that are skipped when the newest one is not known: openings may have taken some and left no pack, and a
/// gateway refuses a bucket of an epoch below one that it has seen. Of the 2^24 that there are, these are few.
const LOST_EPOCHS: u64 = 4096;

/// Inode numbers that the next opening skips, as it does where no lease of numbers is known: the log may have assigned
/// them. A state has a history only beside a lease.
pub(super) const LOST_INODES: u64 = 1 << 40;

/// The state of the volume is missing or cannot be read.
pub(super) async fn state(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
) -> Result<(), Ended> {
    let value = work.source.get(&Key::Volume.encode()).await?;
    if value.is_some_and(|value| is_later_state(&value)) {
        return Ok(());
    }
    let mut highest = Inode::ROOT;
    for range in [
        KeyRange::inodes(),
        KeyRange::garbage(),
        KeyRange::blocks_from(Inode(0)),
        KeyRange::all_names(),
    ] {
        let mut entries = work.cursor(range);
        while let Some((key, _)) = entries.next().await? {
            let inode = match Key::decode(&key) {
                Ok(Key::Inode(inode) | Key::Garbage(inode) | Key::Name(inode, _)) => inode,
                Ok(Key::Block(block)) => block.inode,
                _ => continue,
            };
            highest = highest.max(inode);
        }
    }
    let packs = bucket.packs().await.map_err(Ended::Bucket)?;
    let mut pack = packs.last().map_or(PackId(0), |(pack, _)| *pack);
    for range in [
        KeyRange::packs(),
        KeyRange::dead_packs(),
        KeyRange::held_packs(),
    ] {
        let mut entries = work.cursor(range);
        while let Some((key, _)) = entries.next().await? {
            if let Ok(Key::Pack(other) | Key::DeadPack(other) | Key::HeldPack(other)) =
                Key::decode(&key)
            {
                pack = pack.max(other);
            }
        }
    }
    let state = VolumeState {
        published: Lsn::ZERO,
        // No gateway has this epoch yet, and no log continues it.
        epoch: Epoch((pack.0 >> COUNTER_BITS) + LOST_EPOCHS),
        gateway: [0; 16],
        next_inode: highest.0.saturating_add(1),
        inode_lease: Some(LOST_INODES),
        next_pack: 1,
        used_bytes: 0,
        used_inodes: 0,
        charged_bytes: Some(0),
        history: snapshots::history(work).await?,
        trash: Default::default(),
    };
    work.put(&Key::Volume, &state);
    work.did(finding, format!(
        "created the volume's state again, of epoch {}; its counts are counted again, and the next start of each gateway archives its log",
        state.epoch.0
    ));
    Ok(())
}
