//! Directory listings, kept in memory as the store returned them.
//!
//! For each directory one contiguous range of listed entries is kept, in the order of their cookies; it starts at the
//! first entry in all but rare cases. A commit applies its changes to the kept listings, so that a listing survives
//! changes and merges of tables; it is never older than the store.
//!
//! ```text
//!   from                                  to
//!    |  entry  entry  entry  entry  ...    |      all entries between the two keys
//! ```
//!
//! The kept listings are bounded in bytes, for each directory and for all of them, in two generations: a directory
//! that is not listed during a whole generation is dropped with the older one.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use bytes::Bytes;

use crate::batch::Entry;
use crate::key::{KeyRange, tag};

/// Memory for listings, at most.
const MAX_BYTES: usize = 8 << 20;
/// Of one directory.
const MAX_DIRECTORY_BYTES: usize = 1 << 20;
/// The memory of an entry beside its key and record: its share of a tree node, and two allocations.
const ENTRY_OVERHEAD: usize = 128;
/// The memory of a directory beside its entries.
const DIRECTORY_OVERHEAD: usize = 256;
/// Bytes of a key's prefix, which marks it as a cookie of a directory.
const PREFIX: usize = 1 + 8;

/// The directory that the entry with this key belongs to: the start of the key.
fn directory(key: &[u8]) -> Option<[u8; PREFIX]> {
    let prefix = *key.first_chunk::<PREFIX>()?;
    (prefix[0] == tag::COOKIE).then_some(prefix)
}

/// The directory that contains all entries of the range.
fn directory_of_range(range: &KeyRange) -> Option<[u8; PREFIX]> {
    let prefix = directory(&range.start)?;
    let all = KeyRange::of_prefix(prefix.to_vec());
    let is_within = !range.end.is_empty() && (all.end.is_empty() || range.end <= all.end);
    is_within.then_some(prefix)
}

/// The kept entries of one directory.
#[derive(Debug, Default)]
struct Stretch {
    from: Bytes,
    to: Bytes,
    entries: BTreeMap<Bytes, Bytes>,
    bytes: usize,
}

impl Stretch {
    fn covers(&self, key: &[u8]) -> bool {
        *self.from <= *key && *key < *self.to
    }

    /// The result of a scan, if all entries that it needs are kept.
    fn scan(&self, range: &KeyRange, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        // At the end itself there are no entries.
        if range.start < self.from || range.start > self.to {
            return None;
        }
        let end = (&range.end).min(&self.to);
        let mut found = Vec::new();
        if range.start < *end {
            let entries = self.entries.range(range.start.clone()..end.clone());
            found.extend(
                entries
                    .take(limit)
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        (found.len() == limit || range.end <= self.to).then_some(found)
    }

    fn change(&mut self, key: &[u8], entry: &Entry) {
        if let Some((key, value)) = self.entries.remove_entry(key) {
            self.bytes -= cost(&key, &value);
        }
        if let Entry::Value(value) = entry {
            self.insert(key, value);
        }
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) {
        // Copied: they may be parts of blocks of tables.
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        self.bytes += cost(&key, &value);
        if let Some(former) = self.entries.insert(key.clone(), value) {
            self.bytes -= cost(&key, &former);
        }
    }
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_OVERHEAD
}

type Generation = HashMap<[u8; PREFIX], Stretch>;

/// The directories that were listed.
#[derive(Debug, Default)]
pub(super) struct Listings {
    young: Generation,
    old: Generation,
    /// Of the young generation, and of the old one.
    bytes: (usize, usize),
}

impl Listings {
    /// The result of a scan of a directory's entries, if all entries that it needs are kept.
    pub(super) fn scan(&mut self, range: &KeyRange, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        let directory = directory_of_range(range)?;
        let found = match self.young.get(&directory) {
            Some(stretch) => stretch.scan(range, limit),
            None => self.old.get(&directory)?.scan(range, limit),
        };
        if found.is_some()
            && let Some(stretch) = self.take(&directory, true)
        {
            self.put(directory, stretch);
        }
        found
    }

    /// Whether the result of a scan of this range can be kept.
    pub(super) fn is_listing(range: &KeyRange) -> bool {
        directory_of_range(range).is_some()
    }

    /// Keeps the result of a scan of the store.
    pub(super) fn keep(&mut self, range: &KeyRange, limit: usize, found: &[(Bytes, Bytes)]) {
        let Some(directory) = directory_of_range(range) else {
            return;
        };
        let to = match found.last() {
            Some((last, _)) if found.len() >= limit => range.after(last).start,
            _ => range.end.clone(),
        };
        let more: usize = found.iter().map(|(key, value)| cost(key, value)).sum();
        let mut stretch = match self.take(&directory, false) {
            Some(own) if own.from <= range.start && range.start <= own.to => own,
            Some(own) if own.from <= range.start => {
                // Behind a gap: the first entries stay, because clients ask for them first.
                self.put(directory, own);
                return;
            }
            _ => Stretch {
                from: range.start.clone(),
                to: range.start.clone(),
                bytes: DIRECTORY_OVERHEAD,
                ..Stretch::default()
            },
        };
        if stretch.bytes + more <= MAX_DIRECTORY_BYTES {
            for (key, value) in found {
                stretch.insert(key, value);
            }
            stretch.to = stretch.to.max(to);
        }
        self.put(directory, stretch);
    }

    /// Applies a change that a commit has made and that is the store's latest state.
    pub(super) fn change(&mut self, key: &[u8], entry: &Entry) {
        let Some(directory) = directory(key) else {
            return;
        };
        let Some(mut stretch) = self.take(&directory, false) else {
            return;
        };
        if stretch.covers(key) {
            stretch.change(key, entry);
        }
        if stretch.bytes <= MAX_DIRECTORY_BYTES {
            self.put(directory, stretch);
        }
    }

    /// Drops an entry that a commit may have changed, or may still change.
    pub(super) fn forget(&mut self, key: &[u8]) {
        if let Some(directory) = directory(key) {
            self.take(&directory, false);
        }
    }

    /// Memory of all listings, in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes.0 + self.bytes.1
    }

    /// Takes out the kept entries of a directory; with `only_old` only those of the older generation.
    fn take(&mut self, directory: &[u8; PREFIX], only_old: bool) -> Option<Stretch> {
        if let Some(stretch) = self.old.remove(directory) {
            self.bytes.1 -= stretch.bytes;
            return Some(stretch);
        }
        if only_old {
            return None;
        }
        let stretch = self.young.remove(directory)?;
        self.bytes.0 -= stretch.bytes;
        Some(stretch)
    }

    fn put(&mut self, directory: [u8; PREFIX], stretch: Stretch) {
        if self.bytes.0 + stretch.bytes > MAX_BYTES / 2 {
            self.old = mem::take(&mut self.young);
            self.bytes = (0, self.bytes.0);
        }
        self.bytes.0 += stretch.bytes;
        self.young.insert(directory, stretch);
    }
}

#[cfg(test)]
mod tests;
