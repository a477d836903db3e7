//! The work of one measurement: its bytes and the time of each operation, and the error of an operation that failed.
//!
//! The [steps](super::steps) do it; the [run](super::run) makes a line of the report of it.

use std::time::{Duration, Instant};

use super::BenchError;

/// What a step did.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) bytes: u64,
    /// How long each operation took.
    pub(super) times: Vec<Duration>,
}

impl Work {
    /// Takes the time of an operation that moves so many bytes.
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

    /// Together with what another thread did.
    pub(super) fn join(&mut self, other: Work) {
        self.bytes += other.bytes;
        self.times.extend(other.times);
    }
}

/// Says what could not be done.
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
    let what = what.into();
    |error| BenchError::Io { what, error }
}
