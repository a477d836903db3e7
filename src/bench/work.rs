//! The work of one measurement: its bytes and the time of each operation, and the error of an operation that failed.
//!
//! The [steps](super::steps) do the work; the [run](super::run) makes a line of the report from it.

use std::time::{Duration, Instant};

use super::BenchError;

/// The work of a step.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) bytes: u64,
    /// Duration of each operation.
    pub(super) times: Vec<Duration>,
}

impl Work {
    /// Times an operation that transfers `bytes` bytes.
    pub(super) fn time<T>(
        &mut self,
        bytes: u64,
        operation: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let began = Instant::now();
        let done = operation()?;
        self.times.push(began.elapsed());
        self.bytes += bytes;
        Ok(done)
    }

    /// Adds the work of another thread.
    pub(super) fn join(&mut self, other: Work) {
        self.bytes += other.bytes;
        self.times.extend(other.times);
    }
}

/// Names the action that failed.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
    let what = what.into();
    |error| BenchError::Io { what, error }
}
