//! Owners of locks.

use std::net::IpAddr;
use std::sync::Arc;

/// A client machine: its address, and the name that it claims (`caller_name`).
///
/// Neither is enough alone: machines behind one address differ by their names, and names are often the same
/// ("localhost").
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The address that its calls come from; an IPv4-mapped IPv6 address is stored as IPv4.
    pub host: IpAddr,
    /// Its name, as claimed.
    pub name: Vec<u8>,
}

/// The holder of a lock, or a waiter for one: a process, or what the client uses in place of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The machine. This field is first, so that the owners of one machine are adjacent in order.
    pub client: Arc<Client>,
    /// The process id on that machine (`svid`).
    pub process: i32,
    /// Further data by which the client distinguishes its owners (`oh`).
    pub handle: Vec<u8>,
}

/// The client's life between two boots to which a lock belongs: the client's NSM state number, which changes with
/// every boot. 0 if the client does not send one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation(pub i32);
