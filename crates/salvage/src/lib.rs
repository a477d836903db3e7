//! Salvage of Forebay: gets files back from the remains of a volume.
//!
//! | module | out of | gives |
//! |---|---|---|
//! | [`logs`] | the log of a gateway that was taken over | files with their paths, as they were when the log ended |
//! | [`packs`] | packs alone, where the metadata are lost | files that are named by their inode numbers |
//!
//! Both write into a new folder, and change nothing in the bucket or in the log.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod logs;
pub mod packs;
