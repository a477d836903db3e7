//! The files with the most reads and writes, sampled: their number is bounded, and a call pays a few instructions.
//!
//! ```text
//!   a call --the first thousand since the last look, long ones, else one in 16--> the sketch, if nobody holds it
//! ```
//!
//! The sketch keeps the busiest of the files that it sees: a file that is not there takes the place of the least busy
//! one of eight, and its weight, so that it has to earn it. Weights shrink with each look. Counts begin with the place
//! and are exact but for sampling.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forebay_types::Inode;
use parking_lot::Mutex;

/// Files that are counted.
const FILES: usize = 256;

/// Calls since the last look that are all counted.
const ALL_OF_THE_FIRST: u64 = 1024;

/// Calls with at least this many bytes are all counted: counting costs nothing beside their data.
const LONG: u64 = 64 << 10;

/// One in this many of the other calls is counted.
const SAMPLING: u64 = 16;

/// Candidates for the place of a new file.
const CANDIDATES: usize = 8;

/// What a call weighs beside its bytes.
const CALL_WEIGHT: u64 = 4096;

/// A file, and what was read and written since it has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyFile {
    /// The file.
    pub inode: Inode,
    /// Number of its place: a file that lost it, and has another one now, is counted from zero.
    pub place: u64,
    /// READ and WRITE calls.
    pub calls: u64,
    /// Bytes of file data that were read.
    pub read_bytes: u64,
    /// Bytes of file data that were written.
    pub written_bytes: u64,
}

/// See the module's documentation.
pub(crate) struct Files {
    /// Calls since the last look.
    calls: AtomicU64,
    /// Calls only try to lock it.
    sketch: Mutex<Sketch>,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            calls: AtomicU64::new(0),
            sketch: Mutex::new(Sketch::with_room()),
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    /// Counts a READ of this many bytes.
    #[inline]
    pub(crate) fn read(&self, inode: Inode, bytes: u64) {
        self.count(inode, bytes, 0);
    }

    /// Counts a WRITE of this many bytes.
    #[inline]
    pub(crate) fn written(&self, inode: Inode, bytes: u64) {
        self.count(inode, 0, bytes);
    }

    #[inline]
    fn count(&self, inode: Inode, read: u64, written: u64) {
        let call = self.calls.fetch_add(1, Relaxed);
        let is_one = call < ALL_OF_THE_FIRST || read + written >= LONG;
        if is_one || is_sampled(call) {
            let times = if is_one { 1 } else { SAMPLING };
            self.note(inode, times, read, written);
        }
    }

    /// Counts a call `times` times.
    #[cold]
    fn note(&self, inode: Inode, times: u64, read: u64, written: u64) {
        if let Some(mut sketch) = self.sketch.try_lock() {
            sketch.note(inode, times, read, written);
        }
    }

    /// The files. For one reader that looks every few seconds: calls that were counted before earlier looks weigh less.
    pub(super) fn look(&self) -> Vec<BusyFile> {
        let mut sketch = self.sketch.lock();
        // A quiet gateway counts all of its calls.
        self.calls.store(0, Relaxed);
        for entry in &mut sketch.entries {
            entry.weight -= entry.weight / 4;
        }
        sketch.entries.iter().map(|entry| entry.file).collect()
    }
}

/// Whether this call is one in [`SAMPLING`]. Scattered, so that calls that take turns are sampled alike.
#[inline]
fn is_sampled(call: u64) -> bool {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = call.wrapping_mul(ODD);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(ODD);
    mixed >> (64 - SAMPLING.trailing_zeros()) == 0
}

struct Entry {
    file: BusyFile,
    weight: u64,
}

struct Sketch {
    /// At most [`FILES`].
    entries: Vec<Entry>,
    /// The index of each file among them.
    places: HashMap<Inode, usize>,
    /// Where the next candidates begin.
    hand: usize,
    /// Places that were given so far.
    given: u64,
}

impl Sketch {
    /// One that never allocates again.
    fn with_room() -> Sketch {
        Sketch {
            entries: Vec::with_capacity(FILES),
            places: HashMap::with_capacity(2 * FILES),
            hand: 0,
            given: 0,
        }
    }

    fn note(&mut self, inode: Inode, times: u64, read: u64, written: u64) {
        let index = match self.places.get(&inode) {
            Some(index) => *index,
            None => self.enter(inode),
        };
        if let Some(entry) = self.entries.get_mut(index) {
            let file = &mut entry.file;
            file.calls += times;
            file.read_bytes += read * times;
            file.written_bytes += written * times;
            let weight = (read + written + CALL_WEIGHT) * times;
            entry.weight = entry.weight.saturating_add(weight);
        }
    }

