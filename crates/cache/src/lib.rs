//! Forebay: block buffers, coverage, memory budget and least-recently-used order.
//!
//! Holds all bytes of files that a gateway can read without a request to the bucket. Plain synchronous code: no I/O,
//! no clock, no waiting. The caller keeps each file's [`FileBlocks`] under that file's lock; the [`Cache`] that all
//! of them share may be used from any thread.
//!
//! ```text
//!  Cache ------------- pool of buffers, accounts, order of use
//!    |
//!  FileBlocks -------- one per file: its blocks by index, which are dirty in which checkpoint
//!    |
//!  block ------------- 4 MiB of the file: coverage, dirty ranges, closed checkpoints
//!    |      |--------- RangeBitmap: a set of bytes, exact to the byte
//!    |      `--------- LogMap: which record of the log has which dirty bytes
//!  piece ------------- 64 KiB of the block: 4, 16 or 64 KiB of memory, shared with images
//! ```
//!
//! # Coverage
//! A byte may be read only if it is covered: written here, or filled in from the bucket. Buffers are recycled without
//! being zeroed, because bytes that are not covered are never read; they are reported as missing, and the reader
//! fetches them. A fill never touches a covered byte, so bytes written here always win.
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
//! # Bytes in the log alone
//! A write may name the record of the log that has its bytes. [`FileBlocks::spill`] drops the memory of dirty bytes whose
//! records are settled: these bytes are then *spilled*. They are known and dirty like covered ones, but a reader gets the
//! position of their record instead of the bytes, reads the record, and may give it to [`FileBlocks::fill_logged`].
//!
//! * A byte without a record stays in memory until it is clean.
//! * A fill from the bucket touches neither covered nor spilled bytes. A fill from the log touches only spilled ones whose
//!   record has the position that the fill names.
//! * A closed checkpoint keeps its own log map, since a byte may be dirty in several, each time with other content. The
//!   newest checkpoint that has a byte says which record has its newest content.
//! * Memory leaves piece by piece, and only if nothing outside of the block shares it: otherwise nothing would be freed.
//! * Spilling and filling change no version: the dirty ranges and their content stay the same.
//!
//! The records of a checkpoint must stay in the log until it is published, or its images are given up.
//!
//! # Readers borrow
//! [`FileBlocks::lend`] returns the pieces themselves, which go to the socket without a copy in between. A writer
//! copies a piece that a reader still holds, like one of an image. If a read covers only a small part of a large
//! piece, that part is copied, so that slow readers hold at most twice as much memory as they asked for.
//! [`FileBlocks::read`] copies, and also reads ranges that are only covered in part.
//!
//! The cache is not notified when a checkpoint closes: the first change for a newer one shows it. The block then
//! keeps the closed checkpoint's ranges, and shares the pieces that hold them; reads continue to see the newest
//! bytes. Normally at most one closed checkpoint is unpublished; more would work the same way.
//!
//! # Arrived memory is taken over
//! Bytes of the bucket are already in memory when they arrive: [`FileBlocks::take_over`] makes pieces of that memory.
//! A writer that changes one of these pieces copies it then, and the others of the same memory once half of them are
//! replaced. A piece that already exists, or of which less than the first half has arrived, is copied at once.
//!
//! # Images are handed over
//! [`FileBlocks::image`] returns a checkpoint's dirty ranges and bytes for the upload. It shares pieces; a writer
//! copies a shared piece before changing it, so neither waits for the other. An image *hands over*: from then on
//! the caller is responsible for those bytes, and the block does not keep them for another image. Once the
//! image is dropped, writers of the next checkpoint write in place again instead of copying until the checkpoint
//! is published. Its ranges stay dirty until [`FileBlocks::published`]. A caller that retries keeps the image; one
//! that gives up calls [`FileBlocks::put_back`].
//!
//! Of spilled bytes an image has the positions of their records. [`Cache::load`] puts the bytes into it; only then can it
//! be read, as a [`LoadedImage`].
//!
//! An image may be taken while its checkpoint is still open (an early upload). After the upload,
//! [`FileBlocks::uploaded`] makes its ranges clean before the checkpoint is published, unless they have changed
//! meanwhile: then another image has to be taken.
//!
//! # Why pieces
//! A block buffer is up to 64 pieces of 64 KiB, not one allocation of 4 MiB:
//!
//! * A piece has memory only for its used window (4, 16 or 64 KiB, aligned), so ten thousand small files cost ten
//!   thousand times 4 KiB, and a random write of 4 KiB to a large file costs 4 KiB.
//! * Copy on write moves at most 64 KiB, not 4 MiB: a writer that meets a closed checkpoint is delayed by
//!   microseconds.
//! * Buffers of three sizes are recycled well; buffers of arbitrary sizes up to 4 MiB are not.
//!
//! The price is one more indirection on the way to a byte, some 10 ns for each 64 KiB.
//!
//! # Accounts
//! [`Cache::allocated_bytes`] counts the allocated bytes, not the covered ones. The buffer of a piece is counted from
//! the moment it is taken until its last owner, perhaps an image, drops it. Memory that was taken over is counted
//! as a whole, until the last piece that shares it is dropped. Log maps count as well; beyond
//! [a quarter of the budget](Cache::index_bytes) they do not grow.
//!
//! # Crashes
//! Nothing here survives a crash; replay of the log rebuilds it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod arrived;
mod bitmap;
mod block;
mod cache;
mod copies;
mod fetch;
mod file;
mod image;
mod log_map;
mod lru;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod piece;
mod pool;

pub use arrived::Arrived;
pub use bitmap::RangeBitmap;
pub use cache::{Cache, Coldest, Lease};
pub use fetch::FetchToken;
pub use file::{Eviction, FileBlocks, InMemory, Spilled};
pub use image::{BlockImage, LoadedImage};

/// Identifies one state of the dirty ranges of a block: equal only if nothing was written or truncated in between.
/// Unique within a [`Cache`], also across the lives of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockVersion(u64);
