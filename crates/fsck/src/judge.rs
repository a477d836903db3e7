//! Judges decide what is consistent, in plain synchronous code. Each judge is fed records in the order of their keys
//! and reports what does not fit; it does not know where the records come from.
//!
//! ```text
//!   objects    attributes, names, cookies: links, entries, parents       'i' 'g' 'n' 'c'
//!   entries    which names and cookies of one directory do not agree     'n' 'c' of a directory
//!   loops      directories that lie below themselves
//!   maps       block maps against the files that they are of             'b'
//!   packs      accounts against block maps and the bucket                'p' 'x' 'h' 'j'
//!   snapshots  names of snapshots, holders of packs, the history         'k' 'h' 'v'
//!   totals     the volume's counts, and those of quotas                  'v' 'q' 'u'
//!   unreferenced   objects that no metadata refer to                     'p' 'x' 'h' 'b'
//! ```
//!
//! Objects and packs are kept in tables. When they do not fit the memory limit, they are judged in several passes,
//! each over a range of numbers. Together the ranges cover all numbers, so that exactly one pass judges each record.

pub(crate) mod entries;
pub(crate) mod loops;
pub(crate) mod maps;
pub(crate) mod objects;
pub(crate) mod packs;
pub(crate) mod snapshots;
pub(crate) mod totals;
pub(crate) mod unreferenced;
