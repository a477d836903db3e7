//! Rounds of measurements: each once through everything, in a process of its own.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fmt;
use std::io;
use std::process::Command;
use std::str::FromStr;

use crate::paths::{Path, Sharing, contend};
use crate::records::GETATTR;
use crate::socket::{self, DEPTH};

/// Has the program print one round.
pub(crate) const RAW: &str = "--raw";

/// Connections that are open at the same time.
pub(crate) const CONNECTIONS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Ways of which it is measured what sharing them costs.
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
    /// To see that it works.
    pub(crate) const QUICK: Effort = Effort {
        alone: 100,
        through_socket: 100,
    };
}

/// One round: values by what was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round(BTreeMap<String, f64>);

/// Processor time of a call, in nanoseconds, of one connection that shares nothing.
pub(crate) fn alone(path: Path) -> String {
    format!("alone {}", path.key())
}

/// The same with so many connections that share everything.
pub(crate) fn shared(path: Path, connections: usize) -> String {
    format!("shared {} {connections}", path.key())
}

/// The same where the two threads share nothing.
pub(crate) fn unshared(path: Path, connections: usize) -> String {
    format!("unshared {} {connections}", path.key())
}

/// Thousand calls a second of so many connections that share everything.
pub(crate) fn rate(path: Path, connections: usize) -> String {
    format!("rate {} {connections}", path.key())
}

/// Processor time of the server for a GETATTR through sockets, in nanoseconds.
pub(crate) fn through_socket(connections: usize) -> String {
    format!("socket {connections}")
}

/// The same of a client that waits for each reply before it calls again.
pub(crate) const ONE_AT_A_TIME: &str = "socket-one-at-a-time";

/// Thousand calls a second through sockets, clients included.
pub(crate) fn socket_rate(connections: usize) -> String {
    format!("socket-rate {connections}")
}

/// Measures everything once.
pub(crate) fn measure(effort: Effort) -> io::Result<Round> {
    let mut round = Round::default();
    let values = &mut round.0;
    for path in Path::ALL {
        let cost = contend(path, 1, Sharing::One, effort.alone);
        values.insert(alone(path), cost.cpu_ns);
    }
    let cost = socket::measure(GETATTR, 1, 1, effort.through_socket / 10)?;
    values.insert(ONE_AT_A_TIME.to_owned(), cost.cpu_ns);
    for connections in CONNECTIONS {
        for path in SHARED {
            let cost = contend(path, connections, Sharing::One, effort.alone);
            values.insert(shared(path, connections), cost.cpu_ns);
            values.insert(rate(path, connections), cost.thousand_a_second);
            let cost = contend(path, connections, Sharing::EachItsOwn, effort.alone);
            values.insert(unshared(path, connections), cost.cpu_ns);
        }
        let cost = socket::measure(GETATTR, connections, DEPTH, effort.through_socket)?;
        values.insert(through_socket(connections), cost.cpu_ns);
        values.insert(socket_rate(connections), cost.thousand_a_second);
    }
    Ok(round)
}

/// A line for each value: what it is of, a tab, the value.
impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "{key}\t{value}"))
    }
}

impl FromStr for Round {
    type Err = Box<dyn Error>;

    fn from_str(text: &str) -> Result<Round, Box<dyn Error>> {
        let value = |line: &str| {
            let (key, value) = line.split_once('\t').ok_or("no value")?;
            Ok((key.to_owned(), value.parse()?))
        };
        text.lines().map(value).collect::<Result<_, _>>().map(Round)
    }
}

/// The rounds of one build.
pub(crate) struct Rounds(Vec<Round>);

/// A median, and the quartiles around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Median {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Rounds {
    pub(crate) fn of(rounds: Vec<Round>) -> Rounds {
        Rounds(rounds)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The median of what is measured under this key.
    pub(crate) fn median(&self, key: &str) -> Median {
        self.median_of(|round| round.get(key))
    }

    /// The median of the ratios that each round has.
    pub(crate) fn ratio(&self, key: &str, to: &str) -> Median {
        self.median_of(|round| round.get(key) / round.get(to))
    }

    /// The same of a sum.
    pub(crate) fn ratio_of_sum(&self, keys: &[String], to: &str) -> Median {
        self.median_of(|round| {
            let sum: f64 = keys.iter().map(|key| round.get(key)).sum();
            sum / round.get(to)
        })
    }

    /// The median of the ratios of the rounds of two builds that were run in turns.
    pub(crate) fn ratio_to(&self, other: &Rounds, key: &str) -> Median {
        let pairs = self.0.iter().zip(&other.0);
        median(
            pairs
                .map(|(own, other)| own.get(key) / other.get(key))
                .collect(),
        )
    }

    fn median_of(&self, value: impl Fn(&Round) -> f64) -> Median {
        median(self.0.iter().map(value).collect())
    }
}

impl Round {
    fn get(&self, key: &str) -> f64 {
        self.0.get(key).copied().unwrap_or(f64::NAN)
    }
}

fn median(mut values: Vec<f64>) -> Median {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    Median {
        value: values[last / 2],
        low: values[last / 4],
        high: values[(last * 3).div_ceil(4)],
    }
}

/// So many rounds of this program, and in turns with them of another build.
pub(crate) fn in_turns(
    count: usize,
    other: Option<&str>,
) -> Result<(Rounds, Option<Rounds>), Box<dyn Error>> {
    let own = env::current_exe()?;
    let once = |program: &std::path::Path| -> Result<Round, Box<dyn Error>> {
        let output = Command::new(program).arg(RAW).output()?;
        match output.status.success() {
            true => String::from_utf8(output.stdout)?.parse(),
            false => Err(String::from_utf8_lossy(&output.stderr).into()),
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..count.max(1) {
        if let Some(other) = other {
            theirs.push(once(other.as_ref())?);
        }
        ours.push(once(&own)?);
    }
    Ok((Rounds(ours), other.map(|_| Rounds(theirs))))
}
