//! The bytes that files may use, and those that they do.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

pub(super) struct Space {
    total: u64,
    free: AtomicU64,
}

impl Space {
    pub(super) fn new(total: u64) -> Space {
        Space {
            total,
            free: AtomicU64::new(total),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, or none of them if fewer are free.
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        let taken = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(bytes)
            });
        taken.map(drop).map_err(|_| Error::NoSpace)
    }

    /// Returns bytes that were taken.
    pub(super) fn give(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}
