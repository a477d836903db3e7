//! A small volume made by hand; each test damages one thing in it.

mod cases;
mod findings;
mod judges;
mod past;
mod repair;
mod sharing;
mod snapshots;
mod volume;
