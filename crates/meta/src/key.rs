//! Keys: the names of the entries in a volume's metadata.
//!
//! A key is one letter and then fixed-width big-endian numbers, so that keys sort in the order in which
//! entries are read: the names of a directory, its cookies, and the blocks of a file are each contiguous.
//!
//! ```text
//! 'v'                                      the volume            VolumeState
//! 'i'  inode: 8                            an object             InodeRecord
//! 'n'  directory: 8  name: 1 or more       a name                NameRecord
//! 'c'  directory: 8  cookie: 8             a name, by cookie     CookieRecord
//! 'b'  inode: 8      block index: 8        a block of a file     BlockMap
//! 'p'  pack: 8                             a pack                PackRecord
//! 'g'  inode: 8                            a file to collect     Garbage
//! 't'  inode: 8                            a truncated file      Truncated
//! 'x'  pack: 8                             a pack to delete      DeadPack
//! 'q'  inode: 8                            limits of a tree      QuotaRecord
//! 'u'  inode: 8                            usage of a tree       UsageRecord
//! 's'  pack: 8                             last check of a pack  ScrubRecord
//! 'f'  pack: 8       part: 4               frames of a pack      PackFrames
//! 'r'  pack: 8       inode: 8   block: 8   a block that shares   Referrer
//! 'k'  snapshot: 8                         a snapshot            SnapshotRecord
//! 'h'  pack: 8                             a held dead pack      HeldPack
//! 'j'  snapshot: 8   pack: 8               a pack by its holder  Holding
//! 'd'  inode: 8                            in the trash          TrashRecord
//! 'e'  seconds: 8    inode: 8              the same, by its end  TrashUntil
//! 'o'  uid: 4        inode: 8              a file there, by its owner  TrashOwner
//! ```

use bytes::Bytes;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, SnapshotId};

use crate::codec::Reader;
use crate::error::Corrupt;

/// First byte of a key: the kind of entry that it names.
pub(crate) mod tag {
    pub(crate) const VOLUME: u8 = b'v';
    pub(crate) const INODE: u8 = b'i';
    pub(crate) const NAME: u8 = b'n';
    pub(crate) const COOKIE: u8 = b'c';
    pub(crate) const BLOCK: u8 = b'b';
    pub(crate) const PACK: u8 = b'p';
    pub(crate) const GARBAGE: u8 = b'g';
    pub(crate) const TRUNCATED: u8 = b't';
    pub(crate) const DEAD_PACK: u8 = b'x';
    pub(crate) const QUOTA: u8 = b'q';
    pub(crate) const USAGE: u8 = b'u';
    pub(crate) const SCRUB: u8 = b's';
    pub(crate) const PACK_FRAMES: u8 = b'f';
    pub(crate) const REFERRER: u8 = b'r';
    pub(crate) const SNAPSHOT: u8 = b'k';
    pub(crate) const HELD_PACK: u8 = b'h';
    pub(crate) const HOLDING: u8 = b'j';
    pub(crate) const TRASH: u8 = b'd';
    pub(crate) const TRASH_UNTIL: u8 = b'e';
    pub(crate) const TRASH_OWNER: u8 = b'o';
}

/// Name of one metadata entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The volume itself.
    Volume,
    /// A file, directory or other object.
    Inode(Inode),
    /// A name in a directory; at least one byte.
    Name(Inode, Bytes),
    /// A name in a directory, by the cookie it got when it was made.
    Cookie(Inode, u64),
    /// A block of a file.
    Block(BlockKey),
    /// A pack.
    Pack(PackId),
    /// A removed file whose blocks have to be collected.
    Garbage(Inode),
    /// A file of which truncated blocks have to be collected.
    Truncated(Inode),
    /// A pack that nothing refers to any more.
    DeadPack(PackId),
    /// Limits of the tree below a directory.
    Quota(Inode),
    /// Usage of the tree below a directory.
    Usage(Inode),
    /// When a pack was last read back and verified.
    Scrub(PackId),
    /// Frames of a pack, indexed by their content; parts count from 0.
    PackFrames(PackId, u32),
    /// A block that refers to frames of a pack which were written for another block.
    Referrer(PackId, BlockKey),
    /// A snapshot.
    Snapshot(SnapshotId),
    /// A dead pack that stays because of snapshots.
    HeldPack(PackId),
    /// A held pack, by the newest snapshot that refers to it.
    Holding(SnapshotId, PackId),
    /// An object in the trash.
    Trash(Inode),
    /// An object in the trash, by the time until which it stays there, in seconds since 1970.
    TrashUntil(u64, Inode),
    /// A regular file in the trash, by the user that owns it.
    TrashOwner(u32, Inode),
}

