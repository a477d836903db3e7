//! What RFC 1813 says of NFS version 3, as data, and a client that takes nothing on trust.
//!
//! ```text
//!   rfc1813   procedures, statuses, and which of them each procedure may answer (its lists of ERRORS)
//!      |
//!   call      arguments of every procedure          results   what each procedure answers, byte for byte
//!       \                                            /
//!        connection    one call and its reply over TCP, in anybody's name
//! ```
//!
//! The tests in `tests/wire` drive the whole stack with it: TCP, RPC, the protocol engine, and the real file
//! system on a bucket. Nothing here is shared with the server: the codec is that of `forebay-client`, made by
//! hand from RFC 4506.

#![forbid(unsafe_code)]

pub mod call;
pub mod connection;
pub mod results;
pub mod rfc1813;

pub use call::Call;
pub use connection::{Connection, Identity, Rejected};
pub use results::Results;
pub use rfc1813::{Procedure, Status};
