//! Many connections beside one: `cargo bench --bench tables -- many [--rounds N]`.
//!
//! The same work with the same number of calls in flight, over the loopback: 64 on one connection; one on each of 64
//! connections, each of which is a client with an address of its own; and one on each of 64 connections of 8 clients,
//! as `nconnect=8` makes them. Each call in flight belongs to a *lane*, which has a file and a directory of its own. A
//! lane makes its next call after the answer to the one before, and lanes take calls from a common number until none
//! is left. So every shape of connections does the same work, and a client that is served less makes fewer calls.
//!
//! * *READ*, *WRITE*: 4 KiB anywhere in 256 KiB of the lane's file, which is in memory; WRITE is unstable.
//! * *Mixed*: 70 % READ, 20 % WRITE, 5 % GETATTR, and 5 % CREATE and REMOVE in turns.
//! * *Stream*: three WRITEs of 1 MiB from the beginning of the file, unstable, and a COMMIT; and so on. A turn has four
//!   parts, so that the log has room for each.
//!
//! One thread serves the client's side of all connections, on the same processors as the server. Log and bucket are in
//! memory, and everything is published between the turns and their parts. Each turn has a new server. The shapes take turns in each
//! round. A connection of its own for each call costs both sides a system call to read and one to write, which calls of
//! one connection share.
//!
//! *Longest silence* is the longest time that a client with calls in flight was without an answer. Goals: 0.9 of the
//! rate of one connection; Jain's index of the clients' calls at least 0.95; and no silence of a second, at which the
//! benchmark fails.
//!
//! The second table has one call in flight on each of 1 to 256 connections, all of different clients. If the cost of a
//! call does not depend on the number of connections, a call takes as long over 256 as over 64. Times are those of the
//! turn divided by its calls; processor time is that of the process without the client's thread. Run by `cargo test`,
//! a few calls show that it works, and no time is checked.

mod lanes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use forebay_measure::{Arguments, Machine, Round, Rounds, in_turns, table};

use crate::clocks::{others, percentile, wait_for_quiet};
use crate::nfs_client::{Call, Client};
use crate::stage::Stage;
use crate::{Failure, surroundings};
use lanes::{Connection, KIB_4, Load, MIB, RANDOM_BYTES, Target, Turn};

const COMMAND: &str = "cargo bench --bench tables -- many";

/// Amounts of work.
#[derive(Clone, Copy)]
struct Effort {
    /// Calls in flight.
    lanes: usize,
    /// Clients that have several connections each.
    sharing: usize,
    /// Numbers of connections in the second table; the last is the largest.
    widths: [usize; 4],
    /// The number of calls is divided by it.
    divisor: u64,
    /// The longest silence.
    silence: Option<Duration>,
}

impl Effort {
    const FULL: Effort = Effort {
        lanes: 64,
        sharing: 8,
        widths: [1, 8, 64, 256],
        divisor: 1,
        silence: Some(Duration::from_secs(1)),
    };
    const QUICK: Effort = Effort {
        lanes: 8,
        sharing: 2,
        widths: [1, 2, 4, 8],
        divisor: 256,
        silence: None,
    };

    fn shapes(self) -> [Shape; 3] {
        let of = |clients, connections| Shape {
            clients,
            connections,
            lanes: self.lanes,
        };
        [
            of(1, 1),
            of(self.lanes, self.lanes),
            of(self.sharing, self.lanes),
        ]
    }

    fn wide(self) -> [Shape; 4] {
        self.widths.map(|width| Shape {
            clients: width,
            connections: width,
            lanes: width,
        })
    }
}

/// A load, its name, and the number of calls in a part of a turn.
type Row = (Load, &'static str, u64);

/// No part writes more than a quarter of the [log](crate::volume::LOG)'s limit, for which the log keeps files (prepared
/// ones included), so that it reuses files as a log in operation does.
const LOADS: [Row; 4] = [
    (Load::Read, "READ of 4 KiB", 65_536),
    (Load::Write, "WRITE of 4 KiB", 20_480),
    (Load::Mixed, "mixed", 32_768),
    (Load::Stream, "stream of WRITE of 1 MiB", 256),
];

/// The same for the second table.
const WIDE: [Row; 3] = [
    (Load::Read, "READ of 4 KiB", 16_384),
    (Load::Write, "WRITE of 4 KiB", 16_384),
    (Load::Mixed, "mixed", 16_384),
];

/// Lanes on connections of clients. Each has equally many.
#[derive(Clone, Copy)]
struct Shape {
    clients: usize,
    connections: usize,
    lanes: usize,
}

impl Shape {
    fn name(self) -> String {
        let each = self.connections / self.clients;
        match (self.connections, each) {
            (1, _) => "1 connection".to_owned(),
            (connections, 1) => format!("{connections} connections, a client each"),
            (_, each) => format!("{} clients, {each} connections each", self.clients),
        }
    }

    /// The address of a client. All of 127.0.0.0/8 is this machine.
    fn address(client: usize) -> IpAddr {
        Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 1, 0).to_bits() + 1 + client as u32).into()
    }
}

