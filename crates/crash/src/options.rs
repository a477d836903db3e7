//! Options of a run.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How the program is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// SIGKILL; nothing at all may be lost.
    Kill,
    /// SIGKILL, several times before it serves again, with a log so small that its segments are reused all the time;
    /// nothing may be lost.
    Recovery,
    /// SIGKILL, and all that was not durable in the log is lost: nothing stable may be lost, and clients must be able
    /// to detect the loss of the rest.
    PowerCut,
    /// SIGKILL, and the local folder is deleted: the bucket must hold one moment of the past, and one that is not too
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
    /// How it is interrupted.
    pub mode: Mode,
    /// The least number of kills.
    pub kills: u64,
    /// No further kill after this time.
    pub limit: Duration,
    /// Seed of all random choices. It does not repeat what the clock decides, such as the exact moment of a kill.
    pub seed: u64,
    /// Number of writers.
    pub writers: usize,
    /// Whether the volume is sealed.
    pub sealed: bool,
    /// URL of the bucket; `None` for a folder in the work folder.
    pub store: Option<String>,
    /// Folder in which the work folder is made.
    pub folder: PathBuf,
}
