//! The cost of a call on several servers, `nfsserve` among them: `cargo bench --bench tables -- engines [--rounds N]
//! [--only PART-OF-A-CALL'S-NAME] [--log-in FOLDER]`.
//!
//! One connection over the loopback, 32 calls in flight, the client on the same processors. Four servers take turns,
//! each new in each turn: `nfsserve` over a file system in memory; our engine over the same one; our engine over a
//! volume whose log (except with `--log-in`) and cache are in memory, and which publishes after the turn; and over one
//! that publishes meanwhile, with the default settings, into a bucket that is in memory as well.
//!
//! Processor time is that of the process without the client's thread, until all other threads are idle: a turn includes
//! the later work of the log, and not the remaining work of another turn. For the last server also the cost of
//! uploading and publishing, to the end, and that of the bucket: copies into new memory.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_fs::Volume;
use forebay_measure::{Arguments, Machine, Round, Rounds, in_turns, table};
use forebay_vfs::memory::MemoryFileSystem;
use tokio::runtime::{Builder, Runtime};

use crate::clocks::{others, wait_for_quiet};
use crate::nfs_client::{Call, Client, Handle};
use crate::server::{self, Running};
use crate::{Failure, nfsserve_adapter, surroundings, volume};

const COMMAND: &str = "cargo bench --bench tables -- engines";
const KIB_4: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 256 * MIB;
const FILE: &str = "file";

/// A row: the call, its name, its bytes, and the number of calls in a turn.
type Row = (Calls, &'static str, u64, u64);

/// No turn writes more than a quarter of the [log](volume::LOG)'s limit, for which the log keeps files (prepared ones
/// included), so that it reuses files as a log in operation does.
const CALLS: [Row; 6] = [
    (Calls::GetAttr, "GETATTR", 0, 40_000),
    (Calls::Create, "CREATE", 0, 10_000),
    (Calls::Read, "READ of 4 KiB, random", KIB_4, 20_000),
    (
        Calls::Write,
        "WRITE of 4 KiB, random, unstable",
        KIB_4,
        20_000,
    ),
    (Calls::Read, "READ of 1 MiB, in a row", MIB, 512),
    (Calls::Write, "WRITE of 1 MiB, in a row, unstable", MIB, 192),
];

#[derive(Clone, Copy)]
enum Calls {
    GetAttr,
    Create,
    Read,
    Write,
}

/// The server of a turn.
enum Server {
    Nfsserve(Arc<MemoryFileSystem>),
    Engine(Arc<MemoryFileSystem>),
    /// A volume that publishes after the turn.
    Later(Volume),
    Volume(Volume),
}

const NFSSERVE: &str = "nfsserve";
const ENGINE: &str = "engine";
const LATER: &str = "later";
const VOLUME: &str = "volume";

impl Server {
    fn name(&self) -> &'static str {
        match self {
            Server::Nfsserve(_) => NFSSERVE,
            Server::Engine(_) => ENGINE,
            Server::Later(_) => LATER,
            Server::Volume(_) => VOLUME,
        }
    }

    async fn start(&self) -> Running {
        match self {
            Server::Nfsserve(fs) => nfsserve_adapter::start(fs.clone()).await,
            Server::Engine(fs) => server::start(fs.clone()).await,
            Server::Later(volume) | Server::Volume(volume) => {
                server::start(Arc::new(volume.clone())).await
            }
        }
    }

    /// Waits for the background work of the calls before.
    async fn settle(&self) -> Result<(), Failure> {
        if let Server::Later(volume) | Server::Volume(volume) = self {
            volume.flush().await?;
        }
        Ok(())
    }
}

struct Course {
    servers: Runtime,
    client: Runtime,
    payload: Vec<u8>,
    /// Number of directories made so far: each turn of CREATE has one of its own.
    directories: u64,
}

impl Course {
    fn new() -> Result<Course, Failure> {
        Ok(Course {
            servers: crate::runtime()?,
            client: Builder::new_current_thread().enable_all().build()?,
            payload: surroundings::noise(1, MIB as usize),
            directories: 0,
        })
    }

    /// Makes the file.
    fn prepare(&self, server: &Server) -> Result<(), Failure> {
        let running = self.servers.block_on(server.start());
        let made = self.client.block_on(async {
            let mut client = Client::connect(running.address).await?;
            let root = client.mount().await?;
            let file = client.create(&root, FILE).await?;
            let write = |turn| Call::write(&file, turn * MIB, &self.payload);
            client.pipeline(FILE_BYTES / MIB, 0, write).await
        });
        self.servers.block_on(running.stop());
        Ok(made?)
    }

    /// The duration, and the server's processor time, of `count` calls, in seconds.
    fn turn(
        &mut self,
        server: &Server,
        (calls, bytes, count): (Calls, u64, u64),
    ) -> Result<(f64, f64), Failure> {
        let running = self.servers.block_on(async {
            server.settle().await?;
            Ok::<_, Failure>(server.start().await)
        })?;
        self.directories += 1;
        wait_for_quiet();
        let before = others();
        let run = self.run(running.address, calls, bytes, count);
        let taken = self.client.block_on(run)?;
        if let Server::Volume(_) = server {
            self.servers.block_on(server.settle())?;
        }
        wait_for_quiet();
        let processor = others().saturating_sub(before);
        self.servers.block_on(running.stop());
        Ok((taken.as_secs_f64(), processor.as_secs_f64()))
    }