/// The figures of a turn.
struct Taken {
    seconds: f64,
    /// The server's processor time in seconds.
    processor: f64,
    micros: Vec<f64>,
    silence: Duration,
    fairness: f64,
}

struct Course {
    stage: Stage,
    effort: Effort,
    payload: Vec<u8>,
    targets: Vec<Target>,
}

impl Course {
    /// Makes the files and directories of all lanes.
    fn new(effort: Effort) -> Result<Course, Failure> {
        let stage = Stage::new()?;
        // It compresses well, because the bucket in memory keeps overwritten bytes for a while.
        let payload = surroundings::noise(1, KIB_4 as usize).repeat((MIB / KIB_4) as usize);
        let lanes = effort.lanes.max(effort.widths[effort.widths.len() - 1]);
        let running = stage.start();
        let targets = stage.client.block_on(async {
            let mut client = Client::connect(running.address).await?;
            let root = client.mount().await?;
            let mut targets = Vec::with_capacity(lanes);
            for lane in 0..lanes {
                let directory = client.mkdir(&root, &format!("lane {lane}")).await?;
                let file = client.create(&directory, "file").await?;
                let content = &payload[..RANDOM_BYTES as usize];
                client.call(Call::write(&file, 0, content)).await?;
                targets.push(Target { file, directory });
            }
            Ok::<_, Failure>(targets)
        })?;
        stage.stop(running);
        Ok(Course {
            stage,
            effort,
            payload,
            targets,
        })
    }

    fn turn(&self, load: Load, shape: Shape, calls: u64) -> Result<Taken, Failure> {
        let running = self.stage.start();
        let turn = Turn::new(load, &self.payload, shape.clients);
        let connecting = self.connect(running.address, shape, &turn);
        let mut connections = self.stage.client.block_on(connecting)?;
        let (mut taken, mut processor) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..load.parts() {
            self.stage.publish()?;
            wait_for_quiet();
            let (before, began) = (others(), Instant::now());
            let run = turn.run(&mut connections, calls, self.effort.silence);
            self.stage.client.block_on(run)?;
            taken += began.elapsed();
            wait_for_quiet();
            processor += others().saturating_sub(before);
        }
        drop(connections);
        self.stage.stop(running);
        Ok(Taken {
            seconds: taken.as_secs_f64(),
            processor: processor.as_secs_f64(),
            micros: turn.micros(),
            silence: turn.longest_silence(),
            fairness: turn.fairness(),
        })
    }

    /// Connects all clients. Each connection has been served once.
    async fn connect<'a>(
        &'a self,
        address: SocketAddr,
        shape: Shape,
        turn: &'a Turn<'a>,
    ) -> Result<Vec<(Client, Connection<'a>)>, Failure> {
        let lanes = shape.lanes / shape.connections;
        let mut connections = Vec::with_capacity(shape.connections);
        for (number, targets) in self.targets[..shape.lanes].chunks(lanes).enumerate() {
            let owner = number * shape.clients / shape.connections;
            let client = Client::connect_from(Shape::address(owner), address).await?;
            let mut client = client.with_depth(lanes);
            client.call(Call::getattr(&targets[0].file)).await?;
            let work = Connection::new(turn, owner, number * lanes, targets);
            connections.push((client, work));
        }
        Ok(connections)
    }

    /// One turn of each load and shape; `number` is that of the round.
    fn round(&self, number: usize) -> Result<Round, Failure> {
        let mut round = Round::default();
        let shapes = self.effort.shapes();
        for (load, name, calls) in LOADS {
            // The first one finds another state of the machine than the last one.
            for at in 0..shapes.len() {
                let shape = shapes[(at + number) % shapes.len()];
                let taken = self.turn(load, shape, self.calls(calls, shape))?;
                let calls = taken.micros.len() as f64;
                let micros = |hundredths| percentile(&taken.micros, hundredths);
                let figures = [
                    rate(load, calls) / taken.seconds,
                    micros(50),
                    micros(99),
                    micros(100) / 1e3,
                    taken.silence.as_secs_f64() * 1e3,
                    taken.fairness,
                ];
                for (figure, value) in FIGURES.into_iter().zip(figures) {
                    round.insert(key(figure, name, &shape.name()), value);
                }
            }
        }
        let wide = self.effort.wide();
        for (load, name, calls) in WIDE {
            for at in 0..wide.len() {
                let shape = wide[(at + number) % wide.len()];
                let taken = self.turn(load, shape, self.calls(calls, shape))?;
                let calls = taken.micros.len() as f64;
                let width = shape.connections.to_string();
                round.insert(key(WALL, name, &width), taken.seconds * 1e6 / calls);
                round.insert(key(PROCESSOR, name, &width), taken.processor * 1e6 / calls);
            }
        }
        Ok(round)
    }

    /// The number of calls in a part of a turn: enough for each lane to take part.
    fn calls(&self, calls: u64, shape: Shape) -> u64 {
        (calls / self.effort.divisor).max(4 * shape.lanes as u64)
    }
}