impl Key {
    /// The encoded key.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(32);
        out.push(self.tag());
        match self {
            Key::Volume => {}
            Key::Inode(inode)
            | Key::Garbage(inode)
            | Key::Truncated(inode)
            | Key::Quota(inode)
            | Key::Usage(inode)
            | Key::Trash(inode) => {
                out.extend(inode.0.to_be_bytes());
            }
            Key::Name(directory, name) => {
                out.extend(directory.0.to_be_bytes());
                out.extend(name);
            }
            Key::Cookie(directory, cookie) => {
                out.extend(directory.0.to_be_bytes());
                out.extend(cookie.to_be_bytes());
            }
            Key::Block(key) => {
                out.extend(key.inode.0.to_be_bytes());
                out.extend(key.block.0.to_be_bytes());
            }
            Key::Pack(pack) | Key::DeadPack(pack) | Key::HeldPack(pack) | Key::Scrub(pack) => {
                out.extend(pack.0.to_be_bytes());
            }
            Key::Snapshot(snapshot) => out.extend(snapshot.0.to_be_bytes()),
            Key::Holding(snapshot, pack) => {
                out.extend(snapshot.0.to_be_bytes());
                out.extend(pack.0.to_be_bytes());
            }
            Key::TrashUntil(seconds, inode) => {
                out.extend(seconds.to_be_bytes());
                out.extend(inode.0.to_be_bytes());
            }
            Key::TrashOwner(uid, inode) => {
                out.extend(uid.to_be_bytes());
                out.extend(inode.0.to_be_bytes());
            }
            Key::PackFrames(pack, part) => {
                out.extend(pack.0.to_be_bytes());
                out.extend(part.to_be_bytes());
            }
            Key::Referrer(pack, key) => {
                out.extend(pack.0.to_be_bytes());
                out.extend(key.inode.0.to_be_bytes());
                out.extend(key.block.0.to_be_bytes());
            }
        }
        Bytes::from(out)
    }

    /// Decodes a key.
    pub fn decode(bytes: &[u8]) -> Result<Key, Corrupt> {
        let mut fields = Reader::new(bytes, bytes);
        let key = match fields.u8()? {
            tag::VOLUME => Key::Volume,
            tag::INODE => Key::Inode(Inode(fields.u64_be()?)),
            tag::NAME => {
                let directory = Inode(fields.u64_be()?);
                let name = fields.take(fields.rest().len())?;
                if name.is_empty() {
                    return Err(fields.corrupt("is an empty name"));
                }
                Key::Name(directory, Bytes::copy_from_slice(name))
            }
            tag::COOKIE => Key::Cookie(Inode(fields.u64_be()?), fields.u64_be()?),
            tag::BLOCK => Key::Block(BlockKey {
                inode: Inode(fields.u64_be()?),
                block: BlockIndex(fields.u64_be()?),
            }),
            tag::PACK => Key::Pack(PackId(fields.u64_be()?)),
            tag::GARBAGE => Key::Garbage(Inode(fields.u64_be()?)),
            tag::TRUNCATED => Key::Truncated(Inode(fields.u64_be()?)),
            tag::DEAD_PACK => Key::DeadPack(PackId(fields.u64_be()?)),
            tag::QUOTA => Key::Quota(Inode(fields.u64_be()?)),
            tag::USAGE => Key::Usage(Inode(fields.u64_be()?)),
            tag::SCRUB => Key::Scrub(PackId(fields.u64_be()?)),
            tag::PACK_FRAMES => {
                let pack = PackId(fields.u64_be()?);
                Key::PackFrames(pack, u32::from_be_bytes(fields.array()?))
            }
            tag::REFERRER => {
                let pack = PackId(fields.u64_be()?);
                let block = BlockKey {
                    inode: Inode(fields.u64_be()?),
                    block: BlockIndex(fields.u64_be()?),
                };
                Key::Referrer(pack, block)
            }
            tag::SNAPSHOT => Key::Snapshot(SnapshotId(fields.u64_be()?)),
            tag::HELD_PACK => Key::HeldPack(PackId(fields.u64_be()?)),
            tag::HOLDING => {
                let snapshot = SnapshotId(fields.u64_be()?);
                Key::Holding(snapshot, PackId(fields.u64_be()?))
            }
            tag::TRASH => Key::Trash(Inode(fields.u64_be()?)),
            tag::TRASH_UNTIL => Key::TrashUntil(fields.u64_be()?, Inode(fields.u64_be()?)),
            tag::TRASH_OWNER => {
                let uid = u32::from_be_bytes(fields.array()?);
                Key::TrashOwner(uid, Inode(fields.u64_be()?))
            }
            _ => return Err(fields.corrupt("is of a kind that this version does not know")),
        };
        fields.end()?;
        Ok(key)
    }

    pub(crate) fn tag(&self) -> u8 {
        match self {
            Key::Volume => tag::VOLUME,
            Key::Inode(_) => tag::INODE,
            Key::Name(..) => tag::NAME,
            Key::Cookie(..) => tag::COOKIE,
            Key::Block(_) => tag::BLOCK,
            Key::Pack(_) => tag::PACK,
            Key::Garbage(_) => tag::GARBAGE,
            Key::Truncated(_) => tag::TRUNCATED,
            Key::DeadPack(_) => tag::DEAD_PACK,
            Key::Quota(_) => tag::QUOTA,
            Key::Usage(_) => tag::USAGE,
            Key::Scrub(_) => tag::SCRUB,
            Key::PackFrames(..) => tag::PACK_FRAMES,
            Key::Referrer(..) => tag::REFERRER,
            Key::Snapshot(_) => tag::SNAPSHOT,
            Key::HeldPack(_) => tag::HELD_PACK,
            Key::Holding(..) => tag::HOLDING,
            Key::Trash(_) => tag::TRASH,
            Key::TrashUntil(..) => tag::TRASH_UNTIL,
            Key::TrashOwner(..) => tag::TRASH_OWNER,
        }
    }
}

