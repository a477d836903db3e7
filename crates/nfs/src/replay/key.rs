//! The key that identifies a call.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

use twox_hash::XxHash3_64;

use crate::Transport;

/// Clients increment their transaction ids. The entries of this many consecutive ids lie together in memory, so that
/// they are fetched together.
const RUN: u32 = 32;

/// 2^64 divided by the golden ratio: the upper bits of a product with it are evenly distributed.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Two calls are the same if all fields are equal: a client that repeats a call sends the same bytes. Port and
/// connection are not part of the key, because both may change between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayKey {
    /// Checksum of the whole record: transaction id, program, procedure, credential and arguments.
    checksum: u64,
    xid: u32,
    address: IpAddr,
    /// A reply that was sent over a protected connection must not be available over an unprotected one.
    transport: Transport,
}

impl ReplayKey {
    /// An evenly distributed number that clients cannot choose.
    pub(super) fn spread(&self) -> u64 {
        self.checksum
    }
}

/// Makes keys. The secret is random and new for each cache, so no client can construct calls whose checksums collide
/// with those of others, either to get one call mistaken for another or to slow down the search. For a mistake, two
/// calls would need the same checksum *and* the same transaction id and client.
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

    /// Returns the key of a record that this client sent over a connection with this protection, and a number that is
    /// the same for [`RUN`] consecutive transaction ids of the client, and otherwise evenly distributed.
    pub(super) fn of(
        &self,
        address: IpAddr,
        transport: Transport,
        record: &[u8],
    ) -> (ReplayKey, u32) {
        let xid = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
        // Evenly distributed also when many clients send identical records.
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let network = (number >> 64) as u64;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower half of the address"
        )]
        let host = number as u64;
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
