//! The file system of Forebay: inodes, names, data, checkpoints.
//!
//! ```text
//!   Volume (forebay_vfs::FileSystem)       open, replay: take the epoch, judge the local log, replay it
//!      |
//!   restore      puts trees of snapshots back
//!      |
//!   files        operations on files: names, attributes, data, quotas
//!      |
//!   collector    scrub    healer           engines in the background, each over a context of its own
//!      |
//!   publisher    close -> upload -> publish -> reclaim; calls observers of commits
//!      |
//!   state        nodes, the checkpoint lock, changes, journal, memory: one record in the journal and one change in memory
//! ```
//!
//! Each room uses those below it. `rooms` joins them, and `tasks` runs one task for each engine. Below are the crates
//! `pack-store`, `reduction`, `quota`, `environment`, `cache` (block buffers), `wal` (the log), `meta` (names,
//! attributes, block maps), `pack` (frames) and `object` (the bucket). Operations of clients come
//! from above, through [`forebay_vfs::FileSystem`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod collector;
mod config;
mod damages;
mod display_path;
mod files;
mod fragments;
mod healer;
mod open;
mod opening;
mod publisher;
mod replay;
mod restore;
mod rooms;
mod scrub;
mod snapshots;
mod state;
mod status;
mod tasks;
#[cfg(test)]
mod testing;
mod volume;

pub use collector::{CollectRefusal, CollectorStatus, CollectorWait, Space};
pub use config::{FsConfig, Introduction, LogConfig, ROOM_WAIT, Takeover};
pub use damages::{DamageState, DamagedFrame};
pub use display_path::DisplayPath;
pub use files::durability::CommitMode;
pub use files::quota::{LimitChange, Quota, QuotaError};
pub use files::trash::{TrashEntry, TrashError, TrashPage, Wanted};
pub use files::whereabouts::{FlushedPath, PathError, Unknown, Whereabouts};
pub use forebay_environment::state_file::{LocalError, epoch_seen, key_ring_seen};
pub use forebay_environment::{Clock, Compute, Environment, LocalFolder, Metadata, Randomness};
pub use forebay_meta::record::Kind;
pub use forebay_meta::volume::holder::{Holder, StoppedInOrder};
pub use forebay_meta::volume::keys::{Expected, Unlock};
pub use forebay_pack_store::{DiskCacheStatus, MAX_DISK_CACHE, MIN_DISK_CACHE};
pub use forebay_reduction::compression::{Compression, CompressionStatus, Levels};
pub use forebay_reduction::dedup::{Dedup, DedupStatus};
pub use open::{HeldVolume, OpenError};
pub use opening::{Opening, Step};
pub use publisher::{FlushError, Since, Stage};
pub use restore::{RestoreError, RestoreRequest, Restored};
pub use scrub::{CheckedPack, ScrubEnd, ScrubProgress, ScrubRefusal, ScrubStatus, ScrubWait};
pub use snapshots::{Holds, SnapshotCounts, SnapshotError, SnapshotInfo};
pub use state::{BadSnapshotName, Stopped};
pub use status::Status;
pub use volume::{Backlog, Closed, Undeleted, Volume};
