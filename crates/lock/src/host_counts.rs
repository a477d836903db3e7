//! Counts the entries of each host, to bound them, and to find them when the host has rebooted.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_types::{Inode, balance, to_usize};
use parking_lot::Mutex;

/// Independent parts, each with its own lock.
const SHARDS: usize = 16;

/// All entries of one host: held, granted and waiting locks, and reservations.
#[derive(Default)]
struct HostCount {
    entries: usize,
    files: HashMap<Inode, usize>,
}

#[derive(Default)]
pub(crate) struct HostCounts {
    shards: [Mutex<HashMap<IpAddr, HostCount>>; SHARDS],
    total: AtomicUsize,
    hasher: RandomState,
}

/// Limits on the number of entries.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) host: usize,
    pub(crate) total: usize,
}

impl HostCounts {
    fn shard(&self, host: IpAddr) -> &Mutex<HashMap<IpAddr, HostCount>> {
        // The index is taken modulo the length.
        &self.shards[to_usize(self.hasher.hash_one(host)) % SHARDS]
    }

    /// Whether a host may have `growth` more entries. Entries that hosts in other shards add at the same time are
    /// not seen, so the total may exceed its bound by a few.
    pub(crate) fn has_room(&self, host: IpAddr, growth: usize, bounds: Bounds) -> bool {
        self.total() + growth <= bounds.total && self.entries(host) + growth <= bounds.host
    }

    /// Changes the number of entries that a host has in a file from `before` to `after`.
    pub(crate) fn change(&self, host: IpAddr, file: Inode, before: usize, after: usize) {
        if before == after {
            return;
        }
        let moved = |count: usize| balance::taken_count("locks of a host", count + after, before);
        let mut shard = self.shard(host).lock();
        let count = shard.entry(host).or_default();
        count.entries = moved(count.entries);
        let of_file = count.files.entry(file).or_default();
        *of_file = moved(*of_file);
        if *of_file == 0 {
            count.files.remove(&file);
        }
        if count.entries == 0 {
            shard.remove(&host);
        }
        if after > before {
            self.total.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.total.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Returns the files in which a host has entries.
    pub(crate) fn files(&self, host: IpAddr) -> Vec<Inode> {
        let shard = self.shard(host).lock();
        let count = shard.get(&host);
        count.map_or_else(Vec::new, |count| count.files.keys().copied().collect())
    }

    /// Number of entries of a host.
    pub(crate) fn entries(&self, host: IpAddr) -> usize {
        let shard = self.shard(host).lock();
        shard.get(&host).map_or(0, |count| count.entries)
    }

    /// Number of entries of all hosts.
    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }
}
