//! What is asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What is done to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// SIGKILL; nothing at all may be lost.
    Kill,
    /// SIGKILL, several times before it serves again, with a log so small that its segments are used again all
    /// the time; nothing may be lost.
    Recovery,
    /// SIGKILL, and what was not durable in the log is gone: nothing stable may be lost, and clients must
    /// learn of the rest.
    PowerCut,
    /// SIGKILL, and the local folder is gone: the bucket must be one moment of the past, and not too
    /// old.
    LostMachine,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [
        Mode::Kill,
        Mode::Recovery,
        Mode::PowerCut,
        Mode::LostMachine,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Kill => "kill",
            Mode::Recovery => "recovery",
            Mode::PowerCut => "power-cut",
            Mode::LostMachine => "lost-machine",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("no such mode: {text}"))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The executable.
    pub program: PathBuf,
    /// What is done to it.
    pub mode: Mode,
    /// How often it is killed, at least.
    pub kills: u64,
    /// No further kill after this time.
    pub limit: Duration,
    /// Where all random choices come from. What the clock decides, such as where exactly a kill
    /// hits, is not repeated by it.
    pub seed: u64,
    /// Number of writers.
    pub writers: usize,
    /// Whether the volume is sealed.
    pub sealed: bool,
    /// URL of the bucket; a folder of the work folder if there is none.
    pub store: Option<String>,
    /// Where the work folder is made.
    pub folder: PathBuf,
}
