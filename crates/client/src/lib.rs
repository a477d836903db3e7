//! An NFSv3 client for tests, made by hand from RFC 1813, RFC 5531 and RFC 4506, so that server and
//! tests share no codec: a mistake in the server's XDR cannot hide behind the same one here.
//!
//! ```text
//!   Request ---- arguments of one call (request.rs)      Reply ---- its results (reply.rs)
//!        \                                               /
//!         Link ---- many calls under way on one TCP connection, which behaves as a hard mount
//!         (link.rs) does: when the connection breaks it waits for the server, connects again and
//!                   sends every unanswered call once more, under the same transaction number
//! ```
//!
//! Blocking, without threads of its own: who uses a [`Link`] gives it a thread.

#![forbid(unsafe_code)]

mod link;
mod reply;
mod request;
pub mod xdr;

pub use link::{Answer, CallId, Link, LinkError, Reach, Reached, Steady};
pub use reply::{
    Attributes, DirectoryEntry, Failure, FileKind, Found, Listing, Reply, Status, Time, Written,
};
pub use request::{Caller, Create, LAST_FRAGMENT, Request, Stable};
pub use xdr::Malformed;

/// A file handle, as the server gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub Vec<u8>);

/// A write verifier: while it stays, nothing that was answered UNSTABLE is lost.
pub type Verifier = [u8; 8];
