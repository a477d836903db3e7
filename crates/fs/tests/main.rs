//! The promises of the file system, proven on all of it: a running volume, on a bucket and a log that fail, stall and
//! end as the test says. One program for all tests, because linking it costs more than running it; a module for each
//! subject.

#![allow(missing_docs)]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod checkpoints;
mod client_shares;
mod cold_names;
mod collecting;
mod commit_modes;
mod common;
mod compression;
mod damaged_metadata;
mod deduplication;
mod disk_cache;
mod disk_faults;
mod effort;
mod far_store;
mod fencing;
mod fetched_once;
mod fragmented_files;
mod gaps;
mod healing;
mod histories;
mod interrupted_opening;
mod leaving_early;
mod limits;
mod lost_records;
mod model;
mod moving;
mod objects_gone;
mod one_node_per_inode;
mod paths;
mod publishing_order;
mod put_back;
mod quota;
mod reading_ahead;
mod refusals;
mod restart;
mod round_trips;
mod scrub;
mod sealed_log;
mod sealing;
mod semantics;
mod snapshots;
mod spilled;
mod store_faults;
mod traps;
#[path = "traps.rs"]
#[allow(
    clippy::duplicate_mod,
    reason = "the same tests, with all dirty bytes in the log alone"
)]
mod traps_in_the_log;
mod trash;
mod truncating;
mod uploads_in_flight;
mod watchdog;
mod whereabouts;
