//! `forebay bench DIR`: how fast a mounted folder is, whoever serves it.
//!
//! It uses the folder as programs do, through the system's calls, and knows nothing of what is behind it: so
//! the table of a Forebay mount can be laid beside that of any other folder. What that means for the figures:
//!
//! * What is written is flushed (`fsync`) before the clock stops: a writer that was merely believed counts
//!   for nothing.
//! * What is read was dropped from this machine's page cache before, as far as the system does that when it is
//!   asked; the server may well have it in memory.
//! * The data does not compress, and what is read is compared with what was written.
//!
//! Everything happens in a folder of its own in `DIR`, which is removed at the end, after an error and
//! after SIGINT too.

mod data;
mod place;
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

pub use place::Place;
pub use report::{Latencies, Line, Report};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes of the large file: at least 1 MiB, whole MiB.
    pub file_bytes: u64,
    /// How many small files there are: at least 1.
    pub files: u64,
    /// How many threads do what is done in parallel: 1 to 256.
    pub parallel: usize,
}

/// Why nothing was measured, or not all.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A call of the system failed.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// What was read is not what was written.
    #[error(
        "{path} at offset {offset}: what was read is not what was written; the folder must not be trusted"
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Where the piece begins that differs.
        offset: u64,
    },
    /// The folder does not list what was made in it.
    #[error(
        "{path} lists {found} files where {expected} were made; the folder must not be trusted"
    )]
    Listed {
        /// The folder that was listed.
        path: PathBuf,
        /// What it listed.
        found: u64,
        /// What was made.
        expected: u64,
    },
    /// The user wanted no more of it.
    #[error("interrupted; what was made is removed")]
    Interrupted,
}

/// Tells a run that it is to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// The run ends at its next operation, with [`BenchError::Interrupted`].
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

/// Measures. `progress` is told what is done now.
///
/// # Errors
///
/// Of the system, of an interruption, and when data comes back other than it was written. What was made
/// in the folder is removed in each case, as far as that can be done.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    progress: impl FnMut(&str),
) -> Result<Report, BenchError> {
    run::run(plan, interrupt, progress)
}
