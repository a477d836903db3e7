//! By what a call is known.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

use twox_hash::XxHash3_64;

use crate::Transport;

/// Clients count their transaction ids up: what is kept of so many lies together, and is fetched from memory together.
const RUN: u32 = 32;

/// 2^64 divided by the golden ratio: a product with it is spread evenly in its upper bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two calls are the same if all of this is: a client that repeats one sends the same bytes. Not port or connection:
/// both may change on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayKey {
    /// Of the whole record: transaction id, program, procedure, credential and arguments.
    checksum: u64,
    xid: u32,
    address: IpAddr,
    /// A reply that went out protected must not be had again without.
    transport: Transport,
}

impl ReplayKey {
    /// A number that is spread evenly, and that clients cannot choose.
    pub(super) fn spread(&self) -> u64 {
        self.checksum
    }
}

/// Makes keys. Its secret is drawn anew for each cache: nobody can make up calls whose checksums are those of others,
/// be it to have one taken for the other or to have the cache search long. To be taken for one another, two calls
/// would need one checksum *and* one transaction id and client.
#[derive(Debug)]
pub(super) struct Keys {
    secret: u64,
}

impl Keys {
    pub(super) fn new() -> Keys {
        Keys {
            secret: RandomState::new().build_hasher().finish(),
        }
    }

    /// The key of a record that this client sent over such a connection, and a number that is the same for
    /// [`RUN`] transaction ids of the client that follow one another, and else spread evenly.
    pub(super) fn of(
        &self,
        address: IpAddr,
        transport: Transport,
        record: &[u8],
    ) -> (ReplayKey, u32) {
        let xid = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
        // Also where many clients send the very same, they are spread.
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let (network, host) = ((number >> 64) as u64, number as u64);
        let seed = self.secret ^ network.rotate_left(32) ^ host;
        let key = ReplayKey {
            checksum: XxHash3_64::oneshot_with_seed(seed, record),
            xid,
            address,
            transport,
        };
        let run = (seed ^ u64::from(xid / RUN)).wrapping_mul(GOLDEN);
        (key, (run >> 32) as u32)
    }
}
