//! One thing that the lock manager has to tell others. The [lock manager](super) notes it, and
//! [`errands`](super::errands) carries it out.

use std::net::IpAddr;

use forebay_lock::Grant;

use crate::outgoing::Remote;

/// Something to be told.
pub(super) enum Errand {
    /// An owner has got its lock.
    Granted(Grant<Callback>),
    /// The results of an asynchronous call.
    Results {
        remote: Remote,
        procedure: u32,
        results: Vec<u8>,
    },
}

/// What is needed to tell an owner that it has got its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback {
    /// The cookie of its request.
    pub(crate) cookie: Vec<u8>,
    /// The file, as it named it.
    pub(crate) handle: Vec<u8>,
    /// The own address that it knows.
    pub(crate) local: IpAddr,
}
