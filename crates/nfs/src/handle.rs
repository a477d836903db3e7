//! File handles: how clients name inodes.
//!
//! ```text
//!  0        1          4           8             16      24      32
//! +--------+----------+-----------+-------------+-------+-------+
//! | format | zero     | export id | volume tag  | inode | MAC   |
//! | (= 1)  | 3 bytes  | u32       | 8 bytes     | u64   |       |
//! +--------+----------+-----------+-------------+-------+-------+
//!
//!  0        1          4           8             16      24         32      40
//! +--------+----------+-----------+-------------+-------+----------+-------+
//! | format | zero     | export id | volume tag  | inode | snapshot | MAC   |
//! | (= 2)  | 3 bytes  | u32       | 8 bytes     | u64   | u64      |       |
//! +--------+----------+-----------+-------------+-------+----------+-------+
//!
//!  0        1          4           8             16      24         32      40
//! +--------+----------+-----------+-------------+-------+----------+-------+
//! | format | zero     | export id | volume tag  | inode | user     | MAC   |
//! | (= 4)  | 3 bytes  | u32       | 8 bytes     | u64   | u64      |       |
//! +--------+----------+-----------+-------------+-------+----------+-------+
//! ```
//!
//! Numbers are big-endian. The volume tag is the first half of the volume's identity. The MAC is the
//! first 8 bytes of BLAKE3, keyed with the configured key, over everything before it: a
//! client cannot forge a handle for a directory outside its export, or try inodes one by one.
//! A handle contains no time and no server state, so it survives restarts. The inode number also serves as the
//! generation: a volume never reuses one, so a handle of a removed object stays stale.
//!
//! Format 1 names an object of the live file system, format 2 an object as a snapshot has it. Snapshot 0 is none: it names
//! the directory `.snapshot` in the directory with that inode. Numbers of snapshots are not reused either.
//!
//! Format 4 names the directory `.trash` in the directory with that inode, as one user sees it. Clients keep what they have
//! listed and looked up for all users of a machine, by handle: so each user has a handle, and with that of another one a call is
//! NFS3ERR_STALE, which makes the client look the name up again. Format 7, laid out as format 1, names a file in the trash.

use std::ops::Deref;

use forebay_types::{Inode, SnapshotId, VolumeId};

use crate::file_ids::FileIds;

/// Bytes of a handle in the live file system, and of a file in the trash.
pub const HANDLE_BYTES: usize = LIVE_SIGNED + MAC_BYTES;
/// Bytes of a handle in a snapshot, and of a directory `.snapshot` or `.trash`.
pub const SNAPSHOT_HANDLE_BYTES: usize = SNAPSHOT_SIGNED + MAC_BYTES;

const LIVE_FORMAT: u8 = 1;
const SNAPSHOT_FORMAT: u8 = 2;
const TRASH_FORMAT: u8 = 4;
const REMOVED_FORMAT: u8 = 7;
const EXPORT_AT: usize = 4;
const VOLUME_AT: usize = EXPORT_AT + 4;
const VOLUME_BYTES: usize = 8;
const INODE_AT: usize = VOLUME_AT + VOLUME_BYTES;
const LIVE_SIGNED: usize = INODE_AT + 8;
const SNAPSHOT_SIGNED: usize = LIVE_SIGNED + 8;
const MAC_BYTES: usize = 8;

/// Number of no snapshot.
const NO_SNAPSHOT: u64 = 0;

// RFC 1813 allows 64 (NFS3_FHSIZE).
const _: () = assert!(SNAPSHOT_HANDLE_BYTES <= 64);
const _: () = assert!(HANDLE_BYTES.is_multiple_of(4) && SNAPSHOT_HANDLE_BYTES.is_multiple_of(4));

/// The tree that has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The live file system.
    Live,
    /// The directories `.snapshot`: the inode is that of the directory that has it.
    List,
    /// The image of a snapshot.
    Snapshot(SnapshotId),
    /// The directories `.trash` of this user: the inode is that of the directory that has it.
    Trash(u32),
    /// The files in the trash.
    Removed,
}

/// The object that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The export under which it was given out.
    pub export: u32,
    /// The tree that has the object.
    pub tree: Tree,
    /// The object.
    pub inode: Inode,
}

