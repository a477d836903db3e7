//! Forebay: the metadata of a volume.
//!
//! Names, attributes and block maps are entries of one ordered map. This crate defines their
//! [keys](key) and [values](record), gathers changes into [batches](batch), keeps changes that are
//! logged but not yet in the bucket in the [overlay], and stores the rest in the bucket behind one
//! small trait, [`MetaStore`]. The [catalog] combines the two.
//!
//! ```text
//!            get, scan                      apply(batch)
//!                |                               |
//!   catalog      v                               v
//!   +---------------------------+       +------------------+
//!   | 1. overlay, open          |<------| also in the log  |
//!   | 2. overlay, closed        |       +------------------+
//!   | 3. store                  |<-- commit(closed) at a checkpoint, then discard_oldest
//!   +---------------------------+
//!          MemoryStore, SlateStore
//! ```
//!
//! * [`key`], [`record`], [`batch`]: the schema.
//! * [`overlay`], [`catalog`]: the changes that are not published yet, in front of the published entries.
//! * [`store`]: the trait and the store in memory; [`slate`]: the store in the bucket.
//! * [`held`]: how much of the bucket each snapshot holds.
//! * [`volume`]: the descriptor, the object that makes a prefix of a bucket a volume.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod batch;
pub mod catalog;
mod codec;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod held;
pub mod key;
pub mod log_record;
pub mod overlay;
pub mod record;
pub mod slate;
pub mod store;
pub mod volume;

pub use batch::{Batch, Entry};
pub use catalog::Catalog;
pub use error::{Corrupt, StoreError};
pub use key::{Key, KeyRange};
pub use overlay::Overlay;
pub use record::{BlockMap, FrameAddress, InodeRecord, Record};
pub use slate::{
    Ahead, Sealing, Seen, SlateFolder, SlateObjects, SlateReader, SlateSettings, SlateStore,
    StoredManifest, keys_that_may_differ,
};
pub use store::{Arrived, CacheStatus, Lookups, MemoryStore, MetaStore, NamesInMemory, Ready};
pub use volume::VolumeDescriptor;
