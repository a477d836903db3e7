//! `forebay bench DIR`: measures the speed of a mounted folder, whatever serves it.
//!
//! It uses the folder as programs do, through system calls, and knows nothing of the file system behind it: so the
//! table of a Forebay mount can be compared with that of any other folder. Consequences for the figures:
//!
//! * Written data is flushed (`fsync`) before the clock stops: a write that only reached a cache does not count.
//! * Data is dropped from this machine's page cache before it is read, as far as the system does that on request; the
//!   server may well have it in memory.
//! * The data does not compress, and everything that is read is compared with the written data.
//!
//! Everything happens in a new folder in `DIR`, which is removed at the end, after an error and after SIGINT as well.

mod data;
mod mount;
mod report;
mod run;
mod steps;
#[cfg(test)]
mod tests;
mod work;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use mount::Mount;
pub use report::{Latencies, Line, Report};

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes of the large file: at least 1 MiB, whole MiB.
    pub file_bytes: u64,
    /// Number of small files: at least 1.
    pub files: u64,
    /// Number of threads of the parallel steps: 1 to 256.
    pub parallel: usize,
}

/// Why nothing was measured, or not everything.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A call of the system failed.
    #[error("{what}: {error}")]
    Io {
        /// The attempted action.
        what: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The data differ from those that were written.
    #[error(
        "{path} at offset {offset}: the bytes read differ from the bytes written; do not trust this folder"
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Offset of the piece that differs.
        offset: u64,
    },
    /// The folder does not list the files that were created in it.
    #[error("{path} lists {found} files, and {expected} were created; do not trust this folder")]
    Listed {
        /// The folder that was listed.
        path: PathBuf,
        /// Number of files that it listed.
        found: u64,
        /// Number of files that were created.
        expected: u64,
    },
    /// The user interrupted the run.
    #[error("interrupted; the benchmark removes its files")]
    Interrupted,
}

/// A request to end a run.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends the run at its next operation, with [`BenchError::Interrupted`].
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), BenchError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => Ok(()),
        }
    }
}

/// Runs the benchmark. Calls `progress` with the name of each step.
///
/// # Errors
///
/// An error of the system, an interruption, or data that differ from those that were written. The files that were
/// created in the folder are removed in each case, as far as possible.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    progress: impl FnMut(&str),
) -> Result<Report, BenchError> {
    run::run(plan, interrupt, progress)
}
