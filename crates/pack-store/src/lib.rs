//! The pack store of Forebay: reads frames of packs by their addresses, through tiers.
//!
//! ```text
//!   reader -> single flight -> tiers: disk -> bucket
//!             one fetch of a      in order; what comes from one
//!             frame for all       is kept by those before it
//! ```
//!
//! Each frame is verified against its address, whichever tier it comes from. Frames of a pack that are wanted together
//! come with one GET, with small gaps between them. The number of fetches is limited:
//! readers that wait come first, then reading ahead. Uploads put their packs here, and the scrub reads packs piece by
//! piece.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod address;
mod check;
mod disk_tier;
mod fetched;
mod index;
mod places;
mod runs;
mod single_flight;
mod spans;
mod store;
mod tier;
mod window;

pub use address::address_key;
pub use check::NoPiece;
pub use disk_tier::{DiskCache, DiskCacheStatus, FrameKey, MAX_DISK_CACHE, MIN_DISK_CACHE};
pub use fetched::{FetchError, Fetched, FetchedFrom};
pub use runs::{Outcome, Stored};
pub use single_flight::FetchWaiter;
pub use spans::{Gaps, MOST_SPAN, Span, most_gap_bytes, spans};
pub use store::PackStore;
pub use tier::Tier;
