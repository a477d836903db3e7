//! Reads of a file in memory beside a bare loop over a socket: `cargo bench --bench tables -- reads [--rounds N]`.
//!
//! READ of 4 KiB to 1 MiB, in a row and anywhere, with 1 and with 32 calls in flight on one connection over the
//! loopback. Two servers take turns, each new in each turn: a [bare loop](crate::bare_socket), which shows the rate of
//! the socket and the client, and our engine over a volume that has the whole file in its block buffers. The client is the same code
//! and makes the same calls, on the same processors. The bare loop has the send buffer that the engine gives to a
//! client of the same machine. Log and bucket are in memory; everything is published before the first turn.
//!
//! Goal: from 64 KiB on at least 0.8 of the bare loop's rate.
//!
//! The client compares each answer's length and its first bytes with those of the file while it measures. After that,
//! in the same turn and with as many calls in flight, it reads the whole file and compares every byte. A byte that
//! differs fails the benchmark. Processor time is that of the process without the client's thread, so it is the
//! server's alone, with the kernel's work for its side of the socket. The kernel may do a part of that work in the
//! client's calls, and the other way round.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_measure::{Arguments, Machine, Round, Rounds, in_turns, table};

use crate::bare_socket::BareSocket;
use crate::clocks::{others, wait_for_quiet};
use crate::nfs_client::{Call, Client, Handle, Results, Work};
use crate::server::Running;
use crate::stage::Stage;
use crate::{Failure, surroundings};

const COMMAND: &str = "cargo bench --bench tables -- reads";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZES: [u64; 5] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
const ORDERS: [Order; 2] = [Order::Row, Order::Anywhere];
/// Calls in flight.
const DEPTHS: [usize; 2] = [1, 32];
/// That of the engine for a client on the same machine (docs/decisions/0033-sockets-of-this-machine.md).
const SEND_BUFFER: u32 = 256 << 10;
/// Bytes of each reply that the client keeps while it measures, and the least number of bytes of the file among them.
const KEPT: usize = 256;
const COMPARED: usize = 64;

/// Amounts of work.
#[derive(Clone, Copy)]
struct Effort {
    file_bytes: u64,
    /// Bytes that a turn reads, unless it reaches the number of calls before.
    turn_bytes: u64,
    most_calls: u64,
}

impl Effort {
    const FULL: Effort = Effort {
        file_bytes: 128 * MIB,
        turn_bytes: 256 * MIB,
        most_calls: 1 << 14,
    };
    const QUICK: Effort = Effort {
        file_bytes: 2 * MIB,
        turn_bytes: 2 * MIB,
        most_calls: 40,
    };
}

#[derive(Clone, Copy)]
enum Order {
    Row,
    Anywhere,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Reads {
    order: Order,
    bytes: u64,
    depth: usize,
}

impl Reads {
    fn all() -> impl Iterator<Item = Reads> {
        let sizes = |order| SIZES.into_iter().map(move |bytes| (order, bytes));
        let depths = |(order, bytes)| {
            DEPTHS.into_iter().map(move |depth| Reads {
                order,
                bytes,
                depth,
            })
        };
        ORDERS.into_iter().flat_map(sizes).flat_map(depths)
    }

    fn name(self) -> String {
        let order = match self.order {
            Order::Row => "in a row",
            Order::Anywhere => "anywhere",
        };
        match self.bytes {
            MIB => format!("1 MiB, {order}"),
            bytes => format!("{} KiB, {order}", bytes / KIB),
        }
    }

    fn count(self, effort: Effort) -> u64 {
        effort.most_calls.min(effort.turn_bytes / self.bytes)
    }

    /// The offsets of a turn; those of each seed but zero are different.
    fn offsets(self, effort: Effort, seed: u64) -> impl Iterator<Item = u64> {
        let pieces = effort.file_bytes / self.bytes;
        let mut random = seed;
        (0..self.count(effort)).map(move |number| {
            let piece = match self.order {
                Order::Row => number,
                Order::Anywhere => surroundings::next_random(&mut random),
            };
            piece % pieces * self.bytes
        })
    }
}

const BARE: &str = "bare socket";
const VOLUME: &str = "a volume";
const SERVERS: [&str; 2] = [BARE, VOLUME];

/// The server of a turn.
enum Server {
    Bare(BareSocket),
    Volume(Running),
}

/// READs at these offsets, whose answers are compared with the content of the file.
struct Compared<'a, I> {
    file: &'a Handle,
    content: &'a [u8],
    offsets: I,
    bytes: u64,
    /// The least number of bytes that are compared in each answer.
    least: usize,
}

impl<'a, I: Iterator<Item = u64>> Work<'a> for Compared<'a, I> {
    fn next(&mut self) -> Option<(u64, Call<'a>)> {
        let offset = self.offsets.next()?;
        Some((offset, Call::read(self.file, offset, self.bytes as u32)))
    }

    fn answered(&mut self, offset: u64, results: Results<'_>) -> std::io::Result<()> {
        let wanted = &self.content[offset as usize..][..self.bytes as usize];
        let (len, kept) = results.read_begun()?;
        if len != wanted.len() || kept.len() < self.least || !wanted.starts_with(kept) {
            let problem = format!("READ at {offset} returned other bytes than the file has");
            return Err(std::io::Error::other(problem));
        }
        Ok(())
    }
}

struct Course {
    stage: Stage,
    effort: Effort,
    content: Arc<Vec<u8>>,
    file: Handle,
}