    async fn run(
        &self,
        address: SocketAddr,
        calls: Calls,
        bytes: u64,
        count: u64,
    ) -> Result<Duration, Failure> {
        let mut client = Client::connect(address).await?;
        let root = client.mount().await?;
        let file = client.lookup(&root, FILE).await?;
        let directory = match calls {
            Calls::Create => {
                let name = format!("directory {}", self.directories);
                client.mkdir(&root, &name).await?
            }
            _ => root,
        };
        let reply_bytes = match calls {
            Calls::Read => bytes as usize,
            _ => 0,
        };
        let mut random = self.directories;
        let began = Instant::now();
        let call = |turn| {
            let offset = match bytes {
                MIB => turn * MIB % FILE_BYTES,
                _ => surroundings::next_random(&mut random) % (FILE_BYTES / KIB_4) * KIB_4,
            };
            self.call(calls, bytes, &file, &directory, (turn, offset))
        };
        client.pipeline(count, reply_bytes, call).await?;
        Ok(began.elapsed())
    }

    fn call(
        &self,
        calls: Calls,
        bytes: u64,
        file: &Handle,
        directory: &Handle,
        (turn, offset): (u64, u64),
    ) -> Call<'_> {
        match calls {
            Calls::GetAttr => Call::getattr(file),
            Calls::Create => Call::create(directory, &format!("file {turn}")),
            Calls::Read => Call::read(file, offset, bytes as u32),
            Calls::Write => Call::write(file, offset, &self.payload[..bytes as usize]),
        }
    }
}

fn rate(server: &str, call: &str) -> String {
    format!("rate, {server}, {call}")
}

fn processor(server: &str, call: &str) -> String {
    format!("processor, {server}, {call}")
}

pub(crate) fn tables(arguments: &Arguments) -> Result<String, Failure> {
    let full = arguments.full();
    let rounds = crate::rounds(arguments, 9)?;
    let only = arguments.after("--only").unwrap_or_default();
    let chosen: Vec<_> = CALLS
        .into_iter()
        .filter(|(_, name, ..)| name.contains(only))
        .collect();
    if chosen.is_empty() {
        return Err(format!("--only {only}: no call has that in its name").into());
    }
    let mut course = Course::new()?;
    let folder = arguments.after("--log-in").map(Path::new);
    let folder = folder.unwrap_or(surroundings::memory_folder());
    let opened = course.servers.block_on(volume::open(volume::LOG, folder));
    let later = volume::open_with(volume::LOG, folder, volume::publish_on_request);
    let later = course.servers.block_on(later);
    let memory = Arc::new(MemoryFileSystem::new());
    let servers = [
        Server::Engine(memory.clone()),
        Server::Nfsserve(memory),
        Server::Later(later.volume.clone()),
        Server::Volume(opened.volume.clone()),
    ];
    for server in &servers {
        course.prepare(server)?;
    }
    let mut once = || {
        let mut round = Round::default();
        for &(calls, name, bytes, count) in &chosen {
            let count = if full { count } else { 8 };
            for server in &servers {
                let (taken, spent) = course.turn(server, (calls, bytes, count))?;
                round.insert(rate(server.name(), name), count as f64 / taken);
                // At least the clock's resolution: a short turn may measure zero.
                round.insert(
                    processor(server.name(), name),
                    spent.max(1e-9) / count as f64,
                );
            }
        }
        Ok::<_, Failure>(round)
    };
    let rounds = in_turns(rounds, &mut [&mut once])?;
    drop(servers);
    course.servers.block_on(async {
        later.close().await;
        opened.close().await;
    });
    let command = arguments.command(COMMAND, &["--only", "--log-in"]);
    let caption = Machine::this().caption(&command, "medians of rounds in turns (quartiles)");
    Ok(rounds
        .iter()
        .map(|rounds| {
            let told = [rates(rounds, &chosen), costs(rounds, &chosen)];
            format!("{caption}\n\n{}", told.join("\n"))
        })
        .collect())
}

fn shown(
    (rounds, chosen): (&Rounds, &[Row]),
    figure: fn(&str, &str) -> String,
    unit: &str,
    scale: f64,
) -> String {
    let titles = [
        format!("32 calls under way, {unit}"),
        "nfsserve".to_owned(),
        "our engine, the same file system".to_owned(),
        "to nfsserve".to_owned(),
        "a volume".to_owned(),
        "to nfsserve".to_owned(),
        "and uploads".to_owned(),
        "to nfsserve".to_owned(),
    ];
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut text = table::head(&titles);
    for &(_, name, ..) in chosen {
        let [theirs, engine, later, volume] =
            [NFSSERVE, ENGINE, LATER, VOLUME].map(|caller| figure(caller, name));
        let told = |key: &str| table::digits(rounds.median(key).map(|value| value * scale));
        text += &table::line([
            name.to_owned(),
            told(&theirs),
            told(&engine),
            table::times(rounds.ratio(&engine, &theirs)),
            told(&later),
            table::times(rounds.ratio(&later, &theirs)),
            told(&volume),
            table::times(rounds.ratio(&volume, &theirs)),
        ]);
    }
    text
}

fn rates(rounds: &Rounds, chosen: &[Row]) -> String {
    shown((rounds, chosen), rate, "thousand a second", 1e-3)
}

fn costs(rounds: &Rounds, chosen: &[Row]) -> String {
    shown(
        (rounds, chosen),
        processor,
        "µs of processor time each",
        1e6,
    )
}
