//! Whose a lock is.

use std::net::IpAddr;
use std::sync::Arc;

/// A client machine: its address, and the name that it gives itself (`caller_name`).
///
/// Neither is enough alone: machines behind one address differ by their names, and names are often the same
/// ("localhost").
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The address that its calls come from, an IPv4 one never written as IPv6.
    pub host: IpAddr,
    /// Its name, as it says.
    pub name: Vec<u8>,
}

/// What holds a lock, or waits for one: a process, or whatever the client takes for its like.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The machine; first, so that the owners of one lie side by side.
    pub client: Arc<Client>,
    /// Number of the process there (`svid`).
    pub process: i32,
    /// What else the client tells its owners apart by (`oh`).
    pub handle: Vec<u8>,
}

/// From which life of its client a lock is: the client's NSM state number, which changes with
/// every boot. 0 where the client does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation(pub i32);
