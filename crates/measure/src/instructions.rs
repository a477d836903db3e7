//! Counts the instructions of an operation with Valgrind.
//!
//! A program is run twice, with a small and with a large number of turns of the same loop. The difference of the two
//! counts belongs to the turns alone, without the start and the end of the program. Instructions of the kernel are not
//! counted. Those of all threads are, unless the count is restricted to a function.
//!
//! The program's environment is emptied, except for the variables that locate libraries and folders, and the C library
//! is configured to use nothing that only some processors have. So counts are the same on different machines if
//! compiler and C library are the same. Libraries that choose code themselves (checksums, hashes) must see the same
//! processor under Valgrind as well.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Variables that the program's environment keeps.
const KEPT: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "VALGRIND_LIB", "TMPDIR"];

/// Makes the C library copy and compare memory in the one way that works on every processor of this kind. By default it
/// chooses by the processor's features, and in a copy by one instruction (ERMS) each byte counts as one, ten times as
/// many as other copies take.
const TUNABLES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-BMI2",
);

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// Valgrind is not installed.
    #[error("valgrind is not installed: it is in the package of that name")]
    NoValgrind,
    /// It could not be run.
    #[error("valgrind cannot be run")]
    Io(#[from] io::Error),
    /// The program failed under it.
    #[error("the program failed under valgrind:\n{0}")]
    Failed(String),
    /// Its output has no count.
    #[error("valgrind's output has no event counts:\n{0}")]
    Unclear(String),
}

/// Numbers of turns of the loop in the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// In the first run.
    pub few: u64,
    /// In the second run; more than `few`.
    pub many: u64,
}

impl Turns {
    /// A quarter of `many`, and `many`, which must be at least 4.
    pub const fn upto(many: u64) -> Turns {
        Turns {
            few: many / 4,
            many,
        }
    }

    /// Instructions of one turn; `count` returns those of a run with the given number of turns.
    pub fn each<E>(self, mut count: impl FnMut(u64) -> Result<u64, E>) -> Result<f64, E> {
        let (few, many) = (count(self.few)?, count(self.many)?);
        let turns = self.many.saturating_sub(self.few).max(1);
        Ok((many as f64 - few as f64) / turns as f64)
    }
}

/// A program whose instructions are counted.
#[derive(Clone, Debug)]
pub struct Counted {
    program: PathBuf,
    within: Option<String>,
}

impl Counted {
    /// Counts every thread of the program from start to end.
    pub fn program(program: impl Into<PathBuf>) -> Counted {
        Counted {
            program: program.into(),
            within: None,
        }
    }

    /// Counts the current program.
    pub fn this() -> io::Result<Counted> {
        std::env::current_exe().map(Counted::program)
    }

    /// Counts only functions whose names contain this, and the functions that they call, on the thread that calls them;
    /// not the work of other threads meanwhile.
    pub fn within(mut self, function: &str) -> Counted {
        self.within = Some(format!("*{function}*"));
        self
    }

    /// Instructions of a run with these arguments.
    pub fn run(&self, arguments: &[&str]) -> Result<u64, CountError> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        if let Some(within) = &self.within {
            command.arg(format!("--toggle-collect={within}"));
        }
        let output = command
            .arg(&self.program)
            .args(arguments)
            .env_clear()
            .envs(
                KEPT.iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env(TUNABLES.0, TUNABLES.1)
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CountError::NoValgrind);
            }
            output => output?,
        };
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(CountError::Failed(text.into_owned()));
        }
        collected(&text).ok_or_else(|| CountError::Unclear(text.into_owned()))
    }
}

/// The number in one of callgrind's last lines, "==PID== Collected : NUMBER".
fn collected(text: &str) -> Option<u64> {
    let (_, number) = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_the_difference_of_two_runs() {
        // 1000 to start, 7 for each turn.
        let run = |turns: u64| Ok::<_, ()>(1000 + 7 * turns);
        assert_eq!(Turns::upto(400).each(run), Ok(7.0));
        assert_eq!(Turns { few: 1, many: 2 }.each(run), Ok(7.0));
        assert_eq!(
            Turns::upto(8).each(|_| Err::<u64, _>("ended")),
            Err("ended")
        );
    }

    #[test]
    fn the_count_is_found_in_what_callgrind_says() {
        let text = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n\
                    ==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n==7== I   refs:      1,234,567\n";
        assert_eq!(collected(text), Some(1_234_567));
        assert_eq!(collected("==7== Collected : \n"), None);
        assert_eq!(collected("valgrind: command not found"), None);
    }
}
