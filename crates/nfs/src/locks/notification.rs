//! One message from the lock manager to others. The [lock manager](super) queues it, and
//! [`notifications`](super::notifications) sends it.

use std::net::IpAddr;

use forebay_lock::Grant;

use crate::outgoing::Remote;

/// A message to send.
pub(super) enum Notification {
    /// An owner has got its lock.
    Granted(Grant<Callback>),
    /// The results of an asynchronous call.
    Results {
        remote: Remote,
        procedure: u32,
        results: Vec<u8>,
    },
}

/// The data needed to notify an owner that its lock was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// The cookie of its request.
    pub(crate) cookie: Vec<u8>,
    /// The file, as it named it.
    pub(crate) handle: Vec<u8>,
    /// The local address that the client knows as this server's.
    pub(crate) local: IpAddr,
}
