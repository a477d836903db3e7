//! Tests the whole server against RFC 1813 over TCP: raw calls to the protocol engine, behind it the real file system
//! on a bucket in a local folder whose store and disk fail on demand. The server runs in the test's own process,
//! because most faults behind it cannot be caused from outside a program.
//!
//! * `table`: the scenario that shows each error of each procedure, why some errors are impossible, and why some are
//!   returned that RFC 1813 does not list. A status that is not in the table fails any test here that meets it.
//! * `names`, `kinds`, `rights`, `resources`, `faults`: the scenarios of the table.
//! * `stack`: server and clients; `metadata`: a bucket out of reach.
//! * `sizes`: boundary sizes of data, names, handles and XDR itself.
//! * `listing`: READDIR and READDIRPLUS with every size, while names are added and removed, across a restart.
//! * `consistency`: the attributes before and after a change in replies.
//! * `creation`: CREATE in its three modes, repeated, after a restart; guards.
//! * `mounting`: the errors of MNT, and the handles that it gives.
//! * `locks`: NLM on the file system.

#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

mod consistency;
mod creation;
mod faults;
mod kinds;
mod listing;
mod locks;
mod metadata;
mod mounting;
mod names;
mod resources;
mod rights;
mod sizes;
mod stack;
mod table;
#[path = "../../../fs/tests/common/mod.rs"]
mod volume;
