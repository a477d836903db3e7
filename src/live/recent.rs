//! The last points and states.

use std::collections::VecDeque;

use super::INTERVAL;
use super::answer::{Live, Point};
use super::difference::Difference;
use super::state::State;

/// Points that are kept: those of ten minutes.
pub(super) const POINTS: usize = 300;

/// States that are kept: those between which 10 s lie.
pub(super) const STATES: usize = 6;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Recent {
    points: VecDeque<Point>,
    states: VecDeque<State>,
    /// Of the last point.
    sequence: u64,
}

impl Recent {
    /// Adds the state at the end of an interval; the first one begins the first interval.
    pub(super) fn add(&mut self, state: State) {
        if let Some(before) = self.states.back() {
            self.sequence += 1;
            let point = Difference::new(before, &state).point(self.sequence);
            if self.points.len() == POINTS {
                self.points.pop_front();
            }
            self.points.push_back(point);
        }
        if self.states.len() == STATES {
            self.states.pop_front();
        }
        self.states.push_back(state);
    }

    /// The answer at `time`, in seconds since 1970, with the points after the one with the sequence number `after`.
    pub(super) fn answer(&self, after: u64, time: f64) -> Live {
        let mut live = Live {
            interval_seconds: INTERVAL.as_secs_f64(),
            time,
            series: self.points.iter().cloned().collect(),
            ..Live::default()
        };
        live.leave_out(after);
        if let (Some(first), Some(last)) = (self.states.front(), self.states.back()) {
            live.limits = last.limits;
            Difference::new(first, last).tables(&mut live);
        }
        live
    }
}
