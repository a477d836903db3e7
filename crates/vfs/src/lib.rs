//! Forebay: the contract between a front end (NFS, later S3) and the file system behind it.
//!
//! A front end speaks a protocol and knows no block, log or bucket; a file system knows no
//! protocol. This crate defines the interface between them: POSIX-shaped attributes, one error type
//! ([`Error`]), the traits [`FileSystem`], [`Snapshots`] and [`Trash`], counts of waiting and refused calls ([`Troubles`]) and the rules of access
//! ([`permission`]). Benchmarks and tests of a front end use a file system in memory behind it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod attributes;
mod error;
#[cfg(feature = "memory")]
pub mod memory;
mod operations;
pub mod permission;
mod snapshots;
mod trash;
mod trouble;

pub use attributes::{
    Access, Attributes, Device, FileKind, LINK_MAX, SetAttributes, SetTime, Timestamp,
    WccAttributes,
};
pub use error::{Error, Result};
pub use forebay_types::Pieces;
pub use operations::{
    Change, ClientId, CreateMode, Created, Credentials, DirectoryEntry, FileSystem, Groups,
    Listing, NewNode, ReadReply, Stability, Statistics, Verifier, WriteReply,
};
pub use snapshots::Snapshots;
pub use trash::{Trash, Trees, trash_name};
pub use trouble::{Counts, Trouble, Troubles, Waiting};