/// An encoded handle.
#[derive(Clone, Copy)]
pub struct Handle {
    bytes: [u8; SNAPSHOT_HANDLE_BYTES],
    length: usize,
}

impl Deref for Handle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Why a handle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHandle {
    /// Not a handle of this format; no key is needed to see that (NFS3ERR_BADHANDLE).
    Malformed,
    /// Not made by this server, or made for another volume (NFS3ERR_STALE).
    Forged,
}

/// Makes and reads the handles of one volume.
pub struct Handles {
    key: [u8; 32],
    volume: [u8; VOLUME_BYTES],
}

impl Handles {
    /// Creates the codec for `volume`; `key` authenticates the handles.
    pub fn new(key: [u8; 32], volume: VolumeId) -> Handles {
        let [a, b, c, d, e, f, g, h, ..] = volume.0;
        Handles {
            key,
            volume: [a, b, c, d, e, f, g, h],
        }
    }

    /// How attributes of this tree's objects name them.
    #[inline]
    pub fn ids(&self, tree: Tree) -> FileIds {
        FileIds::new(u64::from_be_bytes(self.volume), tree)
    }

    /// Encodes the handle of an object.
    pub fn encode(&self, named: Named) -> Handle {
        let mut bytes = [0; SNAPSHOT_HANDLE_BYTES];
        bytes[EXPORT_AT..VOLUME_AT].copy_from_slice(&named.export.to_be_bytes());
        bytes[VOLUME_AT..INODE_AT].copy_from_slice(&self.volume);
        bytes[INODE_AT..LIVE_SIGNED].copy_from_slice(&named.inode.0.to_be_bytes());
        let (format, number) = match named.tree {
            Tree::Live => (LIVE_FORMAT, None),
            Tree::List => (SNAPSHOT_FORMAT, Some(NO_SNAPSHOT)),
            Tree::Snapshot(id) => (SNAPSHOT_FORMAT, Some(id.0)),
            Tree::Trash(uid) => (TRASH_FORMAT, Some(u64::from(uid))),
            Tree::Removed => (REMOVED_FORMAT, None),
        };
        bytes[0] = format;
        let signed = match number {
            None => LIVE_SIGNED,
            Some(number) => {
                bytes[LIVE_SIGNED..SNAPSHOT_SIGNED].copy_from_slice(&number.to_be_bytes());
                SNAPSHOT_SIGNED
            }
        };
        let length = signed + MAC_BYTES;
        let mac = self.mac(&bytes[..signed]);
        bytes[signed..length].copy_from_slice(&mac);
        Handle { bytes, length }
    }

    /// Verifies a handle that a client sent, and returns the object that it names.
    pub fn decode(&self, handle: &[u8]) -> Result<Named, BadHandle> {
        let format = *handle.first().ok_or(BadHandle::Malformed)?;
        let (signed, mac) = match (format, handle.len()) {
            (LIVE_FORMAT | REMOVED_FORMAT, HANDLE_BYTES) => handle.split_at(LIVE_SIGNED),
            (SNAPSHOT_FORMAT | TRASH_FORMAT, SNAPSHOT_HANDLE_BYTES) => {
                handle.split_at(SNAPSHOT_SIGNED)
            }
            _ => return Err(BadHandle::Malformed),
        };
        // All bytes are compared at once, so that the time taken does not reveal how many were right. This compiles only for
        // a MAC of 8 bytes: `number` takes any other for 0, and two of those would be equal.
        let right = u64::from_be_bytes(self.mac(signed));
        if right != number(mac) || signed[VOLUME_AT..INODE_AT] != self.volume {
            return Err(BadHandle::Forged);
        }
        let mut export = [0; 4];
        export.copy_from_slice(&signed[EXPORT_AT..VOLUME_AT]);
        let tree = match signed.get(LIVE_SIGNED..SNAPSHOT_SIGNED).map(number) {
            None if format == LIVE_FORMAT => Tree::Live,
            None => Tree::Removed,
            Some(uid) if format == TRASH_FORMAT => {
                Tree::Trash(u32::try_from(uid).map_err(|_| BadHandle::Forged)?)
            }
            Some(NO_SNAPSHOT) => Tree::List,
            Some(id) => Tree::Snapshot(SnapshotId(id)),
        };
        Ok(Named {
            export: u32::from_be_bytes(export),
            tree,
            inode: Inode(number(&signed[INODE_AT..LIVE_SIGNED])),
        })
    }

