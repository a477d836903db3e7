//! Logged changes that are not published yet, in generations, newest first.
//!
//! ```text
//!            apply                 close                  discard_oldest
//!   batch  -------->  open map  ---------->  closed maps  ------------->  dropped: the store has it
//! ```
//!
//! The open generation belongs to the open checkpoint, and each closed one to a closed checkpoint: the oldest of them is
//! being published, and others wait if snapshots were made meanwhile. The publisher commits the oldest closed generation
//! to the store, and only then discards it, so that a key is always found in at least one of the places.
//! Readers look here *before* they look in the store (see [`Catalog`](crate::Catalog)).

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::batch::{Batch, Entry};
use crate::key::KeyRange;

/// Memory of an entry beside its key and value: two handles in a tree node, of which half is used when keys are
/// inserted in order, and the allocator's overhead for key and value.
const ENTRY_OVERHEAD_BYTES: usize = 144;

/// Deletions that a view for a scan may hold beside the entries: each view is followed by a scan of the store.
const MAX_DELETIONS: usize = 4096;

/// The changes of one checkpoint: the last change of each key.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    entries: BTreeMap<Bytes, Entry>,
    bytes: usize,
}

impl Generation {
    /// The last change of `key`, if there was one.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Changes in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, &Entry)> {
        self.entries.iter()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All changes as one batch, for publishing.
    pub fn to_batch(&self) -> Batch {
        let changes = self.entries.iter();
        changes
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    fn apply(&mut self, batch: &Batch) {
        for (key, entry) in batch.changes() {
            self.bytes += entry.len();
            match self.entries.insert(key.clone(), entry.clone()) {
                Some(former) => self.bytes -= former.len(),
                None => self.bytes += key.len() + ENTRY_OVERHEAD_BYTES,
            }
        }
    }

    fn range<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = (&'a Bytes, &'a Entry)> {
        let entries = (!range.is_empty()).then(|| self.entries.range(range.bounds()));
        entries.into_iter().flatten()
    }
}

/// Logged changes that are not published yet. Each method takes one short lock.
#[derive(Debug, Default)]
pub struct Overlay {
    generations: RwLock<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    open: Generation,
    /// Oldest first.
    closed: VecDeque<Arc<Generation>>,
    /// Number of generations closed so far.
    closings: u64,
}

/// The state of a key range at one moment, as [`Overlay::view`] returns it.
pub(crate) struct View {
    /// Changes in the order of their keys; deletions too.
    pub(crate) entries: Vec<(Bytes, Entry)>,
    /// Whether the limit cut the view off behind the last entry.
    pub(crate) cut_off: bool,
}

impl Overlay {
    /// An overlay without changes.
    pub fn new() -> Overlay {
        Overlay::default()
    }

    /// Adds the changes of `batch` to the open generation, atomically for readers.
    pub fn apply(&self, batch: &Batch) {
        self.generations.write().open.apply(batch);
    }

    /// The newest change of `key`; `None` if the overlay has none, so that the store decides.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        let generations = self.generations.read();
        let newest = generations
            .newest_first()
            .find_map(|generation| generation.get(key));
        newest.cloned()
    }

    /// The newest changes of the keys in `range`, in order, at most `limit`, deletions included.
    pub fn range(&self, range: &KeyRange, limit: usize) -> Vec<(Bytes, Entry)> {
        self.view_with(range, limit, 0).entries
    }

    /// The same for a scan: at most `limit` values, and many deletions between them.
    pub(crate) fn view(&self, range: &KeyRange, limit: usize) -> View {
        self.view_with(range, limit, MAX_DELETIONS)
    }

    fn view_with(&self, range: &KeyRange, limit: usize, deletions: usize) -> View {
        let generations = self.generations.read();
        let mut rest: Vec<_> = generations
            .newest_first()
            .map(|generation| generation.range(range).peekable())
            .collect();
        let mut entries = Vec::new();
        let (mut present, most) = (0, limit.saturating_add(deletions));
        while present < limit && entries.len() < most {
            let Some((key, entry)) = next_newest(&mut rest) else {
                break;
            };
            present += usize::from(*entry != Entry::Deleted);
            entries.push((key.clone(), entry.clone()));
        }
        View {
            entries,
            cut_off: rest.iter_mut().any(|changes| changes.peek().is_some()),
        }
    }

    /// Number of generations closed so far. A later published state can differ from the present one only if this number
    /// has grown, or if a generation that is closed now was published.
    pub fn closings(&self) -> u64 {
        self.generations.read().closings
    }

    /// Closes the open generation and opens an empty one. Call it when the checkpoint closes, under
    /// the same lock as the log, so that both end at the same record.
    pub fn close(&self) -> Arc<Generation> {
        let mut generations = self.generations.write();
        let closed = Arc::new(std::mem::take(&mut generations.open));
        generations.closed.push_back(closed.clone());
        generations.closings += 1;
        closed
    }

    /// The oldest closed generation, if there is one: the changes to publish first.
    pub fn oldest_closed(&self) -> Option<Arc<Generation>> {
        self.generations.read().closed.front().cloned()
    }

    /// Drops the oldest closed generation. Call it only after the store has committed it: from then on,
    /// readers find its keys in the store.
    pub fn discard_oldest(&self) {
        let discarded = self.generations.write().closed.pop_front();
        // Freed outside the lock: it may hold many thousands of entries.
        drop(discarded);
    }

    /// Memory of all generations, in bytes.
    pub fn bytes(&self) -> usize {
        let generations = self.generations.read();
        generations.newest_first().map(Generation::bytes).sum()
    }