/// The encoded keys from `start` up to, but not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub start: Bytes,
    /// The first key behind it; empty if the range has no upper bound.
    pub end: Bytes,
}

impl KeyRange {
    /// All keys.
    pub fn all() -> KeyRange {
        KeyRange {
            start: Bytes::new(),
            end: Bytes::new(),
        }
    }

    /// Ranges of all keys that begin with a letter which no kind of [`Key`] has.
    pub fn unknown() -> Vec<KeyRange> {
        let tags = [
            tag::BLOCK,
            tag::COOKIE,
            tag::TRASH,
            tag::TRASH_UNTIL,
            tag::PACK_FRAMES,
            tag::GARBAGE,
            tag::HELD_PACK,
            tag::INODE,
            tag::HOLDING,
            tag::SNAPSHOT,
            tag::NAME,
            tag::TRASH_OWNER,
            tag::PACK,
            tag::QUOTA,
            tag::REFERRER,
            tag::SCRUB,
            tag::TRUNCATED,
            tag::USAGE,
            tag::VOLUME,
            tag::DEAD_PACK,
        ];
        let ends = tags.iter().map(|tag| vec![*tag]).chain([Vec::new()]);
        let starts = tags.iter().map(|tag| vec![tag + 1]);
        let starts = std::iter::once(Vec::new()).chain(starts);
        let between = starts.zip(ends).map(|(start, end)| KeyRange {
            start: start.into(),
            end: end.into(),
        });
        between.filter(|range| !range.is_empty()).collect()
    }

    /// All names of a directory, in the order of their bytes.
    pub fn names(directory: Inode) -> KeyRange {
        KeyRange::of_prefix(prefix(tag::NAME, directory))
    }

    /// The names of all directories, by directory.
    pub fn all_names() -> KeyRange {
        KeyRange::of_prefix(vec![tag::NAME])
    }

    /// The names of a directory behind `cookie`, in the order in which they were made.
    pub fn cookies_after(directory: Inode, cookie: u64) -> KeyRange {
        KeyRange::of_prefix(prefix(tag::COOKIE, directory))
            .after(&Key::Cookie(directory, cookie).encode())
    }

