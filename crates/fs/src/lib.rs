//! Forebay: the file system: inodes, names, data, checkpoints.
//!
//! ```text
//!                    Volume (forebay_vfs::FileSystem)
//!      names     attributes     data (read, write, commit)      status
//!        |            |           |        |
//!        +---- change: one record in the journal and one change in memory, inside the gate
//!                     |           |        +---- fetch, prefetch: frames from the bucket
//!                   node: attributes and blocks of one object, newest and as of the closed
//!                     |   checkpoint
//!                     v
//!      checkpoint: close -> upload -> publish -> reclaim       (one task: the publisher; another
//!                     |                                         one uploads what leaves early)
//!                   early: blocks that are in the bucket before their checkpoint is published
//!
//!      open: take the epoch, judge the local log, replay it
//! ```
//!
//! What the volume has already is not uploaded again: `dedup` knows it by its content.
//!
//! What the volume and directory trees may hold is counted in `quota`, as each change is made. `scrub` reads packs back,
//! and `heal` mends what it and readers find damaged, as far as a good copy is at hand.
//!
//! [`logs`] is for an administrator: what is in a log that was put aside, and getting it back.
//!
//! Below it are the layers that it joins: `cache` (block buffers), `wal` (the log), `meta` (names,
//! attributes, block maps), `pack` (frames) and `object` (the bucket). Operations of clients come
//! from above, through [`forebay_vfs::FileSystem`].

#![forbid(unsafe_code)]

mod aside;
mod attributes;
mod background;
mod change;
mod checkpoint;
mod client_shares;
mod compression;
mod config;
mod convert;
mod core;
mod damage;
mod data;
mod dedup;
mod disk_cache;
mod disk_folder;
mod durability;
mod early;
mod environment;
mod fetch;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod heal;
mod hex;
mod journal;
mod local;
mod local_folder;
mod log_failure;
pub mod logs;
mod names;
mod node;
mod numbers;
mod open;
mod opening;
mod paths;
mod prefetch;
mod quota;
mod read;
mod replay;
mod scrub;
mod status;
mod volume;

pub use checkpoint::{CollectRefusal, CollectorStatus, CollectorWait, Space};
pub use compression::{Compression, CompressionStatus, Levels};
pub use config::{FsConfig, Introduction, LogConfig, ROOM_WAIT, Takeover};
pub use core::{FlushError, Stopped};
pub use damage::{DamageState, DamagedFrame};
pub use dedup::{Dedup, DedupStatus};
pub use disk_cache::{DiskCacheStatus, MAX_DISK_CACHE, MIN_DISK_CACHE};
pub use durability::CommitMode;
pub use environment::{Clock, Compute, Environment, Metadata, Randomness};
pub use forebay_meta::volume::holder::{Holder, StoppedInOrder};
pub use forebay_meta::volume::keys::{Expected, Unlock};
pub use local::{LocalError, epoch_seen, key_ring_seen};
pub use local_folder::LocalFolder;
pub use open::{HeldVolume, OpenError};
pub use opening::{Opening, Step};
pub use quota::{DisplayPath, LimitChange, Quota, QuotaError};
pub use scrub::{CheckedPack, ScrubEnd, ScrubProgress, ScrubRefusal, ScrubStatus, ScrubWait};
pub use status::{Stage, Status};
pub use volume::{Closed, Volume};
