//! How many connections each client may have.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::shares::Shares;
use crate::Limits;
use crate::address::ClientNetwork;

/// Divisor of the connections: this fraction is for clients that have few. A client has few as long as it has less
/// than 1/`FEW_PART` of all.
const RESERVED_PART: usize = 8;
const FEW_PART: usize = 64;

/// A stranger needs one connection, to receive its refusal; a few may be open at the same time.
const FEW_OF_STRANGER: usize = 4;

type Divided = Arc<Mutex<Shares<ClientNetwork>>>;

/// The seats of all connections.
pub(super) struct Seats {
    known: Divided,
    strangers: Divided,
}

impl Seats {
    pub(super) fn new(limits: &Limits) -> Seats {
        let (all, strangers) = (limits.connections, limits.stranger_connections);
        let few = (all / FEW_PART).max(1);
        let divided = |all, reserve, few| Arc::new(Mutex::new(Shares::new(all, reserve, few)));
        Seats {
            known: divided(all, all / RESERVED_PART, few),
            strangers: divided(strangers, strangers / 4 * 3, FEW_OF_STRANGER),
        }
    }

    /// Takes a seat for a connection from `peer`, if one is available. A stranger is a client that no export names.
    pub(super) fn take(&self, peer: SocketAddr, is_stranger: bool) -> Option<Seat> {
        let client = ClientNetwork::of(peer.ip());
        let divided = match is_stranger {
            true => &self.strangers,
            false => &self.known,
        };
        let taken = divided.lock().take(client, 1);
        taken.then(|| Seat {
            divided: divided.clone(),
            client,
        })
    }
}

/// A connection's seat; free again when dropped.
pub(super) struct Seat {
    divided: Divided,
    client: ClientNetwork,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.divided.lock().give(self.client, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 700))
    }

    fn fill(seats: &Seats, number: u8, is_stranger: bool) -> Vec<Seat> {
        std::iter::from_fn(|| seats.take(from(number), is_stranger)).collect()
    }

    #[test]
    fn one_client_leaves_connections_for_others_and_a_stranger_for_strangers() {
        let seats = Seats::new(&Limits {
            connections: 640,
            ..Limits::default()
        });
        let one = fill(&seats, 1, false);
        assert_eq!(one.len(), 560);
        let others: Vec<_> = (2..10).map(|other| fill(&seats, other, false)).collect();
        assert!(others.iter().all(|other| other.len() == 10));
        let stranger = fill(&seats, 20, true);
        assert_eq!(stranger.len(), 16);
        assert_eq!(fill(&seats, 21, true).len(), FEW_OF_STRANGER);
        drop(one);
        assert!(seats.take(from(1), false).is_some());
    }

    #[test]
    fn the_smallest_limit_is_one_that_can_be_used() {
        let seats = Seats::new(&Limits {
            connections: 1,
            ..Limits::default()
        });
        assert_eq!(fill(&seats, 1, false).len(), 1);
    }
}