    /// The same, up to and including the cookie `last`.
    pub fn cookies_between(directory: Inode, cookie: u64, last: u64) -> KeyRange {
        KeyRange::cookies_after(directory, cookie).up_to(&Key::Cookie(directory, last).encode())
    }

    /// All blocks of a file from block `from` on.
    pub fn blocks(inode: Inode, from: BlockIndex) -> KeyRange {
        let from = Key::Block(BlockKey { inode, block: from });
        KeyRange {
            start: from.encode(),
            ..KeyRange::of_prefix(prefix(tag::BLOCK, inode))
        }
    }

    /// The blocks of a file from the first of `blocks` to the last.
    pub fn blocks_in(inode: Inode, blocks: &std::ops::Range<BlockIndex>) -> KeyRange {
        let behind = Key::Block(BlockKey {
            inode,
            block: blocks.end,
        });
        let from = KeyRange::blocks(inode, blocks.start);
        KeyRange {
            end: behind.encode().min(from.end.clone()),
            ..from
        }
    }

    /// The blocks of files from `first` to `last`, both included.
    pub fn blocks_between(first: Inode, last: Inode) -> KeyRange {
        KeyRange {
            end: KeyRange::of_prefix(prefix(tag::BLOCK, last)).end,
            ..KeyRange::of_prefix(prefix(tag::BLOCK, first))
        }
    }

    /// Objects from `from` on.
    pub fn inodes_from(from: Inode) -> KeyRange {
        KeyRange::of_tag_from(tag::INODE, from.0)
    }

    /// Files to collect from `from` on.
    pub fn garbage_from(from: Inode) -> KeyRange {
        KeyRange::of_tag_from(tag::GARBAGE, from.0)
    }

    /// The cookies of directories from `from` on.
    pub fn cookies_from(from: Inode) -> KeyRange {
        KeyRange::of_tag_from(tag::COOKIE, from.0)
    }

    /// The blocks of files from `from` on.
    pub fn blocks_from(from: Inode) -> KeyRange {
        KeyRange::of_tag_from(tag::BLOCK, from.0)
    }

