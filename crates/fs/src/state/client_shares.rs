//! Which clients may fill the last part of a memory that all clients share.
//!
//! Block buffers that cannot be spilled and unpublished names stay in memory until the bucket has them. One client that
//! writes faster than the bucket takes the bytes fills that memory, and then each change of every client waits. So the last
//! [`RESERVED_PART`] is for clients that have filled little: at most half of an equal share. While only one client
//! changes something, it may fill all of the memory.
//!
//! A client's count is the bytes that it was admitted with since the checkpoint before the open one began. That is at
//! least as much as it has in memory: bytes that were uploaded eagerly or overwritten count until then. Where dirty bytes may
//! leave memory, checkpoints may wait for hours; then the count begins with the publication before the last one.
//!
//! Counters are chosen by [`ClientId`] out of a fixed number, so that nothing grows with the number of clients.
//! Two clients that have the same counter count as one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_types::to_usize;
use forebay_vfs::ClientId;

/// The part of a memory that is for clients that have filled little: one in eight.
const RESERVED_PART: u64 = 8;

/// Counters; 64 KiB of them. Of a hundred clients, five share one on average.
const COUNTERS: usize = 1 << 12;

/// How much each client has filled of one memory.
pub(crate) struct ClientShares {
    counters: Box<[Counter]>,
    /// Index of the open checkpoint in [`Counter::bytes`]; the other one belongs to the checkpoint before.
    open: AtomicUsize,
    /// Counters that are not zero.
    clients: AtomicU64,
}

#[derive(Default)]
struct Counter {
    bytes: [AtomicU64; 2],
}

impl Counter {
    fn filled(&self) -> u64 {
        let [one, other] = &self.bytes;
        one.load(Ordering::Relaxed) + other.load(Ordering::Relaxed)
    }
}

impl ClientShares {
    pub(crate) fn new() -> ClientShares {
        ClientShares {
            counters: (0..COUNTERS).map(|_| Counter::default()).collect(),
            open: AtomicUsize::new(0),
            clients: AtomicU64::new(0),
        }
    }

    fn counter(&self, client: ClientId) -> &Counter {
        &self.counters[to_usize(client.0) % COUNTERS]
    }

    /// Counts the bytes that a client was admitted with; not 0.
    pub(crate) fn count(&self, client: ClientId, bytes: u64) {
        let counter = self.counter(client);
        let open = self.open.load(Ordering::Relaxed) % 2;
        let before = counter.bytes[open].fetch_add(bytes, Ordering::Relaxed);
        if before == 0 && counter.bytes[1 - open].load(Ordering::Relaxed) == 0 {
            self.clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A checkpoint closes: bytes of the one before it no longer count.
    pub(crate) fn checkpoint_closed(&self) {
        let next = 1 - self.open.load(Ordering::Relaxed) % 2;
        let mut clients = 0;
        for counter in &self.counters {
            counter.bytes[next].store(0, Ordering::Relaxed);
            clients += u64::from(counter.filled() > 0);
        }
        self.open.store(next, Ordering::Relaxed);
        self.clients.store(clients, Ordering::Relaxed);
    }

    /// How many bytes of a memory of `limit` bytes background work leaves free for clients: none while only one
    /// client changes something.
    pub(crate) fn reserved(&self, limit: u64) -> u64 {
        match self.clients.load(Ordering::Relaxed) {
            0 | 1 => 0,
            _ => limit / RESERVED_PART,
        }
    }

    /// Whether others change something as well, and this client has filled little of a memory of `limit` bytes.
    pub(crate) fn is_light(&self, client: ClientId, limit: u64) -> bool {
        self.clients.load(Ordering::Relaxed) > 1 && self.withheld(client, limit) == 0
    }

    /// How many bytes of a memory of `limit` bytes this client must leave free for others.
    pub(crate) fn withheld(&self, client: ClientId, limit: u64) -> u64 {
        let filled = self.counter(client).filled();
        let clients = self.clients.load(Ordering::Relaxed);
        let is_little = filled.saturating_mul(clients) <= limit / 2;
        match is_little {
            true => 0,
            false => self.reserved(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 8000;
    const COPY: ClientId = ClientId(1);
    const EDITOR: ClientId = ClientId(2);

    #[test]
    fn a_client_alone_may_fill_all_and_one_beside_others_leaves_the_last_part_to_them() {
        let shares = ClientShares::new();
        shares.count(COPY, LIMIT);
        assert_eq!(shares.withheld(COPY, LIMIT), 0);
        assert_eq!(shares.withheld(EDITOR, LIMIT), 0);
        shares.count(EDITOR, 1);
        assert_eq!(shares.withheld(COPY, LIMIT), LIMIT / RESERVED_PART);
        assert_eq!(shares.withheld(EDITOR, LIMIT), 0);
    }

    #[test]
    fn half_of_an_equal_share_is_little() {
        let shares = ClientShares::new();
        shares.count(COPY, LIMIT / 4);
        shares.count(EDITOR, 1);
        assert_eq!(shares.withheld(COPY, LIMIT), 0);
        shares.count(COPY, 1);
        assert!(shares.withheld(COPY, LIMIT) > 0);
        // A third client: with it, less counts as little.
        assert_eq!(shares.withheld(EDITOR, LIMIT), 0);
        shares.count(EDITOR, LIMIT / 4 - 1);
        assert_eq!(shares.withheld(EDITOR, LIMIT), 0);
        shares.count(ClientId(3), 1);
        assert!(shares.withheld(EDITOR, LIMIT) > 0);
    }

    #[test]
    fn bytes_count_for_two_checkpoints() {
        let shares = ClientShares::new();
        shares.count(COPY, LIMIT);
        shares.checkpoint_closed();
        shares.count(EDITOR, 1);
        assert!(shares.withheld(COPY, LIMIT) > 0, "of the closed checkpoint");
        shares.checkpoint_closed();
        assert_eq!(shares.withheld(COPY, LIMIT), 0);
        shares.count(COPY, LIMIT);
        assert!(shares.withheld(COPY, LIMIT) > 0, "beside the closed one's");
        shares.checkpoint_closed();
        assert_eq!(shares.withheld(COPY, LIMIT), 0, "alone again");
    }

    #[test]
    fn any_number_is_a_client() {
        let shares = ClientShares::new();
        shares.count(ClientId(u64::MAX), u64::MAX / 4);
        shares.count(EDITOR, 1);
        assert!(shares.withheld(ClientId(u64::MAX), LIMIT) > 0);
    }
}
