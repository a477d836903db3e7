//! Rounds of measurements: each measures everything once, in a process of its own.

use std::env;
use std::error::Error;
use std::io;
use std::process::Command;

use forebay_measure::{Round, Rounds};

use crate::paths::{Path, Sharing, contend};
use crate::records::GETATTR;
use crate::socket::{self, DEPTH};

/// Makes the program print one round.
pub(crate) const RAW: &str = "--raw";

/// Connections that are open at the same time.
pub(crate) const CONNECTIONS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Paths for which the cost of sharing is measured.
pub(crate) const SHARED: [Path; 5] = [
    Path::Getattr,
    Path::ReplayFirst,
    Path::ReplayIdempotent,
    Path::Permission,
    Path::Admission,
];

/// How many calls a measurement makes.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    alone: u64,
    through_socket: u64,
}

impl Effort {
    pub(crate) const FULL: Effort = Effort {
        alone: 500_000,
        through_socket: 250_000,
    };
    /// Enough to show that it works.
    pub(crate) const QUICK: Effort = Effort {
        alone: 100,
        through_socket: 100,
    };
}

/// Key: processor time of a call, in nanoseconds, for one connection that shares nothing.
pub(crate) fn alone(path: Path) -> String {
    format!("alone {}", path.key())
}

/// Key: the same for this many connections that share everything.
pub(crate) fn shared(path: Path, connections: usize) -> String {
    format!("shared {} {connections}", path.key())
}

/// Key: the same where the two threads share nothing.
pub(crate) fn unshared(path: Path, connections: usize) -> String {
    format!("unshared {} {connections}", path.key())
}

/// Key: thousands of calls per second of this many connections that share everything.
pub(crate) fn rate(path: Path, connections: usize) -> String {
    format!("rate {} {connections}", path.key())
}

/// Key: processor time of the server for a GETATTR through sockets, in nanoseconds.
pub(crate) fn through_socket(connections: usize) -> String {
    format!("socket {connections}")
}

/// Key: the same for a client that waits for each reply before it calls again.
pub(crate) const ONE_AT_A_TIME: &str = "socket-one-at-a-time";

/// Key: thousands of calls per second through sockets, clients included.
pub(crate) fn socket_rate(connections: usize) -> String {
    format!("socket-rate {connections}")
}

/// Measures everything once.
pub(crate) fn measure(effort: Effort) -> io::Result<Round> {
    let mut round = Round::default();
    for path in Path::ALL {
        let cost = contend(path, 1, Sharing::One, effort.alone);
        round.insert(alone(path), cost.cpu_ns);
    }
    let cost = socket::measure(GETATTR, 1, 1, effort.through_socket / 10)?;
    round.insert(ONE_AT_A_TIME, cost.cpu_ns);
    for connections in CONNECTIONS {
        for path in SHARED {
            let cost = contend(path, connections, Sharing::One, effort.alone);
            round.insert(shared(path, connections), cost.cpu_ns);
            round.insert(rate(path, connections), cost.thousand_a_second);
            let cost = contend(path, connections, Sharing::EachItsOwn, effort.alone);
            round.insert(unshared(path, connections), cost.cpu_ns);
        }
        let cost = socket::measure(GETATTR, connections, DEPTH, effort.through_socket)?;
        round.insert(through_socket(connections), cost.cpu_ns);
        round.insert(socket_rate(connections), cost.thousand_a_second);
    }
    Ok(round)
}

/// Runs this many rounds of this program, alternating with rounds of another build.
pub(crate) fn in_turns(
    count: usize,
    other: Option<&str>,
) -> Result<(Rounds, Option<Rounds>), Box<dyn Error>> {
    let own = env::current_exe()?;
    let mut ours = || once(&own);
    let Some(other) = other else {
        let rounds = forebay_measure::in_turns(count, &mut [&mut ours])?;
        return Ok((rounds.into_iter().next().unwrap_or_default(), None));
    };
    let mut theirs = || once(other.as_ref());
    let mut rounds = forebay_measure::in_turns(count, &mut [&mut theirs, &mut ours])?.into_iter();
    let other = rounds.next();
    Ok((rounds.next().unwrap_or_default(), other))
}

/// A round of a program, in a process of its own.
fn once(program: &std::path::Path) -> Result<Round, Box<dyn Error>> {
    let output = Command::new(program).arg(RAW).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.parse()?),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}