    /// Packs from `from` on.
    pub fn packs_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::PACK, from.0)
    }

    /// Packs to delete from `from` on.
    pub fn dead_packs_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::DEAD_PACK, from.0)
    }

    /// Records of the last checks of packs from `from` on.
    pub fn scrubs_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::SCRUB, from.0)
    }

    /// Records of the frames of packs from `from` on.
    pub fn pack_frames_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::PACK_FRAMES, from.0)
    }

    /// Records of the frames of one pack.
    pub fn pack_frames(pack: PackId) -> KeyRange {
        KeyRange::of_prefix(numbered(tag::PACK_FRAMES, pack.0))
    }

    /// The blocks that share frames of packs from `from` on.
    pub fn referrers_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::REFERRER, from.0)
    }

    /// The blocks that share frames of one pack.
    pub fn referrers(pack: PackId) -> KeyRange {
        KeyRange::of_prefix(numbered(tag::REFERRER, pack.0))
    }

    /// All snapshots.
    pub fn snapshots() -> KeyRange {
        KeyRange::of_prefix(vec![tag::SNAPSHOT])
    }

    /// Snapshots from `from` on.
    pub fn snapshots_from(from: SnapshotId) -> KeyRange {
        KeyRange::of_tag_from(tag::SNAPSHOT, from.0)
    }

    /// The dead packs that snapshots hold.
    pub fn held_packs() -> KeyRange {
        KeyRange::of_prefix(vec![tag::HELD_PACK])
    }

    /// Held packs from `from` on.
    pub fn held_packs_from(from: PackId) -> KeyRange {
        KeyRange::of_tag_from(tag::HELD_PACK, from.0)
    }

    /// The held packs of which this snapshot is the holder.
    pub fn holdings(snapshot: SnapshotId) -> KeyRange {
        KeyRange::of_prefix(numbered(tag::HOLDING, snapshot.0))
    }

    /// Held packs by their holders, of snapshots from `from` on.
    pub fn holdings_from(from: SnapshotId) -> KeyRange {
        KeyRange::of_tag_from(tag::HOLDING, from.0)
    }

    /// Objects in the trash from `from` on.
    pub fn trash_from(from: Inode) -> KeyRange {
        KeyRange::of_tag_from(tag::TRASH, from.0)
    }

    /// Objects in the trash behind `after`, up to and including `last`.
    pub fn trash_between(after: Inode, last: Inode) -> KeyRange {
        KeyRange::of_prefix(vec![tag::TRASH])
            .after(&Key::Trash(after).encode())
            .up_to(&Key::Trash(last).encode())
    }

    /// The files in the trash that a user owns, behind `after`.
    pub fn trash_of(uid: u32, after: Inode) -> KeyRange {
        let mut prefix = vec![tag::TRASH_OWNER];
        prefix.extend(uid.to_be_bytes());
        KeyRange::of_prefix(prefix).after(&Key::TrashOwner(uid, after).encode())
    }

    /// The files in the trash of all users, by their owners.
    pub fn trash_owners() -> KeyRange {
        KeyRange::of_prefix(vec![tag::TRASH_OWNER])
    }

    /// The order in which the trash is emptied.
    pub fn trash_order() -> KeyRange {
        KeyRange::of_prefix(vec![tag::TRASH_UNTIL])
    }

    /// All packs.
    pub fn packs() -> KeyRange {
        KeyRange::of_prefix(vec![tag::PACK])
    }

    /// All files to collect.
    pub fn garbage() -> KeyRange {
        KeyRange::of_prefix(vec![tag::GARBAGE])
    }

    /// All files that have truncated blocks to collect.
    pub fn truncated() -> KeyRange {
        KeyRange::of_prefix(vec![tag::TRUNCATED])
    }

    /// All packs to delete.
    pub fn dead_packs() -> KeyRange {
        KeyRange::of_prefix(vec![tag::DEAD_PACK])
    }

    /// The limits of all trees.
    pub fn quotas() -> KeyRange {
        KeyRange::of_prefix(vec![tag::QUOTA])
    }

    /// The usage of all trees.
    pub fn usages() -> KeyRange {
        KeyRange::of_prefix(vec![tag::USAGE])
    }

    /// All objects.
    pub fn inodes() -> KeyRange {
        KeyRange::of_prefix(vec![tag::INODE])
    }

    /// The objects from `first` to `last`, both included.
    pub fn inodes_between(first: Inode, last: Inode) -> KeyRange {
        KeyRange {
            start: Key::Inode(first).encode(),
            ..KeyRange::inodes()
        }
        .up_to(&Key::Inode(last).encode())
    }

    /// The part of this range behind `key`: where a scan continues after the last key it returned.
    pub fn after(&self, key: &[u8]) -> KeyRange {
        let mut start = Vec::with_capacity(key.len() + 1);
        start.extend(key);
        start.push(0);
        KeyRange {
            start: Bytes::from(start).max(self.start.clone()),
            end: self.end.clone(),
        }
    }

    /// The part of this range up to and including `key`.
    pub fn up_to(&self, key: &[u8]) -> KeyRange {
        let end = KeyRange::all().after(key).start;
        KeyRange {
            start: self.start.clone(),
            end: if self.end.is_empty() {
                end
            } else {
                end.min(self.end.clone())
            },
        }
    }

    /// Whether no key can lie in it.
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.start >= self.end
    }

    /// Whether `key` lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && (self.end.is_empty() || key < self.end.as_ref())
    }

    /// The range as bounds for ordered maps. Meaningless (and for `BTreeMap` a panic) if the range
    /// [is empty](KeyRange::is_empty): check that first.
    pub(crate) fn bounds(&self) -> (std::ops::Bound<Bytes>, std::ops::Bound<Bytes>) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let end = if self.end.is_empty() {
            Unbounded
        } else {
            Excluded(self.end.clone())
        };
        (Included(self.start.clone()), end)
    }

    /// Every key of a kind whose number is `from` or more; from 0 also damaged keys without a number.
    fn of_tag_from(tag: u8, from: u64) -> KeyRange {
        let mut start = vec![tag];
        if from > 0 {
            start.extend(from.to_be_bytes());
        }
        KeyRange {
            start: Bytes::from(start),
            ..KeyRange::of_prefix(vec![tag])
        }
    }

    /// Every key that begins with `prefix`.
    pub(crate) fn of_prefix(prefix: Vec<u8>) -> KeyRange {
        let mut end = prefix.clone();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        KeyRange {
            start: Bytes::from(prefix),
            end: Bytes::from(end),
        }
    }
}

