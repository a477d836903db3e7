//! How much the volume holds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of bytes and objects.
pub(crate) struct Totals {
    /// Bytes that published block maps refer to.
    bytes: AtomicU64,
    /// Objects, also those that are not published yet.
    inodes: AtomicU64,
}

impl Totals {
    pub(crate) fn new(bytes: u64, inodes: u64) -> Totals {
        Totals {
            bytes: AtomicU64::new(bytes),
            inodes: AtomicU64::new(inodes),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn inodes(&self) -> u64 {
        self.inodes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn inode_made(&self) {
        self.inodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn inode_gone(&self) {
        // Saturating: a count that is wrong in a bucket must not wrap round.
        let _ = self
            .inodes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |inodes| {
                Some(inodes.saturating_sub(1))
            });
    }
}
