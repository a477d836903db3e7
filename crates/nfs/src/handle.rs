//! File handles: how clients name inodes.
//!
//! ```text
//!  0        1          4           8             16      24      32
//! +--------+----------+-----------+-------------+-------+-------+
//! | format | zero     | export id | volume tag  | inode | MAC   |
//! | (= 1)  | 3 bytes  | u32       | 8 bytes     | u64   |       |
//! +--------+----------+-----------+-------------+-------+-------+
//! ```
//!
//! Numbers are big-endian. The volume tag is the first half of the volume's identity. The MAC is the
//! first 8 bytes of BLAKE3, keyed with the configured key, over everything before it: a
//! client cannot forge a handle for a directory outside its export, or try inodes one by one.
//! A handle contains no time and no server state, so it survives restarts. The inode number also serves as the
//! generation: a volume never reuses one, so a handle of a removed object stays stale.

use forebay_types::{Inode, VolumeId};

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = MAC_AT + MAC_BYTES;

const FORMAT: u8 = 1;
const EXPORT_AT: usize = 4;
const VOLUME_AT: usize = EXPORT_AT + 4;
const VOLUME_BYTES: usize = 8;
const INODE_AT: usize = VOLUME_AT + VOLUME_BYTES;
const MAC_AT: usize = INODE_AT + 8;
const MAC_BYTES: usize = 8;

// RFC 1813 allows 64 (NFS3_FHSIZE).
const _: () = assert!(HANDLE_BYTES <= 64 && HANDLE_BYTES.is_multiple_of(4));

/// The object that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The export under which it was given out.
    pub export: u32,
    /// The object.
    pub inode: Inode,
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

    /// The volume as a number, for `fsid`.
    pub fn volume_number(&self) -> u64 {
        u64::from_be_bytes(self.volume)
    }

    /// Encodes the handle of an object.
    pub fn encode(&self, named: Named) -> [u8; HANDLE_BYTES] {
        let mut handle = [0; HANDLE_BYTES];
        handle[0] = FORMAT;
        handle[EXPORT_AT..VOLUME_AT].copy_from_slice(&named.export.to_be_bytes());
        handle[VOLUME_AT..INODE_AT].copy_from_slice(&self.volume);
        handle[INODE_AT..MAC_AT].copy_from_slice(&named.inode.0.to_be_bytes());
        let mac = self.mac(&handle[..MAC_AT]);
        handle[MAC_AT..].copy_from_slice(&mac);
        handle
    }

    /// Verifies a handle that a client sent, and returns the object that it names.
    pub fn decode(&self, handle: &[u8]) -> Result<Named, BadHandle> {
        let handle: &[u8; HANDLE_BYTES] = handle.try_into().map_err(|_| BadHandle::Malformed)?;
        let (signed, mac) = handle.split_at(MAC_AT);
        // All bytes are compared, so that the time taken does not reveal how many were right.
        let pairs = self.mac(signed).into_iter().zip(mac);
        let wrong = pairs.fold(0, |wrong, (right, given)| wrong | (right ^ given));
        if handle[0] != FORMAT {
            return Err(BadHandle::Malformed);
        }
        if wrong != 0 || handle[VOLUME_AT..INODE_AT] != self.volume {
            return Err(BadHandle::Forged);
        }
        let mut export = [0; 4];
        export.copy_from_slice(&handle[EXPORT_AT..VOLUME_AT]);
        let mut inode = [0; 8];
        inode.copy_from_slice(&handle[INODE_AT..MAC_AT]);
        Ok(Named {
            export: u32::from_be_bytes(export),
            inode: Inode(u64::from_be_bytes(inode)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMED: Named = Named {
        export: 7,
        inode: Inode(0x0102),
    };

    fn handles() -> Handles {
        Handles::new([5; 32], VolumeId([9; 16]))
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
    fn a_handle_survives_a_restart() {
        let handle = handles().encode(NAMED);
        assert_eq!(handles().decode(&handle), Ok(NAMED));
    }

    #[test]
    fn any_change_is_noticed() {
        let handle = handles().encode(NAMED);
        for bit in 0..HANDLE_BYTES * 8 {
            let mut changed = handle;
            changed[bit / 8] ^= 1 << (bit % 8);
            let seen = if bit < 8 {
                BadHandle::Malformed
            } else {
                BadHandle::Forged
            };
            assert_eq!(handles().decode(&changed), Err(seen));
        }
        assert_eq!(handles().decode(&handle[..31]), Err(BadHandle::Malformed));
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
