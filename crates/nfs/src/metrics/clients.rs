//! Calls and bytes of each client. The number of clients is bounded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_metrics::{Counter, Family, Samples, Value, table};
use parking_lot::Mutex;

/// Addresses that are counted apart.
const CLIENTS: usize = 256;

/// The label of all others.
const OTHER: &str = "other";

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// What a client has done.
#[derive(Debug, Default)]
pub(crate) struct ClientCounts {
    calls: Counter,
    nanos: Counter,
    received: Counter,
    sent: Counter,
}

impl ClientCounts {
    /// Counts a call that took this time.
    #[inline]
    pub(crate) fn answered(&self, nanos: u64) {
        self.calls.add(1);
        self.nanos.add(nanos);
    }

    /// Counts bytes that came from the client.
    pub(crate) fn received(&self, bytes: u64) {
        self.received.add(bytes);
    }

    /// Counts bytes that went to the client.
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent.add(bytes);
    }

    fn add(&self, other: &ClientCounts) {
        self.calls.add(other.calls.get());
        self.nanos.add(other.nanos.get());
        self.received.add(other.received.get());
        self.sent.add(other.sent.get());
    }

    fn collect(&self, client: &str, samples: &mut Samples) {
        let client: Cow<'static, str> = Cow::Owned(client.to_owned());
        let mut add = |family: &'static Family, value: f64| {
            samples.add(family, [client.clone()], Value::Counter(value));
        };
        add(&table::CLIENT_CALLS, self.calls.get() as f64);
        add(&table::CLIENT_CALL_SECONDS, self.nanos.get() as f64 / NANOS);
        add(&table::CLIENT_RECEIVED, self.received.get() as f64);
        add(&table::CLIENT_SENT, self.sent.get() as f64);
    }
}

/// See the module's documentation. Calls do not take its lock: a connection looks its client up once.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    known: Mutex<Known>,
    /// Addresses that are not counted apart.
    other: Arc<ClientCounts>,
}

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<IpAddr, Entry>,
    /// Increases with each look-up.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    counts: Arc<ClientCounts>,
    /// When it was looked up last.
    looked_up: u64,
}

impl Clients {
    /// The counts of the client at `address`, for a connection. If there are too many addresses, the one that was
    /// looked up longest ago of those without connections becomes one of the others.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<ClientCounts> {
        let known = &mut *self.known.lock();
        known.clock += 1;
        if !known.counts.contains_key(&address) && known.counts.len() >= CLIENTS {
            let idle = known
                .counts
                .iter()
                .filter(|(_, entry)| Arc::strong_count(&entry.counts) == 1);
            let Some(oldest) = idle
                .min_by_key(|(_, entry)| entry.looked_up)
                .map(|(address, _)| *address)
            else {
                return self.other.clone();
            };
            if let Some(entry) = known.counts.remove(&oldest) {
                self.other.add(&entry.counts);
            }
        }
        let entry = known.counts.entry(address).or_insert_with(|| Entry {
            counts: Arc::default(),
            looked_up: 0,
        });
        entry.looked_up = known.clock;
        entry.counts.clone()
    }

    /// The counts of addresses that are not counted apart.
    pub(crate) fn other(&self) -> Arc<ClientCounts> {
        self.other.clone()
    }

    /// Adds the values of all clients, and of the others.
    pub(super) fn collect(&self, samples: &mut Samples) {
        let known: Vec<_> = {
            let known = self.known.lock();
            let counts = known.counts.iter();
            counts
                .map(|(address, entry)| (*address, entry.counts.clone()))
                .collect()
        };
        for (address, counts) in known {
            counts.collect(&address.to_string(), samples);
        }
        self.other.collect(OTHER, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    fn calls(clients: &Clients, client: &str) -> Option<f64> {
        let mut samples = Samples::default();
        clients.collect(&mut samples);
        samples.number("client_calls", &[client])
    }

    #[test]
    fn a_client_keeps_its_counts_over_connections() {
        let clients = Clients::default();
        clients.of(address(1)).answered(5);
        clients.of(address(1)).answered(5);
        assert_eq!(calls(&clients, "0.0.0.1"), Some(2.0));
        assert_eq!(calls(&clients, OTHER), Some(0.0));
    }

    #[test]
    fn the_longest_idle_client_makes_room_and_nothing_is_lost() {
        let clients = Clients::default();
        let connected = clients.of(address(0));
        connected.answered(5);
        for number in 1..CLIENTS {
            clients.of(address(number)).answered(5);
        }
        clients.of(address(1)).answered(5);
        clients.of(address(CLIENTS)).answered(5);
        assert_eq!(calls(&clients, "0.0.0.0"), Some(1.0), "it is connected");
        assert_eq!(calls(&clients, "0.0.0.1"), Some(2.0), "it was here lately");
        assert_eq!(calls(&clients, "0.0.0.2"), None);
        assert_eq!(calls(&clients, "0.0.1.0"), Some(1.0));
        assert_eq!(calls(&clients, OTHER), Some(1.0));
    }

    #[test]
    fn connected_clients_are_not_replaced() {
        let clients = Clients::default();
        let connected: Vec<_> = (0..CLIENTS)
            .map(|number| clients.of(address(number)))
            .collect();
        clients.of(address(CLIENTS)).answered(5);
        assert_eq!(calls(&clients, OTHER), Some(1.0));
        drop(connected);
    }
}
