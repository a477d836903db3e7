//! Instructions of a way, counted by Valgrind: it runs the program with two numbers of calls, and the difference
//! is theirs alone.

use std::env;
use std::error::Error;
use std::io;
use std::process::Command;

use crate::paths::{Common, Connection, Path};
use crate::records::GETATTR;
use crate::socket::{DEPTH, Exchange};

/// Has the program go a way so often: `--loop PATH COUNT`.
pub(crate) const LOOP: &str = "--loop";

/// Instead of a path: GETATTR through the socket. The few instructions of the client are counted with it.
const SOCKET: &str = "socket";

const FEW: u64 = 3_200;
const MANY: u64 = 12_800;
/// Calls before them, which fill the replay cache.
const WARM: u64 = 70_000;

/// What the program does under Valgrind.
pub(crate) fn run(key: &str, count: u64) -> Result<(), Box<dyn Error>> {
    if key == SOCKET {
        // Without a clock, which Valgrind and rustix do not agree on.
        let mut exchange = Exchange::start(GETATTR, 1, DEPTH)?;
        exchange.rounds(count / DEPTH as u64)?;
        return Ok(exchange.stop()?);
    }
    let path = Path::find(key).ok_or("no such path")?;
    let common = Common::new(WARM);
    let mut connection = Connection::new(&common, 1);
    connection.turn(&common, path, count);
    Ok(())
}

/// Instructions of a call.
#[derive(Default)]
pub(crate) struct Counts(Vec<(&'static str, f64)>);

impl Counts {
    /// Counts them; there are none without Valgrind.
    pub(crate) fn take() -> Result<Counts, Box<dyn Error>> {
        let mut counts = Vec::new();
        for key in Path::ALL.map(Path::key).into_iter().chain([SOCKET]) {
            let (Some(few), Some(many)) = (count(key, FEW)?, count(key, MANY)?) else {
                return Ok(Counts::default());
            };
            counts.push((key, (many - few) / (MANY - FEW) as f64));
        }
        Ok(Counts(counts))
    }

    /// On this way.
    pub(crate) fn of(&self, path: Path) -> String {
        self.get(path.key())
    }

    /// Of a GETATTR through the socket.
    pub(crate) fn through_socket(&self) -> String {
        self.get(SOCKET)
    }

    fn get(&self, key: &str) -> String {
        let found = self.0.iter().find(|(of, _)| *of == key);
        found.map_or(String::new(), |(_, count)| format!("{count:.0}"))
    }
}

fn count(key: &str, calls: u64) -> Result<Option<f64>, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args([LOOP, key, &calls.to_string()])
        .output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(text.into());
    }
    // The last line is "==PID== Collected : NUMBER".
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.ok_or(text.clone())?;
    Ok(Some(number.trim().parse()?))
}
