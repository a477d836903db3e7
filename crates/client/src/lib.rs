//! An NFSv3 client for tests, written by hand from RFC 1813, RFC 5531 and RFC 4506, so that server and
//! tests share no codec: an error in the server's XDR cannot be hidden by the same error here.
//!
//! ```text
//!   Request ---- arguments of one call (request.rs)      Reply ---- its results (reply.rs)
//!        \                                               /
//!         Link ---- many calls in flight on one TCP connection, which behaves like a hard mount
//!         (link.rs) does: when the connection breaks it waits for the server, reconnects and
//!                   resends every unanswered call, under the same transaction id
//! ```
//!
//! Blocking, without threads of its own: the user of a [`Link`] runs it on a thread.

#![forbid(unsafe_code)]

mod link;
mod reply;
mod request;
pub mod xdr;

pub use link::{Answer, CallId, Link, LinkError, Reach, Reached, Steady};
pub use reply::{
    Attributes, DirectoryEntry, Failure, FileKind, Found, Listing, Reply, Space, Status, Time,
    Written,
};
pub use request::{Caller, Create, LAST_FRAGMENT, Request, Stable};
pub use xdr::Malformed;

/// A file handle, as the server returned it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub Vec<u8>);

/// A write verifier: while it does not change, no write that was answered as UNSTABLE is lost.
pub type Verifier = [u8; 8];
