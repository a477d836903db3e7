//! Many runs, in threads, until enough states were tested.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::life::Trace;
use crate::plan::{Perils, Plan};
use crate::run::{Failure, Scope, run};
use crate::totals::Totals;

/// The runs of a suite, and their limits.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The seed of the first run; the others count up from it.
    pub seed: u64,
    /// Ends after this number of runs.
    pub runs: Option<u64>,
    /// Ends after this number of crash states.
    pub states: Option<u64>,
    /// Ends after this time.
    pub time: Option<Duration>,
    /// Number of threads.
    pub threads: usize,
    /// The checks.
    pub scope: Scope,
    /// Faults that may occur besides crashes.
    pub perils: Perils,
}

/// The result of a suite.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counts of everything tested.
    pub totals: Totals,
    /// The failure with the lowest seed.
    pub failure: Option<Failure>,
    /// Duration of the suite.
    pub took: Duration,
}

impl Suite {
    /// Runs the suite; ends early at the first failure.
    pub fn run(&self) -> Outcome {
        let started = Instant::now();
        let next = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let together = Mutex::new((Totals::default(), None::<Failure>));
        let work = || {
            while !over.load(Ordering::Acquire) {
                let number = next.fetch_add(1, Ordering::AcqRel);
                if self.runs.is_some_and(|runs| number >= runs) {
                    return;
                }
                let plan = Plan::of(self.seed.wrapping_add(number), self.perils);
                let result = run(&plan, &self.scope, &mut Trace::default());
                let mut together = together.lock();
                let (totals, failure) = &mut *together;
                match result {
                    Ok(more) => *totals += more,
                    Err(found) => {
                        if failure.as_ref().is_none_or(|known| found.seed < known.seed) {
                            *failure = Some(found);
                        }
                    }
                }
                let enough = self
                    .states
                    .is_some_and(|states| totals.crash_states() >= states)
                    || self.time.is_some_and(|time| started.elapsed() >= time);
                if failure.is_some() || enough {
                    over.store(true, Ordering::Release);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(work);
            }
        });
        let (totals, failure) = together.into_inner();
        Outcome {
            totals,
            failure,
            took: started.elapsed(),
        }
    }
}