    /// Gives a file a place; returns its index.
    fn enter(&mut self, inode: Inode) -> usize {
        self.given += 1;
        let file = BusyFile {
            inode,
            place: self.given,
            calls: 0,
            read_bytes: 0,
            written_bytes: 0,
        };
        let index = if self.entries.len() < FILES {
            self.entries.push(Entry { file, weight: 0 });
            self.entries.len() - 1
        } else {
            let candidates = (self.hand..self.hand + CANDIDATES).map(|index| index % FILES);
            self.hand = (self.hand + CANDIDATES) % FILES;
            let weight = |index: &usize| self.entries.get(*index).map_or(0, |entry| entry.weight);
            let index = candidates.min_by_key(weight).unwrap_or(0);
            if let Some(entry) = self.entries.get_mut(index) {
                self.places.remove(&entry.file.inode);
                entry.file = file;
            }
            index
        };
        self.places.insert(inode, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &Files, inode: u64) -> Option<(u64, u64, u64)> {
        let found = files.look();
        let file = found.iter().find(|file| file.inode == Inode(inode))?;
        Some((file.calls, file.read_bytes, file.written_bytes))
    }

    #[test]
    fn few_calls_are_counted_exactly() {
        let files = Files::default();
        files.read(Inode(1), 4096);
        files.read(Inode(1), 100);
        files.written(Inode(1), 10);
        files.written(Inode(2), 7);
        assert_eq!(of(&files, 1), Some((3, 4196, 10)));
        assert_eq!(of(&files, 2), Some((1, 0, 7)));
        assert_eq!(of(&files, 3), None);
    }

    #[test]
    fn many_calls_are_sampled_and_calls_in_turns_alike() {
        const CALLS: u64 = 320_000;
        let files = Files::default();
        for call in 0..CALLS {
            files.read(Inode(call % 4), 4096);
        }
        for inode in 0..4 {
            let (calls, read, _) = of(&files, inode).unwrap();
            let expected = CALLS / 4;
            let off = calls.abs_diff(expected);
            assert!(off < expected / 20, "{calls} of {expected}");
            assert_eq!(read, calls * 4096);
        }
    }

    #[test]
    fn long_calls_are_all_counted() {
        let files = Files::default();
        for _ in 0..5000 {
            files.written(Inode(7), LONG);
        }
        assert_eq!(of(&files, 7), Some((5000, 0, 5000 * LONG)));
    }

    #[test]
    fn the_busiest_files_stay_among_many_and_their_number_is_bounded() {
        let files = Files::default();
        for round in 0..20_u64 {
            for other in 0..1000 {
                files.read(Inode(1000 + 1000 * round + other), 4096);
                files.read(Inode(other % 10), 4096);
            }
            files.look();
        }
        let found = files.look();
        assert_eq!(found.len(), FILES);
        for inode in 0..10 {
            let file = found.iter().find(|file| file.inode == Inode(inode));
            let calls = file.unwrap().calls;
            // Each round samples the same calls, so that the error of one round is that of all.
            assert!((1000..6000).contains(&calls), "{calls}");
        }
    }

    #[test]
    fn a_file_that_was_busy_once_makes_room_in_time() {
        let files = Files::default();
        for inode in 0..FILES as u64 {
            files.read(Inode(inode), LONG << 10);
        }
        for _ in 0..100 {
            files.look();
        }
        for inode in 1000..1000 + FILES as u64 {
            files.read(Inode(inode), 4096);
            files.read(Inode(inode), 4096);
        }
        let found = files.look();
        let old = found.iter().filter(|file| file.inode.0 < 1000).count();
        assert_eq!((found.len(), old), (FILES, 0));
        // What was here before and comes again begins from zero.
        files.read(Inode(5), 4096);
        assert_eq!(of(&files, 5), Some((1, 4096, 0)));
        let place = files.look().iter().map(|file| file.place).max();
        assert_eq!(place, Some(2 * FILES as u64 + 1));
    }

    #[test]
    fn a_call_does_not_wait_for_who_looks() {
        let files = Files::default();
        let held = files.sketch.lock();
        files.read(Inode(1), 4096);
        drop(held);
        assert_eq!(of(&files, 1), None);
    }
}