fn prefix(tag: u8, inode: Inode) -> Vec<u8> {
    numbered(tag, inode.0)
}

fn numbered(tag: u8, number: u64) -> Vec<u8> {
    let mut prefix = vec![tag];
    prefix.extend(number.to_be_bytes());
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_key() -> impl Strategy<Value = Key> {
        prop_oneof![
            Just(Key::Volume),
            any::<u64>().prop_map(|n| Key::Inode(Inode(n))),
            (any::<u64>(), proptest::collection::vec(any::<u8>(), 1..40))
                .prop_map(|(n, name)| Key::Name(Inode(n), name.into())),
            any::<(u64, u64)>().prop_map(|(n, cookie)| Key::Cookie(Inode(n), cookie)),
            any::<(u64, u64)>().prop_map(|(n, block)| Key::Block(BlockKey {
                inode: Inode(n),
                block: BlockIndex(block)
            })),
            any::<u64>().prop_map(|n| Key::Pack(PackId(n))),
            any::<u64>().prop_map(|n| Key::Garbage(Inode(n))),
            any::<u64>().prop_map(|n| Key::Truncated(Inode(n))),
            any::<u64>().prop_map(|n| Key::DeadPack(PackId(n))),
            any::<u64>().prop_map(|n| Key::Quota(Inode(n))),
            any::<u64>().prop_map(|n| Key::Usage(Inode(n))),
            any::<u64>().prop_map(|n| Key::Scrub(PackId(n))),
            any::<(u64, u32)>().prop_map(|(n, part)| Key::PackFrames(PackId(n), part)),
            any::<(u64, u64, u64)>().prop_map(|(n, inode, block)| Key::Referrer(
                PackId(n),
                BlockKey {
                    inode: Inode(inode),
                    block: BlockIndex(block)
                }
            )),
            any::<u64>().prop_map(|n| Key::Snapshot(SnapshotId(n))),
            any::<u64>().prop_map(|n| Key::HeldPack(PackId(n))),
            any::<(u64, u64)>().prop_map(|(n, pack)| Key::Holding(SnapshotId(n), PackId(pack))),
            any::<u64>().prop_map(|n| Key::Trash(Inode(n))),
            any::<(u64, u64)>().prop_map(|(n, inode)| Key::TrashUntil(n, Inode(inode))),
            any::<(u32, u64)>().prop_map(|(uid, inode)| Key::TrashOwner(uid, Inode(inode))),
        ]
    }

    proptest! {
        #[test]
        fn every_key_comes_back(key in any_key()) {
            prop_assert_eq!(Key::decode(&key.encode()), Ok(key));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(key) = Key::decode(&bytes) {
                prop_assert_eq!(key.encode(), bytes);
            }
        }

        #[test]
        fn ranges_hold_their_own_and_nothing_else(dir in any::<u64>(), after in any::<u64>(), key in any_key()) {
            let bytes = key.encode();
            let directory = Inode(dir);
            let names = matches!(&key, Key::Name(d, _) if *d == directory);
            prop_assert_eq!(KeyRange::names(directory).contains(&bytes), names);
            let cookies = matches!(&key, Key::Cookie(d, c) if *d == directory && *c > after);
            prop_assert_eq!(KeyRange::cookies_after(directory, after).contains(&bytes), cookies);
            let until = after.saturating_add(3);
            let few = matches!(&key, Key::Cookie(d, c) if *d == directory && *c > after && *c <= until);
            prop_assert_eq!(KeyRange::cookies_between(directory, after, until).contains(&bytes), few);
            let blocks = matches!(&key, Key::Block(k) if k.inode == directory && k.block.0 >= after);
            prop_assert_eq!(KeyRange::blocks(directory, BlockIndex(after)).contains(&bytes), blocks);
            let frames = matches!(&key, Key::PackFrames(pack, _) if pack.0 == dir);
            prop_assert_eq!(KeyRange::pack_frames(PackId(dir)).contains(&bytes), frames);
            let referrers = matches!(&key, Key::Referrer(pack, _) if pack.0 == dir);
            prop_assert_eq!(KeyRange::referrers(PackId(dir)).contains(&bytes), referrers);
            let snapshots = matches!(&key, Key::Snapshot(_));
            prop_assert_eq!(KeyRange::snapshots().contains(&bytes), snapshots);
            let snapshots = matches!(&key, Key::Snapshot(id) if id.0 >= after);
            prop_assert_eq!(KeyRange::snapshots_from(SnapshotId(after)).contains(&bytes), snapshots);
            let held = matches!(&key, Key::HeldPack(_));
            prop_assert_eq!(KeyRange::held_packs().contains(&bytes), held);
            let held = matches!(&key, Key::HeldPack(pack) if pack.0 >= after);
            prop_assert_eq!(KeyRange::held_packs_from(PackId(after)).contains(&bytes), held);
            let holdings = matches!(&key, Key::Holding(id, _) if id.0 == dir);
            prop_assert_eq!(KeyRange::holdings(SnapshotId(dir)).contains(&bytes), holdings);
            let holdings = matches!(&key, Key::Holding(id, _) if id.0 >= after);
            prop_assert_eq!(KeyRange::holdings_from(SnapshotId(after)).contains(&bytes), holdings);
            let trash = matches!(&key, Key::Trash(inode) if inode.0 >= after);
            prop_assert_eq!(KeyRange::trash_from(Inode(after)).contains(&bytes), trash);
            let few = matches!(&key, Key::Trash(inode) if inode.0 > after && inode.0 <= until);
            prop_assert_eq!(KeyRange::trash_between(Inode(after), Inode(until)).contains(&bytes), few);
            let uid = u32::try_from(dir >> 32).unwrap();
            let owned = matches!(&key, Key::TrashOwner(own, inode) if *own == uid && inode.0 > after);
            prop_assert_eq!(KeyRange::trash_of(uid, Inode(after)).contains(&bytes), owned);
            let owned = matches!(&key, Key::TrashOwner(..));
            prop_assert_eq!(KeyRange::trash_owners().contains(&bytes), owned);
            let order = matches!(&key, Key::TrashUntil(..));
            prop_assert_eq!(KeyRange::trash_order().contains(&bytes), order);
            prop_assert!(!KeyRange::unknown().iter().any(|range| range.contains(&bytes)));
        }

        #[test]
        fn a_key_of_no_kind_is_in_one_of_the_unknown_ranges(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let known = bytes.first().is_some_and(|first| b"vincbpgtxqusfrkhjdeo".contains(first));
            let ranges = KeyRange::unknown();
            let found = ranges.iter().filter(|range| range.contains(&bytes)).count();
            prop_assert_eq!(found, usize::from(!known));
        }
    }

    #[test]
    fn ranges_from_a_number_begin_there_and_end_with_their_kind() {
        let range = KeyRange::inodes_from(Inode(7));
        for (inode, is_in) in [(6, false), (7, true), (u64::MAX, true)] {
            assert_eq!(range.contains(&Key::Inode(Inode(inode)).encode()), is_in);
        }
        assert!(!range.contains(&Key::Garbage(Inode(9)).encode()));
        assert!(KeyRange::inodes_from(Inode(0)).contains(b"i\0"));
        assert!(!range.contains(&Key::Name(Inode(9), "n".into()).encode()));
    }

    #[test]
    fn numbers_order_as_numbers() {
        let cookie = |c| Key::Cookie(Inode(7), c).encode();
        assert!(cookie(255) < cookie(256));
        assert!(
            KeyRange::cookies_after(Inode(u64::MAX), 3)
                .contains(&Key::Cookie(Inode(u64::MAX), u64::MAX).encode())
        );
        assert!(!KeyRange::cookies_after(Inode(7), u64::MAX).contains(&cookie(u64::MAX)));
    }

    #[test]
    fn damaged_keys_are_named() {
        for bytes in [&b""[..], b"i", b"z12345678", b"n\0\0\0\0\0\0\0\x01", b"v!"] {
            assert!(Key::decode(bytes).is_err(), "{bytes:?}");
        }
        let error = Key::decode(b"i\x01\x02").unwrap_err();
        assert!(error.to_string().contains("i:0102"), "{error}");
    }
}
