//! Forebay: a read-only file system over one published moment of a volume.
//!
//! A [`View`] is a catalog at a moment and the packs that it refers to. It is a [`FileSystem`](forebay_vfs::FileSystem) whose changes
//! fail as EROFS, for snapshots and gateways that only read; a salvage reads files below a log from it.
//!
//! | module | provides |
//! |---|---|
//! | `moment` | opening, names, records and bytes |
//! | `frames` | the frames that were read last |
//! | `published` | the snapshots of a volume and its newest state, out of the bucket alone |
//! | `file_system` | the operations of NFS over that |
//! | [`convert`] | records as front ends see them; the file system that writes uses it as well |

#![forbid(unsafe_code)]

pub mod convert;
mod file_system;
mod frames;
mod moment;
mod published;

pub use moment::{View, ViewError, data_keys};
pub use published::{Published, SnapshotAway};
