//! Instructions of a way, counted by Valgrind: it runs the program with two numbers of calls, and the difference
//! is theirs alone.

use std::env;
use std::error::Error;
use std::io;
use std::process::Command;

use crate::paths::{Common, Connection, Path};

/// Has the program go a way so often: `--loop PATH COUNT`.
pub(crate) const LOOP: &str = "--loop";

const FEW: u64 = 2_000;
const MANY: u64 = 12_000;
/// Calls before them, which fill the replay cache.
const WARM: u64 = 70_000;

/// What the program does under Valgrind.
pub(crate) fn run(path: Path, count: u64) {
    let common = Common::new(WARM);
    let mut connection = Connection::new(&common, 1);
    (0..count).for_each(|_| connection.step(&common, path));
}

/// Instructions of one call on each way; nothing without Valgrind.
pub(crate) fn count_all() -> Result<Vec<(Path, f64)>, Box<dyn Error>> {
    let mut counts = Vec::new();
    for path in Path::ALL {
        let (Some(few), Some(many)) = (count(path, FEW)?, count(path, MANY)?) else {
            return Ok(Vec::new());
        };
        counts.push((path, (many - few) / (MANY - FEW) as f64));
    }
    Ok(counts)
}

fn count(path: Path, calls: u64) -> Result<Option<f64>, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args([LOOP, path.key(), &calls.to_string()])
        .output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // The last line is "==PID== Collected : NUMBER".
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.ok_or(text.clone())?;
    Ok(Some(number.trim().parse()?))
}
