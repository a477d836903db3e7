//! Instructions of a path, counted by Valgrind.

use std::error::Error;

use forebay_measure::instructions::{CountError, Counted, Turns};

use crate::paths::{Common, Connection, Path};
use crate::records::GETATTR;
use crate::socket::{DEPTH, Exchange};

/// Runs a path this many times: `--loop PATH COUNT`.
pub(crate) const LOOP: &str = "--loop";

/// In place of a path: GETATTR through the socket. The few instructions of the client are counted too.
const SOCKET: &str = "socket";

const CALLS: Turns = Turns::upto(12_800);
/// Calls before them, which fill the replay cache.
const WARM: u64 = 70_000;

/// The program's work under Valgrind.
pub(crate) fn run(key: &str, count: u64) -> Result<(), Box<dyn Error>> {
    if key == SOCKET {
        // Without a clock: Valgrind and rustix do not agree on it.
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
    /// Counts them; the result is empty without Valgrind.
    pub(crate) fn take() -> Result<Counts, Box<dyn Error>> {
        let program = Counted::this()?;
        let mut counts = Vec::new();
        for key in Path::ALL.map(Path::key).into_iter().chain([SOCKET]) {
            match CALLS.each(|calls| program.run(&[LOOP, key, &calls.to_string()])) {
                Ok(count) => counts.push((key, count)),
                Err(CountError::NoValgrind) => return Ok(Counts::default()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Counts(counts))
    }

    /// Instructions of a call on this path.
    pub(crate) fn of(&self, path: Path) -> String {
        self.get(path.key())
    }

    /// Instructions of a GETATTR through the socket.
    pub(crate) fn through_socket(&self) -> String {
        self.get(SOCKET)
    }

    fn get(&self, key: &str) -> String {
        let found = self.0.iter().find(|(of, _)| *of == key);
        found.map_or(String::new(), |(_, count)| format!("{count:.0}"))
    }
}
