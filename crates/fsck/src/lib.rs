//! Forebay: checks the consistency of a volume in its bucket.
//!
//! [`check`] walks through everything that is published: names, objects, block maps, counts, packs; if asked to, it
//! reads every live frame as well. It changes nothing, fences no gateway, and sees one moment, however long it takes
//! and whichever gateways go on writing: an online check and an offline one are the same. `docs/fsck.md` explains each
//! finding and what to do about it.
//!
//! ```text
//!   check      opens a moment, starts over if that was deleted      check.rs
//!   walk       reads the records that the judges need               walk.rs, walk/, source.rs
//!   judge      decides what is consistent: plain synchronous code   judge/
//!   objects    the objects of the metadata, each as a whole         objects.rs
//!   bucket     objects against accounts: list, headers, indexes     bucket.rs
//!   data       frames: few large GETs, several at a time            data.rs, data/plan.rs
//!   garbage    objects that nothing refers to                       garbage.rs
//!   report     findings, all counted and some kept                  finding.rs, report.rs
//! ```
//!
//! # The moment
//!
//! SlateDB's tables never change; a manifest names those that are the state of one moment. The check pins a manifest: a
//! note in the bucket ([`forebay_meta::SlateReader::open_pinned`]) keeps gateways from deleting the tables that it
//! names. Snapshots have states of their own, which are kept until they are deleted. Packs are not kept: the gateway deletes them when nothing refers to them any more. So a missing pack is
//! looked up in the newest metadata before it is reported.
//!
//! # For a repair
//!
//! A [`Finding`] has the numbers that a repair needs, not only a sentence; the trait [`Sink`] receives findings.
//! Judges know nothing of I/O, so that they can judge the result of a repair before it is written.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod bucket;
mod check;
mod data;
mod ended;
mod explain;
mod finding;
mod garbage;
mod judge;
mod objects;
mod pack_reader;
mod paths;
mod progress;
mod repair;
mod report;
mod source;
mod walk;

pub use check::{CheckError, Options, check};
pub use finding::{Finding, HistoryCount, Name, Sink, VolumeCount};
pub use garbage::{Garbage, GarbageOptions, garbage};
pub use pack_reader::{PackContent, PackReader};
pub use progress::{Progress, Stage};
pub use repair::{Loss, Losses, Observer, RepairError, RepairOptions, Repaired, Step, repair};
pub use report::{Amount, Census, Findings, HeldBy, Report};

#[cfg(test)]
mod tests;
