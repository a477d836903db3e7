//! The hash of an inode, for the table that every call looks into.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Multiplies an inode by a random odd number. That takes a few instructions; the hash of the standard library takes more than
/// a hundred. Clients do not know the number, so they cannot choose inodes whose hashes collide.
#[derive(Clone, Copy)]
pub(super) struct InodeHash {
    multiplier: u64,
}

impl Default for InodeHash {
    fn default() -> Self {
        InodeHash {
            multiplier: RandomState::new().hash_one(0) | 1,
        }
    }
}

impl BuildHasher for InodeHash {
    type Hasher = InodeHasher;

    #[inline]
    fn build_hasher(&self) -> InodeHasher {
        InodeHasher {
            multiplier: self.multiplier,
            product: 0,
        }
    }
}

/// See [`InodeHash`].
pub(super) struct InodeHasher {
    multiplier: u64,
    product: u64,
}

impl Hasher for InodeHasher {
    #[inline]
    fn write_u64(&mut self, inode: u64) {
        self.product = (self.product ^ inode).wrapping_mul(self.multiplier);
    }

    /// An inode is hashed as one number; this is for completeness.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    /// The lower half of the product depends on the lower half of the inode alone, and its lowest bits are the same for all
    /// inodes of a shard. So it gets the upper half.
    #[inline]
    fn finish(&self) -> u64 {
        self.product ^ (self.product >> 32)
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::Inode;

    use super::*;

    /// Some numbers that look random (SplitMix64).
    fn multipliers() -> impl Iterator<Item = u64> {
        (1..=300_u64).map(|n| {
            let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) | 1
        })
    }

    /// A multiplier near a simple fraction of 2^64 spreads less evenly; that makes the table slower and not wrong.
    #[test]
    fn inodes_of_a_shard_spread_over_all_places() {
        // A hash table takes the place from the lowest bits, and compares the highest ones.
        let places: [fn(u64) -> u64; 2] = [|hash| hash % 64, |hash| hash >> 58];
        for place in places {
            let mut even = 0;
            for multiplier in multipliers() {
                let hash = InodeHash { multiplier };
                let mut found = [0; 64];
                for inode in (0..4096).map(|count| Inode(7 + 64 * count)) {
                    found[usize::try_from(place(hash.hash_one(inode))).unwrap()] += 1;
                }
                assert!(found.iter().all(|count| *count <= 512), "{found:?}");
                even += u32::from(found.iter().all(|count| *count >= 16));
            }
            assert!(even >= 285, "{even}");
        }
    }
}
