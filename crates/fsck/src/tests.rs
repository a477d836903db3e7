//! A small volume made by hand, in which one thing at a time is put out of place.

mod cases;
mod findings;
mod judges;
mod repair;
mod sharing;
mod volume;
