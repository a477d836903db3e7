//! Whole runs of the benchmark in a temporary folder, and the errors that it must report.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::*;

fn plan(folder: &Path) -> Plan {
    Plan {
        folder: folder.to_owned(),
        file_bytes: 1 << 20,
        files: 10,
        parallel: 3,
    }
}

/// The folder that the run has created.
fn made_in(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    entries.next().unwrap().unwrap().path()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn everything_is_measured_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "mine").unwrap();
    let mut steps = 0;
    let report = run(&plan(folder.path()), &Interrupt::default(), |_| steps += 1).unwrap();
    // One more for the removal.
    assert_eq!(steps, report.lines.len() + 1);
    for line in &report.lines {
        assert!(line.operations > 0, "{line:?}");
        assert!(line.seconds > 0.0, "{line:?}");
        assert!(line.latency.p50_us <= line.latency.p99_us, "{line:?}");
        assert!(line.latency.p99_us <= line.latency.max_us, "{line:?}");
    }
    let operations = |what: &str| {
        let line = report.lines.iter().find(|line| line.what.starts_with(what));
        line.map(|line| (line.operations, line.bytes))
    };
    assert_eq!(operations("sequential write"), Some((1, 1 << 20)));
    assert_eq!(operations("random read, 4 KiB, 3"), Some((32, 32 * 4096)));
    assert_eq!(operations("create"), Some((10, 10 * 4096)));
    assert_eq!(operations("rename"), Some((10, 0)));
    assert_eq!(made_in(folder.path()), folder.path().join("mine"));
}

#[test]
fn an_interruption_at_any_step_ends_the_run_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut at = 1;
    loop {
        let interrupt = Interrupt::default();
        let mut step = 0;
        let outcome = run(&plan(folder.path()), &interrupt, |what| {
            step += 1;
            if step == at && what != "removing the remaining files" {
                interrupt.set();
            }
        });
        assert!(
            is_empty(folder.path()),
            "after an interruption at step {at}"
        );
        match outcome {
            Err(BenchError::Interrupted) => at += 1,
            Ok(_) => break,
            Err(error) => panic!("step {at}: {error}"),
        }
    }
    assert!(at > 10, "each step was interrupted: {at}");
}

/// Runs the benchmark, and modifies the folder before the step `before`.
fn run_with(before: &str, meddle: impl Fn(&Path)) -> BenchError {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&plan(folder.path()), &Interrupt::default(), |what| {
        if what.starts_with(before) {
            meddle(&made_in(folder.path()));
        }
    });
    assert!(is_empty(folder.path()));
    outcome.expect_err("it was noticed")
}

#[test]
fn data_that_comes_back_changed_is_noticed() {
    let change = |path: PathBuf, offset| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"changed", offset).unwrap();
    };
    let error = run_with("sequential read", |made| change(made.join("large"), 70_000));
    assert!(
        matches!(error, BenchError::Different { offset: 69_632, .. }),
        "{error}"
    );
    // One file in the small folder has the content of another.
    let error = run_with("open, read", |made| {
        let small = made.join("parallel");
        fs::copy(small.join("file-00000001"), small.join("file-00000002")).unwrap();
    });
    assert!(
        error.to_string().contains("do not trust this folder"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_listed_is_noticed() {
    let error = run_with("list", |made| {
        fs::remove_file(made.join("parallel/file-00000003")).unwrap();
    });
    assert!(
        matches!(
            error,
            BenchError::Listed {
                found: 9,
                expected: 10,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = run(
        &plan(Path::new("/no/such/folder")),
        &Interrupt::default(),
        |_| {},
    );
    let error = error.expect_err("there is none").to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
}
