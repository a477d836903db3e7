//! Ranges of keys: the entries that are read together.

use bytes::Bytes;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, SnapshotId};

use super::{Key, tag};

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