impl Course {
    /// Makes the file.
    fn new(effort: Effort) -> Result<Course, Failure> {
        let stage = Stage::new()?;
        let content = Arc::new(surroundings::noise(1, effort.file_bytes as usize));
        let running = stage.start();
        let file = stage.client.block_on(async {
            let mut client = Client::connect(running.address).await?;
            let root = client.mount().await?;
            let file = client.create(&root, "file").await?;
            let pieces = content.chunks_exact(MIB as usize);
            let write = |turn| {
                Call::write(
                    &file,
                    turn * MIB,
                    &content[(turn * MIB) as usize..][..MIB as usize],
                )
            };
            client.pipeline(pieces.len() as u64, 0, write).await?;
            Ok::<_, Failure>(file)
        })?;
        stage.stop(running);
        stage.publish()?;
        let course = Course {
            stage,
            effort,
            content,
            file,
        };
        course.check_memory()?;
        Ok(course)
    }

    /// Fails unless the memory has the whole file.
    fn check_memory(&self) -> Result<(), Failure> {
        match self.stage.volume().status().memory_bytes >= self.effort.file_bytes {
            true => Ok(()),
            false => Err("the file is not wholly in memory".into()),
        }
    }

    fn start(&self, server: &str) -> Result<Server, Failure> {
        Ok(match server {
            BARE => {
                let _runtime = self.stage.client.enter();
                Server::Bare(BareSocket::start(self.content.clone(), SEND_BUFFER)?)
            }
            _ => Server::Volume(self.stage.start()),
        })
    }

    /// MB/s, and µs of the server's processor time for each call.
    fn turn(&self, server: &str, reads: Reads, seed: u64) -> Result<(f64, f64), Failure> {
        let server = self.start(server)?;
        let address = match &server {
            Server::Bare(bare) => bare.address,
            Server::Volume(running) => running.address,
        };
        let (taken, processor) = self.measure(address, reads, seed)?;
        match server {
            Server::Bare(bare) => bare.join()?,
            Server::Volume(running) => self.stage.stop(running),
        }
        let count = reads.count(self.effort) as f64;
        let rate = count * reads.bytes as f64 / 1e6 / taken.as_secs_f64();
        // At least the clock's resolution: a short turn may measure zero.
        Ok((rate, processor.as_secs_f64().max(1e-9) * 1e6 / count))
    }

    /// The duration of the calls, and the server's processor time. The connection has ended after that.
    fn measure(
        &self,
        address: SocketAddr,
        reads: Reads,
        seed: u64,
    ) -> Result<(Duration, Duration), Failure> {
        let connecting = Client::connect(address);
        let client = self.stage.client.block_on(connecting)?;
        let mut client = client.with_depth(reads.depth);
        wait_for_quiet();
        let before = others();
        let mut measured = self.compared(reads, reads.offsets(self.effort, seed), COMPARED);
        let began = Instant::now();
        self.stage
            .client
            .block_on(client.run(KEPT, &mut measured))?;
        let taken = began.elapsed();
        wait_for_quiet();
        let processor = others().saturating_sub(before);
        let all = (0..self.effort.file_bytes).step_by(reads.bytes as usize);
        let mut whole = self.compared(reads, all, reads.bytes as usize);
        self.stage
            .client
            .block_on(client.run(usize::MAX, &mut whole))?;
        Ok((taken, processor))
    }

    fn compared<I>(&self, reads: Reads, offsets: I, least: usize) -> Compared<'_, I> {
        Compared {
            file: &self.file,
            content: &self.content,
            offsets,
            bytes: reads.bytes,
            least,
        }
    }
}

fn key(figure: &str, server: &str, reads: Reads) -> String {
    format!("{figure}, {server}, {}, {}", reads.name(), reads.depth)
}

fn rate(server: &str, reads: Reads) -> String {
    key("rate", server, reads)
}

fn processor(server: &str, reads: Reads) -> String {
    key("processor", server, reads)
}

fn shown(rounds: &Rounds) -> String {
    let mut text = table::head(&[
        "READ of",
        "in flight",
        "bare socket, MB/s",
        "a volume, MB/s",
        "to the socket",
        "bare socket, µs of the server's processor time a call",
        "a volume",
        "to the socket",
    ]);
    for reads in Reads::all() {
        let mut cells = vec![reads.name(), reads.depth.to_string()];
        for figure in [rate, processor] {
            let [bare, volume] = SERVERS.map(|server| figure(server, reads));
            cells.push(table::digits(rounds.median(&bare)));
            cells.push(table::digits(rounds.median(&volume)));
            cells.push(table::times(rounds.ratio(&volume, &bare)));
        }
        text += &table::line(cells);
    }
    text
}

/// The table, with the machine it was measured on.
pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let effort = match arguments.full() {
        true => Effort::FULL,
        false => Effort::QUICK,
    };
    let course = Course::new(effort)?;
    let mut servers = SERVERS;
    let mut seed = 0;
    let mut once = || {
        let mut round = Round::default();
        for reads in Reads::all() {
            seed += 1;
            for server in servers {
                let (read, spent) = course.turn(server, reads, seed)?;
                round.insert(rate(server, reads), read);
                round.insert(processor(server, reads), spent);
            }
        }
        servers.reverse();
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(crate::rounds(arguments, 9)?, &mut [&mut once])?;
    course.check_memory()?;
    course.stage.close();
    let caption = Machine::this().caption(COMMAND, "medians of rounds in turns (quartiles)");
    Ok(rounds
        .iter()
        .map(|rounds| format!("{caption}\n\n{}", shown(rounds)))
        .collect())
}