    fn mac(&self, signed: &[u8]) -> [u8; MAC_BYTES] {
        let hash = blake3::keyed_hash(&self.key, signed);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        mac
    }
}

impl std::fmt::Debug for Handles {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}

/// The number in these bytes; 0 if they are not 8.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMED: Named = Named {
        export: 7,
        tree: Tree::Live,
        inode: Inode(0x0102),
    };

    fn handles() -> Handles {
        Handles::new([5; 32], VolumeId([9; 16]))
    }

    fn in_tree(tree: Tree) -> Named {
        Named { tree, ..NAMED }
    }

    #[test]
    fn golden_handle() {
        let handle = handles().encode(NAMED);
        let signed = [
            1, 0, 0, 0, 0, 0, 0, 7, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 1, 2,
        ];
        assert_eq!(handle[..24], signed);
        let mac = blake3::keyed_hash(&[5; 32], &signed);
        assert_eq!(handle[24..], mac.as_bytes()[..8]);
    }

    #[test]
    fn golden_handle_of_a_snapshot() {
        let handle = handles().encode(in_tree(Tree::Snapshot(SnapshotId(0x0304))));
        let signed = [
            2, 0, 0, 0, 0, 0, 0, 7, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0,
            0, 3, 4,
        ];
        assert_eq!(handle[..32], signed);
        let mac = blake3::keyed_hash(&[5; 32], &signed);
        assert_eq!(handle[32..], mac.as_bytes()[..8]);
    }

    #[test]
    fn golden_handles_of_the_trash() {
        let handle = handles().encode(in_tree(Tree::Trash(0x0506)));
        let signed = [
            4, 0, 0, 0, 0, 0, 0, 7, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0,
            0, 5, 6,
        ];
        assert_eq!(handle[..32], signed);
        assert_eq!(handle.len(), 40);
        let handle = handles().encode(in_tree(Tree::Removed));
        let live = handles().encode(NAMED);
        assert_eq!((handle[0], &handle[1..24]), (7, &live[1..24]));
        assert_ne!(handle[24..], live[24..]);
        assert_eq!(handle.len(), 32);
    }

    #[test]
    fn a_handle_survives_a_restart() {
        let trees = [
            Tree::Live,
            Tree::List,
            Tree::Snapshot(SnapshotId(1)),
            Tree::Trash(0),
            Tree::Trash(u32::MAX),
            Tree::Removed,
        ];
        for named in trees.map(in_tree) {
            let handle = handles().encode(named);
            assert_eq!(handles().decode(&handle), Ok(named));
        }
    }

    #[test]
    fn any_change_is_noticed() {
        for tree in [
            Tree::Live,
            Tree::Snapshot(SnapshotId(1)),
            Tree::Trash(7),
            Tree::Removed,
        ] {
            let handle = handles().encode(in_tree(tree));
            for bit in 0..handle.len() * 8 {
                let mut changed = handle.to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                let seen = if bit < 8 {
                    BadHandle::Malformed
                } else {
                    BadHandle::Forged
                };
                assert_eq!(handles().decode(&changed), Err(seen));
            }
            let shorter = &handle[..handle.len() - 1];
            assert_eq!(handles().decode(shorter), Err(BadHandle::Malformed));
        }
        assert_eq!(handles().decode(b""), Err(BadHandle::Malformed));
    }

    #[test]
    fn handles_of_other_keys_and_volumes_are_refused() {
        let handle = handles().encode(NAMED);
        let other_key = Handles::new([6; 32], VolumeId([9; 16]));
        assert_eq!(other_key.decode(&handle), Err(BadHandle::Forged));
        let other_volume = Handles::new([5; 32], VolumeId([8; 16]));
        assert_eq!(other_volume.decode(&handle), Err(BadHandle::Forged));
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_handle(bytes: Vec<u8>) {
            prop_assert!(handles().decode(&bytes).is_err());
        }
    }
}
