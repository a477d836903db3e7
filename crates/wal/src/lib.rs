//! Forebay: the memory-mapped write-ahead log.
//!
//! What a client writes is copied into the log before it is answered; one flush of the local disk
//! then makes everything so far durable. After a crash the log is read again from the published LSN
//! on, and what was published is recycled.
//!
//! ```text
//!  append --> reserve: LSN and place (under a lock) --> copy and checksum (outside) --> complete
//!                                                                                          |
//!  durable --> syncer thread: one flush for all who wait <---------------------------------+
//!  recycle --> preparer thread: renames a spare segment or creates one, has it in memory, ready
//! ```
//!
//! * [`Recovery::scan`] looks through what is there and yields its records; [`Recovery::into_wal`]
//!   goes on from there. A new log begins the same way, in an empty folder.
//! * [`Wal`] is the log that is written.
//! * [`Inspection`] reads logs without changing anything: this one, and those that were
//!   [put aside](put_aside).
//! * [`Storage`] is the I/O: [`FileStorage`] for real, [`MemoryStorage`] for tests that
//!   cut the power.
//!
//! A log may be sealed: with the keys of its volume ([`Options::sealing`], [`LogKeys`]) nobody who has the disk
//! alone can read records, or have others replayed.
//!
//! Two LSNs matter to a caller. A reply may leave when everything up to its record is **complete**:
//! a hole before it would cut it off at recovery. What is to survive a power cut must be
//! **durable**.
//!
//! There is no runtime here: waiting is done with plain futures, flushing and preparing in two threads of the
//! log's own. Nor is there a clock, but for the one by which the flushing thread waits, a part of a
//! millisecond, until those whom it has woken have come back.

mod aside;
mod error;
mod inspect;
mod layout;
mod log_files;
mod map;
mod options;
mod position;
mod recovery;
mod seal;
mod segment;
mod state;
mod stats;
mod storage;
#[cfg(test)]
mod tests;
mod waiting;
mod wal;

pub use aside::{LogFolder, archived, discard, has_to_be_archived, put_aside};
pub use error::{AppendError, LogFailed, OpenError};
pub use inspect::{
    Counts, Ending, Gap, GapReason, Inspection, KeptLog, Label, LockedRecord, LogReader, Piece,
    SegmentSummary, Summary,
};
pub use layout::RecordKind;
pub use log_files::LogFiles;
pub use options::Options;
pub use recovery::{Record, Recovery, Tail, WriterEnd};
pub use seal::LogKeys;
pub use stats::Stats;
pub use storage::{FileStorage, MemoryStorage, SegmentMemory, SegmentReader, Storage};
pub use wal::{Appended, Complete, Durable, Failed, Hand, Room, Wal};