    /// Bytes of the keys and values of all generations.
    pub fn content_bytes(&self) -> usize {
        let generations = self.generations.read();
        let contents = generations.newest_first().map(|generation| {
            // Counted together with their overhead, which is the same for all.
            generation.bytes() - generation.len() * ENTRY_OVERHEAD_BYTES
        });
        contents.sum()
    }

    /// Number of keys in all generations; a key counts in each that has it.
    pub fn len(&self) -> usize {
        let generations = self.generations.read();
        generations.newest_first().map(Generation::len).sum()
    }

    /// Whether everything is published.
    pub fn is_empty(&self) -> bool {
        let generations = self.generations.read();
        generations.newest_first().all(Generation::is_empty)
    }
}

impl Generations {
    fn newest_first(&self) -> impl Iterator<Item = &Generation> {
        let closed = self.closed.iter().rev().map(Arc::as_ref);
        std::iter::once(&self.open).chain(closed)
    }
}

/// The next key of several generations, newest first, with its newest change. Skips the older changes of that key.
fn next_newest<'a>(
    generations: &mut [Peekable<impl Iterator<Item = (&'a Bytes, &'a Entry)>>],
) -> Option<(&'a Bytes, &'a Entry)> {
    let firsts = generations.iter_mut().filter_map(Peekable::peek);
    let key = firsts.map(|(key, _)| *key).min()?;
    let mut newest = None;
    for changes in generations {
        if let Some(change) = changes.next_if(|(own, _)| *own == key) {
            newest = newest.or(Some(change));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(key: &'static str, value: &'static str) -> Batch {
        let mut batch = Batch::new();
        batch.put_encoded(key.into(), value.into());
        batch
    }

    fn delete(key: &'static str) -> Batch {
        let mut batch = Batch::new();
        batch.delete_encoded(key.into());
        batch
    }

    #[test]
    fn the_open_generation_hides_the_closed_one() {
        let overlay = Overlay::new();
        overlay.apply(&put("a", "1"));
        overlay.apply(&put("b", "1"));
        overlay.close();
        overlay.apply(&delete("a"));
        overlay.apply(&put("c", "2"));
        assert_eq!(overlay.get(b"a"), Some(Entry::Deleted));
        assert_eq!(overlay.get(b"b"), Some(Entry::Value("1".into())));
        assert_eq!(overlay.get(b"d"), None);
        let keys: Vec<_> = overlay.range(&KeyRange::all(), 9).into_iter().collect();
        assert_eq!(
            keys,
            [
                ("a".into(), Entry::Deleted),
                ("b".into(), Entry::Value("1".into())),
                ("c".into(), Entry::Value("2".into())),
            ]
        );
        assert_eq!(overlay.range(&KeyRange::all(), 2).len(), 2);
        // One of those has a value.
        let view = overlay.view(&KeyRange::all(), 1);
        assert_eq!((view.entries.len(), view.cut_off), (2, true));
    }

    #[test]
    fn generations_that_wait_hide_the_older_ones_and_are_discarded_in_order() {
        let overlay = Overlay::new();
        for (key, value) in [("a", "1"), ("a", "2"), ("b", "3")] {
            overlay.apply(&put(key, value));
            overlay.close();
        }
        overlay.apply(&delete("b"));
        overlay.apply(&put("c", "4"));
        assert_eq!((overlay.len(), overlay.closings()), (5, 3));
        assert_eq!(overlay.get(b"a"), Some(Entry::Value("2".into())));
        assert_eq!(overlay.get(b"b"), Some(Entry::Deleted));
        let keys: Vec<_> = overlay.range(&KeyRange::all(), 9);
        assert_eq!(
            keys,
            [
                ("a".into(), Entry::Value("2".into())),
                ("b".into(), Entry::Deleted),
                ("c".into(), Entry::Value("4".into())),
            ]
        );
        // Older changes of the last key are no reason to go on behind it.
        let view = overlay.view(&KeyRange::all(), 2);
        assert_eq!((view.entries.len(), view.cut_off), (3, false));
        for (key, value) in [("a", "1"), ("a", "2"), ("b", "3")] {
            assert_eq!(overlay.oldest_closed().unwrap().to_batch(), put(key, value));
            overlay.discard_oldest();
        }
        assert!(overlay.oldest_closed().is_none());
        assert_eq!(overlay.get(b"a"), None);
        assert_eq!(overlay.len(), 2);
    }

    #[test]
    fn what_was_applied_during_publication_stays() {
        let overlay = Overlay::new();
        overlay.apply(&put("a", "1"));
        overlay.close();
        overlay.apply(&put("a", "2"));
        overlay.discard_oldest();
        assert_eq!(overlay.get(b"a"), Some(Entry::Value("2".into())));
        assert!(!overlay.is_empty());
    }

    proptest! {
        #[test]
        fn bytes_return_to_zero_and_follow_what_is_held(
            changes in proptest::collection::vec((0u8..8, proptest::option::of(0usize..50)), 0..60)
        ) {
            let overlay = Overlay::new();
            for (key, len) in changes {
                let mut batch = Batch::new();
                let key = Bytes::from(vec![key]);
                match len {
                    Some(len) => batch.put_encoded(key, vec![0; len].into()),
                    None => batch.delete_encoded(key),
                }
                overlay.apply(&batch);
                let held = overlay.range(&KeyRange::all(), usize::MAX);
                let expected: usize = held.iter().map(|(k, e)| k.len() + e.len() + ENTRY_OVERHEAD_BYTES).sum();
                prop_assert_eq!(overlay.bytes(), expected);
                prop_assert_eq!(overlay.content_bytes(), expected - held.len() * ENTRY_OVERHEAD_BYTES);
            }
            overlay.close();
            overlay.discard_oldest();
            prop_assert_eq!(overlay.bytes(), 0);
            prop_assert!(overlay.is_empty());
        }
    }
}
