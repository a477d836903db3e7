//! Data reduction of Forebay: fewer bytes to the bucket.
//!
//! * [`compression`]: which frames are compressed, and at which level.
//! * [`dedup`]: which frames the bucket already has.
//!
//! Nothing here does I/O. Uploads ask before they encode a frame, and report how long encoding and sending took.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod compression;
pub mod dedup;
