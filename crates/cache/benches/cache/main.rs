//! Criterion benchmarks of the block buffers: what a write, a read, and the questions of the
//! uploader and the evictor cost. `cargo bench -p forebay-cache`.
//!
//! A published cache of the same purpose comes with benchmarks of its own, and their results are
//! what these have to beat. Wherever it has one, there are two here. `published` does the same work:
//! small working sets, the same ranges again and again, state that is used up after the first
//! round. Beside it stands the same question asked honestly: more bytes than the processor's caches
//! hold, state that is made anew for each iteration, files of one's own for each thread.
//!
//! | module | |
//! |---|---|
//! | `writes` | in sequence, to many files, from several threads, over what is there, read in between |
//! | `reads` | copied out, after many small writes, lent |
//! | `bookkeeping` | what is covered, what is dirty, what was uploaded, what leaves |
//! | `copies` | files made from end to end |
//! | `buffers` | the pool, on and off |
//!
//! The allocator is the one of the program.

// The macro of criterion makes a public function without documentation.
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
    bookkeeping::snapshots,
    bookkeeping::evict,
    copies::file_copy,
    buffers::get_and_put,
    buffers::pool_on_and_off
);
criterion_main!(benches);
