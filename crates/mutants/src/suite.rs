//! One run of a suite.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::project::MutantsError;
use crate::switch;

/// How a suite ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    /// It passed, and ran no test: its filter matches none.
    RanNothing,
    Failed,
    /// It was stopped at its time limit.
    TooLate,
    /// The program does not compile, so that the suite shows nothing.
    DidNotCompile,
}

/// A command of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The program with its arguments.
    pub(crate) command: Vec<OsString>,
    /// The folder in which it runs.
    pub(crate) folder: PathBuf,
    /// Variables of its environment besides those of this process.
    pub(crate) variables: Vec<(String, OsString)>,
    /// A time limit of its own.
    pub(crate) limit: Option<Duration>,
}

impl Call {
    /// A suite as a shell runs it; cargo builds into the folder `target`.
    pub(crate) fn of_shell(suite: &str, folder: &Path, target: &Path) -> Call {
        Call {
            command: ["bash", "-c", suite].map(OsString::from).to_vec(),
            folder: folder.to_owned(),
            variables: vec![
                ("CARGO_TARGET_DIR".to_owned(), target.into()),
                ("CARGO_TERM_COLOR".to_owned(), "never".into()),
            ],
            limit: None,
        }
    }

    /// Runs the command for at most `limit`; its output goes into a log.
    pub(crate) fn run(&self, limit: Duration, log: &Path) -> Result<Ended, MutantsError> {
        let out = File::create(log).map_err(MutantsError::io(log))?;
        let err = out.try_clone().map_err(MutantsError::io(log))?;
        let limit = self.limit.map_or(limit, |own| own.min(limit));
        // `timeout` gives the suite a process group and ends all of it. `setpriv` makes `timeout` end together with
        // this process, because the keys that end this process do not reach that group.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "timeout", "--kill-after=10"])
            .arg(limit.as_secs().to_string())
            .args(&self.command)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        // The caller's own settings must not change a test.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("FOREBAY_") || name == switch::VARIABLE {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let status = command.status().map_err(|error| MutantsError::Program {
            command: format!("{command:?}"),
            error: error.to_string(),
        })?;
        Ok(match status.code() {
            Some(0) if runs_nothing(&said(log)?) => Ended::RanNothing,
            Some(0) => Ended::Passed,
            // 137: it had to be killed, together with `timeout`.
            Some(124 | 137) => Ended::TooLate,
            None if status.signal() == Some(9) => Ended::TooLate,
            _ if said(log)?.contains("error: could not compile") => Ended::DidNotCompile,
            _ => Ended::Failed,
        })
    }
}

/// Whether test binaries ran, and none of them had a test to run. A suite that is no `cargo test` prints no such line.
fn runs_nothing(said: &str) -> bool {
    let mut numbers = said
        .lines()
        .filter_map(|line| line.strip_prefix("running "))
        .filter_map(|line| line.split_once(" test"))
        .peekable();
    numbers.peek().is_some() && numbers.all(|(number, _)| number == "0")
}

/// The output of a suite.
pub(crate) fn said(log: &Path) -> Result<String, MutantsError> {
    let bytes = fs::read(log).map_err(MutantsError::io(log))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(suite: &str) -> (Ended, String) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let limit = Duration::from_secs(1);
        let call = Call::of_shell(suite, folder.path(), Path::new("/built"));
        let ended = call.run(limit, &log).unwrap();
        (ended, said(&log).unwrap())
    }

    #[test]
    fn a_suite_passes_or_fails() {
        assert_eq!(
            run("echo $CARGO_TARGET_DIR"),
            (Ended::Passed, "/built\n".into())
        );
        assert_eq!(run("echo no >&2; exit 101"), (Ended::Failed, "no\n".into()));
    }

    #[test]
    fn a_suite_without_a_test_has_not_passed() {
        let none = "echo; echo 'running 0 tests'; echo 'test result: ok. 0 passed'";
        assert_eq!(run(none).0, Ended::RanNothing);
        let one = format!("{none}; echo 'running 1 test'");
        assert_eq!(run(&one).0, Ended::Passed);
    }

    #[test]
    fn a_command_has_its_own_limit_and_environment() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut call = Call::of_shell("echo $A; sleep 20", folder.path(), folder.path());
        call.variables.push(("A".to_owned(), "b".into()));
        call.limit = Some(Duration::from_secs(1));
        let ended = call.run(Duration::from_secs(60), &log).unwrap();
        assert_eq!((ended, said(&log).unwrap()), (Ended::TooLate, "b\n".into()));
    }

    #[test]
    fn what_does_not_compile_has_not_failed() {
        let suite = "echo 'error: could not compile `a` (lib)'; exit 101";
        assert_eq!(run(suite).0, Ended::DidNotCompile);
    }

    #[test]
    fn a_suite_that_hangs_is_ended_with_its_children() {
        let (ended, said) = run("sleep 60 & echo $!; wait");
        assert_eq!(ended, Ended::TooLate);
        // It has received the signal, and may take a moment to end.
        let child = Path::new("/proc").join(said.trim()).join("cmdline");
        let is_there = || fs::read(&child).is_ok_and(|command| command.starts_with(b"sleep"));
        for _ in 0..500 {
            if !is_there() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} goes on", said.trim());
    }
}