/// Thousands of calls; MB of a stream, of whose calls three quarters are WRITEs.
fn rate(load: Load, calls: f64) -> f64 {
    match load {
        Load::Stream => calls * 0.75 * MIB as f64 / 1e6,
        _ => calls / 1e3,
    }
}

const RATE: &str = "rate";
const FAIRNESS: &str = "fairness";
const FIGURES: [&str; 6] = [RATE, "p50", "p99", "longest", "silence", FAIRNESS];
const WALL: &str = "wall";
const PROCESSOR: &str = "processor";

fn key(figure: &str, load: &str, shape: &str) -> String {
    format!("{figure}, {load}, {shape}")
}

fn loads(rounds: &Rounds, effort: Effort) -> String {
    let mut text = table::head(&[
        &format!("{} calls in flight", effort.lanes),
        "over",
        "thousand calls/s; the stream: MB/s",
        "to one connection",
        "p50, µs",
        "p99, µs",
        "longest answer, ms",
        "longest silence, ms",
        "Jain's index",
    ]);
    let shapes = effort.shapes().map(Shape::name);
    let [one, ..] = &shapes;
    for (_, load, _) in LOADS {
        for shape in &shapes {
            let median = |figure| table::digits(rounds.median(&key(figure, load, shape)));
            let mut cells = vec![load.to_owned(), shape.clone(), median(RATE), String::new()];
            cells.extend(["p50", "p99", "longest", "silence"].map(median));
            cells.push(String::new());
            if shape != one {
                let (own, others) = (key(RATE, load, shape), key(RATE, load, one));
                cells[3] = table::times(rounds.ratio(&own, &others));
                cells[8] = table::times(rounds.median(&key(FAIRNESS, load, shape)));
            }
            text += &table::line(cells);
        }
    }
    text
}

fn widths(rounds: &Rounds, effort: Effort) -> String {
    let widths = effort.widths.map(|width| width.to_string());
    let [.., before, last] = &widths;
    let mut titles = vec![
        "µs a call [of the server's processor time], one in flight on each connection".to_owned(),
    ];
    titles.extend(widths.iter().map(|width| match width.as_str() {
        "1" => "1 connection".to_owned(),
        width => format!("{width} connections"),
    }));
    titles.push(format!("{last} to {before}"));
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut text = table::head(&titles);
    for (_, load, _) in WIDE {
        let mut cells = vec![load.to_owned()];
        cells.extend(widths.iter().map(|width| {
            let wall = table::digits(rounds.median(&key(WALL, load, width)));
            let processor = rounds.median(&key(PROCESSOR, load, width)).value;
            format!("{wall} [{}]", table::three(processor))
        }));
        let wall = |width| key(WALL, load, width);
        cells.push(table::times(rounds.ratio(&wall(last), &wall(before))));
        text += &table::line(cells);
    }
    text
}

/// The tables, with the machine they were measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let effort = match arguments.full() {
        true => Effort::FULL,
        false => Effort::QUICK,
    };
    let course = Course::new(effort)?;
    let mut number = 0;
    let mut once = || {
        number += 1;
        course.round(number)
    };
    let rounds = in_turns(crate::rounds(arguments, 9)?, &mut [&mut once])?;
    course.stage.close();
    let caption = Machine::this().caption(COMMAND, "medians of rounds in turns (quartiles)");
    Ok(rounds
        .iter()
        .map(|rounds| {
            let both = [loads(rounds, effort), widths(rounds, effort)];
            format!("{caption}\n\n{}", both.join("\n"))
        })
        .collect())
}
