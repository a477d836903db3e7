//! The current step of an opening, for the watch and for `status`.

use std::sync::Arc;

use parking_lot::Mutex;

/// The current step of a volume's opening. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Opening(Arc<Mutex<Step>>);

/// A step of an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The number of steps before it.
    pub number: u64,
    /// The step, and its progress where that is known: "reading the manifest".
    pub what: String,
}

impl Opening {
    /// Begins the next step.
    pub fn begin(&self, what: impl Into<String>) {
        let mut step = self.0.lock();
        step.number += 1;
        step.what = what.into();
    }

    /// Notes the progress of the step.
    pub(crate) fn goes_on(&self, what: String) {
        self.0.lock().what = what;
    }

    /// The current step.
    pub fn step(&self) -> Step {
        self.0.lock().clone()
    }
}
