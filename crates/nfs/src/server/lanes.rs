//! Calls of a connection that were read and cannot begin yet.
//!
//! They are parked, and the calls behind them proceed: small calls have an allowance of their own, and calls of another
//! [`Lane`] do not queue behind them at all. NFS clients expect no order among calls in flight. The number and bytes
//! of parked calls are bounded; at the bound the connection is not read.

use std::collections::VecDeque;

use super::budget::Waiting;
use super::pool::Record;
use crate::engine::Lane;

/// Limits of the parked calls of a connection: their bytes, and their number.
const PARKED_BYTES: usize = 64 << 10;
const PARKED_CALLS: usize = 128;

/// A call that cannot begin yet.
pub(super) struct Parked {
    pub(super) record: Record,
    /// Upper bound for the bytes of its reply.
    pub(super) expected: usize,
    /// Whether its data may be in memory: that was not checked yet.
    pub(super) unlooked: bool,
}

/// The calls of one lane.
#[derive(Default)]
pub(super) struct Queue {
    /// Number of calls that have begun and wait for the file system.
    pub(super) in_flight: usize,
    /// The share that the first parked call waits for.
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
    /// Number of parked calls, all of them READs, whose data may be in memory: that was not checked yet.
    unlooked: usize,
    /// The share under which the first of these will be answered.
    pub(super) memory: Option<Waiting>,
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

    /// Parks a call behind the others of its lane, or returns it if there is no room.
    pub(super) fn park(
        &mut self,
        lane: Lane,
        record: Record,
        expected: usize,
        unlooked: bool,
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
        self.unlooked += usize::from(unlooked);
        let parked = Parked {
            record,
            expected,
            unlooked,
        };
        self.of_mut(lane).parked.push_back(parked);
        Ok(())
    }

    /// Removes the first READ whose data may be in memory, which was not checked yet; returns it with its index.
    pub(super) fn take_unlooked(&mut self) -> Option<(usize, Parked)> {
        if self.unlooked == 0 {
            return None;
        }
        let parked = &mut self.reading.parked;
        let place = parked.iter().position(|call| call.unlooked)?;
        let call = parked.remove(place)?;
        self.forget(&call);
        Some((place, call))
    }

    /// Puts back a READ that was removed.
    pub(super) fn put_back(&mut self, place: usize, call: Parked) {
        self.parked_calls += 1;
        self.parked_bytes += call.record.uncharged_bytes();
        self.unlooked += usize::from(call.unlooked);
        self.reading.parked.insert(place, call);
    }

    fn forget(&mut self, call: &Parked) {
        self.parked_calls -= 1;
        self.parked_bytes -= call.record.uncharged_bytes();
        self.unlooked -= usize::from(call.unlooked);
    }

    /// Removes the first parked call of a lane, and cancels its wait.
    pub(super) fn unpark(&mut self, lane: Lane) -> Option<Parked> {
        let queue = self.of_mut(lane);
        queue.waiting = None;
        let first = queue.parked.pop_front()?;
        if first.unlooked {
            self.memory = None;
        }
        self.forget(&first);
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
        Record::small(vec![0; bytes], fastant::Instant::now())
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
            assert!(lanes.park(lane, call(bytes), 7, false).is_ok());
        }
        let refused = lanes.park(Lane::Changing, call(PARKED_BYTES), 7, false);
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
            assert!(lanes.park(Lane::Looking, call(1), 7, false).is_ok());
        }
        assert!(lanes.park(Lane::Looking, call(1), 7, false).is_err());
    }
    #[test]
    fn those_that_were_not_looked_at_are_found_in_their_order() {
        let mut lanes = Lanes::default();
        for (bytes, unlooked) in [(1, false), (2, true), (3, true)] {
            assert!(lanes.park(Lane::Reading, call(bytes), 7, unlooked).is_ok());
        }
        let (place, mut parked) = lanes.take_unlooked().unwrap();
        assert_eq!((place, parked.record.bytes().len()), (1, 2));
        parked.unlooked = false;
        lanes.put_back(place, parked);
        let (place, parked) = lanes.take_unlooked().unwrap();
        assert_eq!((place, parked.record.bytes().len()), (2, 3));
        assert!(lanes.take_unlooked().is_none());
        lanes.put_back(place, parked);
        let order = [(); 3].map(|()| lanes.unpark(Lane::Reading).unwrap().record.bytes().len());
        assert_eq!(order, [1, 2, 3]);
        assert!(lanes.is_empty() && lanes.take_unlooked().is_none());
    }
}
