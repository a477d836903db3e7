//! The position of the log, in a separate file: it distinguishes a log that ends from one that was cut off.
//!
//! ```text
//! file `position`
//!   0  8  magic "FBAYPOS\n"
//!   8 16  volume
//!  24  8  complete LSN      32  8  the same, all bits inverted
//!  40  8  durable LSN       48  8  the same, all bits inverted
//! ```
//!
//! It is written as the log goes on and never flushed. After a kill the kernel has all of it, and the segments have to
//! reach the complete LSN. After a power cut it is as old as the last time that the kernel wrote that page by
//! itself: the durable LSN in it is a lower bound then, and the complete one means nothing. Where the two copies of
//! a number differ, the process ended between writing them, or the page is damaged: the number is ignored then.
//!
//! Code that removes segments from the log on purpose removes this file first.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::{Lsn, VolumeId};

use crate::log_files::LogFiles;
use crate::storage::{SegmentMemory, Storage};

/// Name of the file.
pub(crate) const POSITION_FILE: &str = "position";
/// Bytes of the file: one page.
pub(crate) const POSITION_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"FBAYPOS\n";
const VOLUME: usize = MAGIC.len();
const COMPLETE: usize = VOLUME + 16;
const DURABLE: usize = COMPLETE + 16;
const USED: usize = DURABLE + 16;

const _: () = assert!(COMPLETE.is_multiple_of(align_of::<AtomicU64>()) && USED <= POSITION_BYTES);

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Every record before it was completely in memory.
    pub(crate) complete: Lsn,
    /// Every record before it was on stable storage.
    pub(crate) durable: Lsn,
}

/// The position file of a log that is being written. All accesses to its memory are atomic, and are made here.
pub(crate) struct Position {
    memory: Box<dyn SegmentMemory>,
}

impl Position {
    /// Begins with the LSNs in `reached`. `None` if the storage has no position file, or no room for one: the log
    /// works without it.
    pub(crate) fn begin(
        storage: &dyn Storage,
        volume: VolumeId,
        reached: Reached,
    ) -> Option<Position> {
        let memory = storage.position().ok()?;
        if memory.memory().len() < USED {
            return None;
        }
        let position = Position { memory };
        // The file is invalid while its numbers may be those of another log.
        position.word(0).store(0, Ordering::Relaxed);
        position.set(reached);
        for (at, word) in volume.0.as_chunks::<8>().0.iter().enumerate() {
            let cell = position.word(VOLUME + 8 * at);
            cell.store(u64::from_le_bytes(*word).to_le(), Ordering::Relaxed);
        }
        let magic = u64::from_le_bytes(MAGIC);
        position.word(0).store(magic.to_le(), Ordering::Release);
        Some(position)
    }

    /// Stores how far the log has come.
    #[inline]
    pub(crate) fn set(&self, reached: Reached) {
        for (at, Lsn(lsn)) in [(COMPLETE, reached.complete), (DURABLE, reached.durable)] {
            self.word(at).store(lsn.to_le(), Ordering::Relaxed);
            self.word(at + 8).store((!lsn).to_le(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= USED && at.is_multiple_of(8));
        let start: NonNull<u64> = self.memory.memory().cast();
        // SAFETY: `at` is one of the offsets above, so the word lies within the memory, whose length `begin` has
        // checked. The memory is page-aligned and stays mapped while `self` lives (promise of `SegmentMemory`). All
        // accesses to this file's memory are atomic, since no slots are made of it.
        unsafe { AtomicU64::from_ptr(start.as_ptr().byte_add(at)) }
    }
}

/// Reads the position file; `None` if it does not exist or is not valid.
pub(crate) fn reached(
    files: &(impl LogFiles + ?Sized),
    volume: VolumeId,
) -> io::Result<Option<Reached>> {
    let mut bytes = [0; USED];
    let read = match files.read(POSITION_FILE) {
        Ok(file) => file.read_at(0, &mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(decode(&bytes, volume).filter(|_| read == USED))
}

fn decode(bytes: &[u8; USED], volume: VolumeId) -> Option<Reached> {
    if !bytes.starts_with(&MAGIC) || bytes.get(VOLUME..COMPLETE)? != volume.0 {
        return None;
    }
    let word = |at: usize| {
        let word = bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    };
    let lsn = |at: usize| Some(Lsn(word(at)?)).filter(|lsn| word(at + 8) == Some(!lsn.0));
    Some(Reached {
        complete: lsn(COMPLETE)?,
        durable: lsn(DURABLE)?,
    })
}

/// Removes the file. Called before segments are removed: otherwise the file would report them as missing records.
pub(crate) fn forget(storage: &dyn Storage) -> io::Result<()> {
    match storage.list()?.iter().any(|name| name == POSITION_FILE) {
        true => storage.remove(POSITION_FILE),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    const VOLUME_ID: VolumeId = VolumeId([7; 16]);

    fn at(complete: u64, durable: u64) -> Reached {
        Reached {
            complete: Lsn(complete),
            durable: Lsn(durable),
        }
    }

    #[test]
    fn what_was_reached_is_read_back_by_its_volume_alone() {
        let storage = MemoryStorage::new();
        assert_eq!(reached(&storage, VOLUME_ID).expect("listed"), None);
        let position = Position::begin(&storage, VOLUME_ID, at(800, 0)).expect("made");
        assert_eq!(
            reached(&storage, VOLUME_ID).expect("read"),
            Some(at(800, 0))
        );
        position.set(at(1600, 800));
        assert_eq!(
            reached(&storage, VOLUME_ID).expect("read"),
            Some(at(1600, 800))
        );
        assert_eq!(reached(&storage, VolumeId([8; 16])).expect("read"), None);
        drop(position);
        Position::begin(&storage, VOLUME_ID, at(8, 8)).expect("found");
        assert_eq!(reached(&storage, VOLUME_ID).expect("read"), Some(at(8, 8)));
        forget(&storage).expect("removed");
        forget(&storage).expect("there is none");
        assert_eq!(reached(&storage, VOLUME_ID).expect("listed"), None);
    }

    #[test]
    fn a_page_with_any_bit_flipped_says_nothing() {
        let storage = MemoryStorage::new();
        Position::begin(&storage, VOLUME_ID, at(1 << 33, 1 << 32)).expect("made");
        for byte in 0..USED {
            let damaged = storage.kill();
            damaged.edit(POSITION_FILE, |bytes| bytes[byte] ^= 4);
            assert_eq!(reached(&damaged, VOLUME_ID).expect("read"), None, "{byte}");
        }
        for length in 0..USED {
            let cut = storage.kill();
            cut.edit(POSITION_FILE, |bytes| bytes.truncate(length));
            assert_eq!(reached(&cut, VOLUME_ID).expect("read"), None, "{length}");
        }
    }
}
