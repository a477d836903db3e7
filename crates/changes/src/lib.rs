//! Forebay: what differs between two published moments of a volume, and the versions of a file across moments.
//!
//! Two moments are two stores of metadata, the old and the new one. [`compare`] reads both in the order of their keys, without walking
//! the tree, and yields each [`Change`] with its path:
//!
//! ```text
//!   1. objects    records of both merged by number      -> made, removed, content, attributes      objects.rs, contents.rs
//!   2. names      names of both merged                  -> paths of made and removed objects,      names.rs
//!                                                          renamed, links
//!   3. names      of the new one, if step 2 has looked   -> paths of content and attributes         names.rs
//!                 up some keys alone, until each changed
//!                 object that was not renamed is found
//! ```
//!
//! Where much has to be read, steps 1 and 2 go through pieces of the keys at the same time, one for each processor and four at most.
//!
//! Paths are put together from the names of directories, which are looked up on demand (`paths.rs`).
//!
//! # Memory
//! 9 bytes for each object that differs, the names of renamed objects and of links that were added or removed, and a constant: some
//! pages of records, and 131,072 directories for paths. An object that is the same in both takes none.

#![forbid(unsafe_code)]

mod change;
mod compare;
mod contents;
mod names;
mod objects;
mod output;
mod pair;
mod paths;
mod versions;
mod workers;

pub use change::{Change, What};
pub use compare::{CompareError, compare};
pub use pair::{Pair, is_compared};
pub use versions::{Found, Moment, Version, find, versions};
