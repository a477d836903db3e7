//! The operations on one object, in order, and the states of it that may be found later.
//!
//! An *object* is a thing that one call at a time changes: all names of a writer, the content of a file, or one slot of
//! a file whose slots are written in parallel. Its history is a verified base state and the steps since. The server has
//! executed a step at one moment between the stamps `invoked` and `answered` of one clock that all writers share:
//!
//! ```text
//!    clock  ----1----2----3----4----5----6----7----8---->
//!    object A   [--- step 1 ---]         [--- step 2 ----           (unanswered: no end)
//!    object B        [- step 1 -]   [- step 2 -]
//!                                        ^
//!    a cut at this moment: A has step 1, B has step 1, and perhaps A's or B's step 2
//! ```
//!
//! A crash must leave the state of *all* objects at one cut. State `k` of an object (its first `k` steps are in) is
//! possible for the cuts in the open interval from `invoked` of step `k` to `answered` of step `k + 1`. So every object
//! gives a union of intervals, and there must be a moment that lies in one interval of every object: no name without
//! its data, no later moment of one file beside an earlier one of another.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_client::Time;

/// A moment of the clock that all writers share.
pub type Stamp = u64;

/// Counts; never gives the same stamp twice.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next moment.
    pub fn tick(&self) -> Stamp {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// What an operation does to a state.
pub trait State: Clone {
    /// The operations.
    type Op;
    /// Applies an operation.
    fn apply(&mut self, op: &Self::Op);
}

/// One operation on an object.
#[derive(Clone, Debug)]
pub struct Step<O> {
    /// The operation.
    pub op: O,
    /// Stamp before it was sent.
    pub invoked: Stamp,
    /// Stamp after its answer; `None` if it has no answer yet.
    pub answered: Option<Stamp>,
    /// mtime of the file in the answer, if it had one.
    pub mtime: Option<Time>,
}

/// The moments of possible cuts: after the first and before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(pub Stamp, pub Stamp);

impl Interval {
    /// Any moment.
    pub const ALL: Interval = Interval(0, Stamp::MAX);

    fn meet(self, other: Interval) -> Option<Interval> {
        let both = Interval(self.0.max(other.0), self.1.min(other.1));
        (both.0 < both.1).then_some(both)
    }
}

/// The history of one object since it was verified last.
#[derive(Clone, Debug)]
pub struct History<S: State> {
    /// The verified state.
    pub base: S,
    /// mtime in the base, if it is known.
    pub base_mtime: Option<Time>,
    /// The steps since; only the last may be unanswered.
    pub steps: Vec<Step<S::Op>>,
    /// Number of steps that the server has promised to be on stable storage.
    pub stable: usize,
}

impl<S: State> History<S> {
    /// A history that begins with this state.
    pub fn new(base: S) -> History<S> {
        History {
            base,
            base_mtime: None,
            steps: Vec::new(),
            stable: 0,
        }
    }

    /// Number of steps that were answered.
    pub fn answered(&self) -> usize {
        let answered = |step: &&Step<S::Op>| step.answered.is_some();
        self.steps.iter().filter(answered).count()
    }

    /// Counts of steps after which the object passes `test`; counts below `stable` are left out. The test also receives
    /// the mtime after these steps, where it is known.
    pub fn matches(&self, mut test: impl FnMut(&S, Option<Time>) -> bool) -> Vec<usize> {
        let mut state = self.base.clone();
        let mut found = Vec::new();
        if self.stable == 0 && test(&state, self.base_mtime) {
            found.push(0);
        }
        for (index, step) in self.steps.iter().enumerate() {
            state.apply(&step.op);
            if index + 1 >= self.stable && test(&state, step.mtime) {
                found.push(index + 1);
            }
        }
        found
    }

    /// The possible cuts if exactly `count` steps are in.
    pub fn interval(&self, count: usize) -> Interval {
        let before = count.checked_sub(1).and_then(|last| self.steps.get(last));
        let after = self.steps.get(count).and_then(|step| step.answered);
        Interval(
            before.map_or(0, |step| step.invoked),
            after.unwrap_or(Stamp::MAX),
        )
    }

    /// The state after `count` steps.
    pub fn state(&self, count: usize) -> S {
        let mut state = self.base.clone();
        for step in self.steps.iter().take(count) {
            state.apply(&step.op);
        }
        state
    }

    /// Makes the state after `count` steps the base and drops all steps, except an unanswered one if `keep` is set.
    /// Returns whether that unanswered step is in the base; `None` if there is none or `keep` is not set.
    pub fn settle(&mut self, count: usize, keep: bool) -> Option<bool> {
        self.base = self.state(count);
        if let Some(last) = count.checked_sub(1).and_then(|last| self.steps.get(last)) {
            self.base_mtime = last.mtime;
        }
        let answered = self.answered();
        self.stable = 0;
        if !keep || answered == self.steps.len() {
            self.steps.clear();
            return None;
        }
        let done = count > answered;
        self.steps.drain(..answered);
        if done {
            self.steps.clear();
        }
        Some(done)
    }
}

/// The moments that all of `unions` allow, each a union of intervals. `Err` has the index of the first that leaves
/// none.
pub fn meet<'a>(unions: impl IntoIterator<Item = &'a [Interval]>) -> Result<Vec<Interval>, usize> {
    let mut moments = vec![Interval::ALL];
    for (index, union) in unions.into_iter().enumerate() {
        moments = moments
            .iter()
            .flat_map(|moment| union.iter().filter_map(|interval| moment.meet(*interval)))
            .collect();
        if moments.is_empty() {
            return Err(index);
        }
    }
    Ok(moments)
}
