//! The rules of RFC 1813 for NFS version 3 as data, and a client that checks every byte of a reply.
//!
//! ```text
//!   rfc1813   procedures, statuses, and which of them each procedure may answer (its lists of ERRORS)
//!      |
//!   call      arguments of every procedure          results   results of each procedure, byte for byte
//!       \                                            /
//!        connection    one call and its reply over TCP, with any credential
//! ```
//!
//! The tests in `tests/wire` drive the whole stack with it: TCP, RPC, the protocol engine, and the real file system on
//! a bucket. It shares no code with the server: its codec is that of `forebay-client`, written by hand from RFC 4506.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "numbers here are small")]

pub mod call;
pub mod connection;
pub mod results;
pub mod rfc1813;

pub use call::Call;
pub use connection::{Connection, Identity, Rejected};
pub use results::Results;
pub use rfc1813::{Procedure, Status};
