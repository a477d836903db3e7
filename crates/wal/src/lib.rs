//! Forebay: the memory-mapped write-ahead log.
//!
//! The bytes of a client's write are copied into the log before the reply leaves; one flush of the local disk then
//! makes everything so far durable. After a crash the log is replayed from the published LSN on; what is published is
//! recycled.
//!
//! ```text
//!  append --> reserve: LSN and place (under a lock) --> copy and checksum (outside) --> complete
//!                                                                                          |
//!              writer thread: begins to write what is complete, some MiB at a time  <------+
//!                                                                                          |
//!  durable --> syncer thread: one flush for all waiters  <---------------------------------+
//!  recycle --> preparer thread: renames a spare segment or creates one, has it in memory, ready
//! ```
//!
//! * [`Recovery::scan`] checks the log in a folder and yields its records; [`Recovery::into_wal`] continues it. A new
//!   log begins the same way, in an empty folder.
//! * [`Wal`] is the log that is written.
//! * [`Inspection`] reads logs without changing anything: the current one, and the [archived](archive) ones.
//! * [`Storage`] is the I/O: [`FileStorage`] for real, [`MemoryStorage`] for tests that cut the power.
//!
//! A log may be sealed with the keys of its volume ([`Options::sealing`], [`LogKeys`]). Access to the disk alone is
//! then not enough to read records, or to have forged ones replayed.
//!
//! Two LSNs matter to a caller. A reply may leave when everything up to its record is **complete**: a hole before the
//! record would cut it off at recovery. Data that must survive a power cut must be **durable**.
//!
//! The log has no async runtime: callers wait with plain futures, and three threads of the log do the flushing, the
//! writing ahead of flushes and the preparing. It has no clock either, with one exception: the syncer thread measures its
//! flushes, and waits, for a fraction of a millisecond, until the tasks that it has woken come back.

#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod archiving;
mod error;
mod inspect;
mod instruments;
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

pub use archiving::{LogFolder, archive, archived, discard, has_to_be_archived};
pub use error::{AppendError, LogFailed, OpenError, ReadFailed};
pub use inspect::{
    Counts, Ending, Gap, GapReason, Inspection, KeptLog, Label, LockedRecord, LogReader, Piece,
    SegmentSummary, Summary,
};
pub use instruments::Instruments;
pub use layout::RecordKind;
pub use log_files::LogFiles;
pub use options::{Options, WriteBack};
pub use recovery::{Record, Recovery, Tail, WriterEnd};
pub use seal::LogKeys;
pub use stats::Stats;
pub use storage::{FileStorage, MemoryStorage, SegmentMemory, SegmentReader, Storage, WriteBacks};
pub use wal::{Appended, Complete, Durable, Failed, Hand, RecordReader, Room, Wal};
