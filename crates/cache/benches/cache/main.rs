//! Criterion benchmarks of the block buffers: the cost of a write, a read, and the queries of the uploader and the
//! evictor. `cargo bench -p forebay-cache`.
//!
//! A published cache of the same purpose has benchmarks of its own, whose results are the goal of these. For each of
//! them, there are two here. `published` does the same work: small working sets, the same ranges again and again,
//! state that is used up after the first round. Beside it stands an honest version: more bytes than the processor's
//! caches hold, new state for each iteration, separate files for each thread.
//!
//! | module | |
//! |---|---|
//! | `writes` | in sequence, to many files, from several threads, over existing bytes, with reads in between |
//! | `reads` | copied, after many small writes, lent |
//! | `bookkeeping` | covered ranges, dirty blocks, uploads, evictions |
//! | `copies` | files made from end to end |
//! | `buffers` | the pool, on and off |
//!
//! The allocator is that of the program.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]
// The macro of criterion generates a public function without documentation.
#![allow(missing_docs)]

mod bookkeeping;
mod buffers;
mod copies;
mod files;
mod reads;
mod writes;

use criterion::{criterion_group, criterion_main};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

criterion_group!(
    benches,
    writes::sequential,
    writes::many_files,
    writes::concurrent,
    writes::in_place,
    writes::with_reads_between,
    reads::copied,
    reads::overlapped,
    reads::lent,
    bookkeeping::covered,
    bookkeeping::dirty_blocks,
    bookkeeping::uploaded,
    bookkeeping::images,
    bookkeeping::evict,
    copies::file_copy,
    buffers::get_and_put,
    buffers::pool_on_and_off
);
criterion_main!(benches);
