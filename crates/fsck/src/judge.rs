//! Judgement: what is consistent, as plain synchronous code. Each judge is fed records in the order of their keys and
//! says what does not fit; where records come from is nobody's business here.
//!
//! ```text
//!   objects    attributes, names, cookies: links, entries, parents       'i' 'g' 'n' 'c'
//!   entries    which names and cookies of one directory do not agree     'n' 'c' of a directory
//!   loops      directories that lie below themselves
//!   maps       block maps against the files that they are of             'b'
//!   packs      accounts against block maps and the bucket                'p' 'x'
//!   totals     the volume's counts, and those of quotas                  'v' 'q' 'u'
//!   unreferenced   objects that no metadata refer to                     'p' 'x' 'b'
//! ```
//!
//! Objects and packs are kept in tables. What does not fit the memory that is allowed is judged in several passes,
//! each over a range of numbers; together the ranges hold every number there can be, so that every record is judged by
//! exactly one of them.

pub(crate) mod entries;
pub(crate) mod loops;
pub(crate) mod maps;
pub(crate) mod objects;
pub(crate) mod packs;
pub(crate) mod totals;
pub(crate) mod unreferenced;
