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

mod range;

use bytes::Bytes;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, SnapshotId};

use crate::codec::Reader;
use crate::error::Corrupt;

pub use range::KeyRange;

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

#[cfg(test)]
mod tests;
