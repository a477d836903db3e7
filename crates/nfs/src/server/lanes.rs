//! Calls of a connection that were read and cannot begin yet.
//!
//! They are parked, and what comes behind them goes on: small calls have an allowance of their own, and those of another
//! [`Lane`] are not behind them at all. NFS clients expect no order among calls that are under way at the same time. What can
//! be parked is bounded; beyond that the connection is not read on.

use std::collections::VecDeque;

use super::budget::Waiting;
use super::pool::Record;
use crate::engine::Lane;

/// Bytes of calls that a connection may have parked, and their number.
const PARKED_BYTES: usize = 64 << 10;
const PARKED_CALLS: usize = 128;

/// A call that cannot begin yet.
pub(super) struct Parked {
    pub(super) record: Record,
    /// Bytes that its reply may have.
    pub(super) expected: usize,
}

/// The calls of one lane.
#[derive(Default)]
pub(super) struct Queue {
    /// Those that have begun and wait for the file system.
    pub(super) in_flight: usize,
    /// The share that the first parked one waits for.
    pub(super) waiting: Option<Waiting>,
    parked: VecDeque<Parked>,
}

impl Queue {
    pub(super) fn first(&self) -> Option<&Parked> {
        self.parked.front()
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Lanes {
    looking: Queue,
    reading: Queue,
    changing: Queue,
    parked_calls: usize,
    parked_bytes: usize,
}

impl Lanes {
    pub(super) fn of(&self, lane: Lane) -> &Queue {
        match lane {
            Lane::Looking => &self.looking,
            Lane::Reading => &self.reading,
            Lane::Changing => &self.changing,
        }
    }

    pub(super) fn of_mut(&mut self, lane: Lane) -> &mut Queue {
        match lane {
            Lane::Looking => &mut self.looking,
            Lane::Reading => &mut self.reading,
            Lane::Changing => &mut self.changing,
        }
    }

    /// Parks a call behind the others of its lane, or gives it back if there is no room.
    pub(super) fn park(
        &mut self,
        lane: Lane,
        record: Record,
        expected: usize,
    ) -> Result<(), Record> {
        let bytes = record.uncharged_bytes();
        let is_large = bytes == 0;
        if is_large || self.parked_calls >= PARKED_CALLS || self.parked_bytes + bytes > PARKED_BYTES
        {
            return Err(record);
        }
        let record = record.into_own_buffer();
        self.parked_calls += 1;
        self.parked_bytes += record.uncharged_bytes();
        let parked = Parked { record, expected };
        self.of_mut(lane).parked.push_back(parked);
        Ok(())
    }

    /// Takes the first parked call of a lane out; what it waited for is not waited for any more.
    pub(super) fn unpark(&mut self, lane: Lane) -> Option<Parked> {
        let queue = self.of_mut(lane);
        queue.waiting = None;
        let first = queue.parked.pop_front()?;
        self.parked_calls -= 1;
        self.parked_bytes -= first.record.uncharged_bytes();
        Some(first)
    }

    /// Whether no call is parked.
    pub(super) fn is_empty(&self) -> bool {
        self.parked_calls == 0
    }

    /// Bytes of the calls that are parked.
    pub(super) fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(bytes: usize) -> Record {
        Record::small(vec![0; bytes])
    }

    #[test]
    fn lanes_have_an_order_each_and_a_bound_together() {
        let mut lanes = Lanes::default();
        assert!(lanes.is_empty());
        for (lane, bytes) in [
            (Lane::Reading, 100),
            (Lane::Changing, 30_000),
            (Lane::Reading, 200),
        ] {
            assert!(lanes.park(lane, call(bytes), 7).is_ok());
        }
        let refused = lanes.park(Lane::Changing, call(PARKED_BYTES), 7);
        assert_eq!(
            refused.map_err(|call| call.bytes().len()),
            Err(PARKED_BYTES)
        );
        assert_eq!(lanes.parked_bytes(), 30_300);
        let order = [Lane::Reading, Lane::Reading, Lane::Changing];
        let lengths = order.map(|lane| lanes.unpark(lane).unwrap().record.bytes().len());
        assert_eq!(lengths, [100, 200, 30_000]);
        assert!(lanes.is_empty() && lanes.parked_bytes() == 0);
        assert!(lanes.unpark(Lane::Looking).is_none());
        for _ in 0..PARKED_CALLS {
            assert!(lanes.park(Lane::Looking, call(1), 7).is_ok());
        }
        assert!(lanes.park(Lane::Looking, call(1), 7).is_err());
    }
}
