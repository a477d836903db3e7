//! The whole server, held to RFC 1813 over TCP: raw calls to the protocol engine, behind it the real file system
//! on a bucket in a local folder whose store and disk fail on demand. It runs in the test's own process, since
//! most of what can go wrong behind a server cannot be ordered from a program.
//!
//! * `table`: which scenario shows which error of which procedure, why some errors cannot be, and why some that
//!   RFC 1813 does not list are given. A status that the table does not have fails any test here that meets it.
//! * `names`, `kinds`, `rights`, `resources`, `faults`: the scenarios of the table.
//! * `stack`: server and clients; `metadata`: a bucket out of reach.
//! * `sizes`: boundary sizes of data, names, handles and XDR itself.
//! * `listing`: READDIR and READDIRPLUS by every size, while names come and go, across a restart.
//! * `consistency`: what replies say was before and after a change.
//! * `creation`: CREATE in its three ways, repeated, after a restart; guards.
//! * `mounting`: the errors of MNT, and the handles that it gives.
//! * `locks`: NLM where it meets the file system.

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
