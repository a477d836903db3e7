//! Forebay: block buffers, coverage, memory budget and least-recently-used order.
//!
//! Everything that a gateway knows of its files' bytes without asking the bucket lies here. Plain
//! synchronous code: no I/O, no clock, no waiting. Whoever drives it holds each file's
//! [`FileBlocks`] under that file's lock; the [`Cache`] that all of them share may be used from any
//! thread.
//!
//! ```text
//!  Cache ------------- pool of buffers, accounts, order of use
//!    |
//!  FileBlocks -------- one per file: its blocks by index, which are dirty in which checkpoint
//!    |
//!  block ------------- 4 MiB of the file: coverage, dirty ranges, closed checkpoints
//!    |      `--------- RangeBitmap: a set of bytes, exact to the byte
//!  piece ------------- 64 KiB of the block: 4, 16 or 64 KiB of memory, shared with snapshots
//! ```
//!
//! # Coverage
//! A byte may be read only if it is covered: written here, or filled in from the bucket. Buffers
//! are recycled without being zeroed, because what is not covered is never read; it is reported as
//! missing, and whoever reads fetches it. A fill never touches a covered byte, so bytes written
//! here always win.
//!
//! # Dirty ranges and checkpoints
//! A dirty byte belongs to the checkpoint in which it was written. For one block:
//!
//! ```text
//!            fill                        write in n
//!   empty ---------> clean --------------------------------> dirty in n --. write or truncate
//!     |                ^ ^                                    | |   ^     | in n: a new version
//!     |                | |            published(n)            | |   `-----'
//!     |                | `------------------------------------' |
//!     |                |                                        | write or truncate in m > n:
//!     |                | published(m)                           | n is closed, and its bytes are
//!     |                |                                        v set aside
//!     |                |           published(n)             closed: n
//!     |           dirty in m <----------------------------- dirty in m (nothing, if truncated)
//!     |                ^
//!     `----------------'
//!         write in m
//! ```
//!
//! Only a clean block is evicted, which makes it empty again.
//!
//! # Readers borrow
//! [`FileBlocks::lend`] gives what is read as the pieces themselves, which go to the socket as they are: nothing is
//! copied in between. A writer copies a piece that a reader still has, as he does one of a snapshot.
//! Where little is read of a large piece, that little is copied, so that readers who are slow to take it keep
//! at most twice as much memory as they asked for. [`FileBlocks::read`] copies, and also reads what is there in part.
//!
//! The cache is not told when a checkpoint closes: the first change for a newer one shows it. The
//! block then keeps the closed checkpoint's ranges, and shares the pieces that hold them; reads go
//! on to see the newest bytes. Normally one closed checkpoint at most is unpublished; more would
//! work the same way.
//!
//! # What arrives is taken over
//! Bytes that come from the bucket lie in memory already: [`FileBlocks::take_over`] makes pieces of it as it is. A
//! writer who changes one of these copies it then, and the others of the same memory once half of them are replaced. A
//! piece that exists already, or of which less than its first half has arrived, copies at once.
//!
//! # Snapshots are handed over
//! [`FileBlocks::snapshot`] gives a checkpoint's dirty ranges and bytes for the upload. It shares
//! pieces; a writer copies a shared piece before changing it, so neither waits for the other.
//! A snapshot *hands over*: from then on the caller answers for those bytes, and the block keeps
//! them for nobody else. Once the snapshot is dropped, writers of the next checkpoint write in place
//! again instead of copying until the checkpoint is published. Its ranges stay dirty until
//! [`FileBlocks::published`]. A caller that retries keeps the snapshot; one that gives up
//! calls [`FileBlocks::put_back`].
//!
//! A snapshot may be taken while its checkpoint is still open (an early upload). When it is in the bucket,
//! [`FileBlocks::uploaded`] makes its ranges clean before the checkpoint is published, unless they have changed
//! since: then another snapshot has to be taken.
//!
//! # Why pieces
//! A block buffer is up to 64 pieces of 64 KiB, not one allocation of 4 MiB:
//!
//! * A piece has memory for what was used of it (4, 16 or 64 KiB, aligned), so ten thousand small
//!   files cost ten thousand times 4 KiB, and a random write of 4 KiB to a large file 4 KiB.
//! * Copy on write moves 64 KiB at most, not 4 MiB: a writer that meets a closed checkpoint is
//!   delayed by microseconds.
//! * Buffers of three sizes are recycled well; buffers of up to 4 MiB are not.
//!
//! The price is one more step on the way to a byte, some 10 ns for each 64 KiB.
//!
//! # Accounts
//! [`Cache::allocated_bytes`] counts what is allocated, not what is covered. The buffer of a piece
//! is counted from the moment it is taken until its last owner, a snapshot maybe, drops it; memory that was taken over
//! all of it, until the last piece that shares it is gone.
//!
//! # Crashes
//! Nothing here survives one; the log rebuilds it.

#![forbid(unsafe_code)]

mod arrived;
mod bitmap;
mod block;
mod cache;
mod copies;
mod fetch;
mod file;
mod lru;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod piece;
mod pool;
mod snapshot;

pub use arrived::Arrived;
pub use bitmap::RangeBitmap;
pub use cache::{Cache, Lease};
pub use fetch::FetchToken;
pub use file::{Eviction, FileBlocks};
pub use snapshot::Snapshot;

/// Names one state of the dirty ranges of a block: equal only if nothing was written or truncated
/// in between. Unique within a [`Cache`], also across the lives of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockVersion(u64);
