//! Forebay: the numbers and names that all layers share, and the form in which bytes are passed between them.
//!
//! Every number that could be mistaken for another has a type of its own. No I/O.

#![forbid(unsafe_code)]

pub mod balance;
mod block;
mod hex;
mod lent;
mod lsn;
mod narrow;
mod range;

pub use block::{BLOCK_SIZE, BlockIndex, BlockKey};
pub use hex::{hex, unhex};
pub use lent::{Lent, Pieces};
pub use lsn::Lsn;
pub use narrow::{bounded_u32, to_usize};
pub use range::ByteRange;

use std::fmt;

/// Largest size of a file, in bytes. Block indices stay far from overflow, and offsets fit a signed 64-bit `off_t`.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// Number of a file, directory or other object of a volume. Starts at 1 (the root directory), is never zero, and is
/// never reused after its object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

impl Inode {
    /// The root directory of every volume.
    pub const ROOT: Inode = Inode(1);
}

impl fmt::Display for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a pack: an object in the bucket that holds frames. Counts up, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId(pub u64);

impl PackId {
    /// Bits of a number that count within an epoch; the others are the epoch.
    const COUNTER_BITS: u32 = 40;

    /// The first number of an epoch. The epoch is part of the number, so that a gateway that was fenced and has not noticed
    /// it can never write over a pack of its successor.
    pub fn first_of(epoch: Epoch) -> PackId {
        PackId(epoch.0 << PackId::COUNTER_BITS)
    }

    /// The epoch of the gateway that wrote the pack.
    pub fn epoch(self) -> Epoch {
        Epoch(self.0 >> PackId::COUNTER_BITS)
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of a checkpoint within one run of a gateway: the stretch of the log that it covers ends
/// where the next one begins. Counts up from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub u64);

impl CheckpointId {
    /// The checkpoint that follows this one.
    pub fn next(self) -> CheckpointId {
        CheckpointId(self.0 + 1)
    }
}

/// Number of a commit to a volume's metadata. Counts up from 1 with the first snapshot; 0 before that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitNumber(pub u64);

impl CommitNumber {
    /// The commit that follows this one.
    pub fn next(self) -> CommitNumber {
        CommitNumber(self.0 + 1)
    }
}

/// Number of a snapshot. Counts up from 1 in the life of a volume; none is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

impl SnapshotId {
    /// The first snapshot of a volume.
    pub const FIRST: SnapshotId = SnapshotId(1);

    /// The number after this one.
    pub fn next(self) -> SnapshotId {
        SnapshotId(self.0 + 1)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number that a gateway takes when it opens a volume for writing. A gateway with an older one can no longer
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Identity of a volume, drawn at random when it is formatted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub [u8; 16]);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeId({self})")
    }
}

impl std::str::FromStr for VolumeId {
    type Err = ();

    /// Reads the 32 hexadecimal digits that `Display` writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != 32 || !text.is_ascii() {
            return Err(());
        }
        let mut bytes = [0; 16];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| ())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ())?;
        }
        Ok(VolumeId(bytes))
    }
}
