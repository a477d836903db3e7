//! Compares Forebay with other servers: the same client, the same work, in turns. `benches/beside.sh` starts them all
//! and runs this; docs/beside.md has the results.
//!
//! ```text
//! cargo bench --bench beside -- --server NAME=ADDRESS:PORT[:MOUNTPORT]:/EXPORT --folder NAME=/MOUNTED ...
//! ```
//!
//! Servers get calls over one connection of a pipelined client, 32 in flight; folders get system calls. The others are
//! compared with the first one, round by round. Further options:
//!
//! * `--rounds N`: 5 by default
//! * `--pause SECONDS`: before each workload, so that background work of the one before has ended; 0 by default
//! * `--only WORKLOAD`: one of them alone (`SequentialWrite`, `RandomRead`, `Create` and so on), and the ones it needs
//! * `--profiler PIPE`: a pipe of `perf record --control fifo:PIPE`, which samples only while a workload is performed
//!   (`benches/flames.sh`)
//! * `--promise NAME=TEXT`: the meaning of a commit there, for the table
//! * `--settle NAME=COMMAND`: run after each of its turns, so that its background work does not slow the next contender
//! * `--update FILE`: puts the tables between their marks in that file
//! * `--kernel`: the folders are mounts of the kernel's NFS client; the tables say so, and have marks of their own
//! * `--serve-nfsserve ADDRESS:PORT`: measures nothing, but runs `nfsserve` over a file system in memory until it is
//!   ended
//!
//! Run by `cargo test`, or without servers, it shows with little work that it works, on our engine and `nfsserve`, both
//! over a file system in memory, and in a folder.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

mod nfs_client;
mod nfsserve_adapter;
mod server;
mod surroundings;
mod workloads;

use std::cell::RefCell;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_measure::{Arguments, Machine, Median, Round, Rounds, in_turns, table};
use forebay_vfs::memory::MemoryFileSystem;
use nfsserve::tcp::{NFSTcp, NFSTcpListener};
use tokio::runtime::{Builder, Runtime};

use nfsserve_adapter::Adapter;
use workloads::{Data, Effort, Folder, Manner, Place, Server, ServerSpec, Workload, turn};

const COMMAND: &str = "benches/beside.sh";
/// Options with a value, most of them for scripts.
const OPTIONS: [&str; 9] = [
    "--server",
    "--folder",
    "--promise",
    "--settle",
    "--rounds",
    "--only",
    "--pause",
    "--profiler",
    "--serve-nfsserve",
];
const KERNEL: &str = "--kernel";
/// Names in the marks of its tables, and of those through the kernel's client.
const MARKS: [&str; 2] = ["beside", "beside_kernel"];

/// Number of turns so far, of all contenders.
static TURNS: AtomicUsize = AtomicUsize::new(0);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server or folder that takes part.
struct Contender {
    name: String,
    place: Box<dyn Place>,
    /// The meaning of a commit there.
    promise: Option<String>,
    /// A command to run after its turn.
    settle: Option<String>,
}

impl Contender {
    fn new(name: &str, place: impl Place + 'static) -> Contender {
        Contender {
            name: name.to_owned(),
            place: Box::new(place),
            promise: None,
            settle: None,
        }
    }

    /// Runs one turn. A failure is printed once, and noted.
    fn turn(
        &mut self,
        folder: &str,
        data: &Data,
        manner: &Manner,
        notes: &RefCell<Vec<String>>,
    ) -> Result<Round, Failure> {
        let turn = turn(&mut *self.place, folder, data, manner);
        for failure in turn.failures {
            let note = format!("{}: {failure}", self.name);
            eprintln!("{note}");
            let mut notes = notes.borrow_mut();
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        if let Some(command) = &self.settle {
            let status = Command::new("sh").arg("-c").arg(command).status()?;
            if !status.success() {
                return Err(format!("{command:?} has failed ({status})").into());
            }
        }
        Ok(turn.round)
    }
}

/// The contenders on the command line.
fn contenders(arguments: &Arguments) -> Result<Vec<Contender>, Failure> {
    let pair = |value: &str| -> Result<(String, String), Failure> {
        let (name, rest) = value
            .split_once('=')
            .ok_or_else(|| format!("{value:?} is not NAME=..."))?;
        Ok((name.to_owned(), rest.to_owned()))
    };
    let mut contenders: Vec<Contender> = Vec::new();
    for (option, value) in arguments.all_after(&["--server", "--folder"]) {
        let (name, rest) = pair(value)?;
        contenders.push(match option {
            "--server" => Contender::new(&name, Server::new(rest.parse::<ServerSpec>()?)?),
            _ => Contender::new(&name, Folder::new(rest.into())),
        });
    }
    for (option, value) in arguments.all_after(&["--promise", "--settle"]) {
        let (name, rest) = pair(value)?;
        let named = contenders
            .iter_mut()
            .find(|contender| contender.name == name);
        let named = named.ok_or_else(|| format!("{option} {value:?}: nothing has this name"))?;
        match option {
            "--promise" => named.promise = Some(rest),
            _ => named.settle = Some(rest),
        }
    }
    Ok(contenders)
}

/// Measures all of them in turns; returns the rounds of each, and the failures.
fn measure(
    contenders: &mut [Contender],
    rounds: usize,
    data: &Data,
    manner: &Manner,
) -> Result<(Vec<Rounds>, Vec<String>), Failure> {
    let notes = RefCell::new(Vec::new());
    let mut turns: Vec<_> = contenders
        .iter_mut()
        .map(|contender| {
            let notes = &notes;
            move || {
                // Never the same name twice: a server answers a call that it has seen before from its replay cache.
                let number = TURNS.fetch_add(1, Ordering::Relaxed);
                let folder = format!("beside {} {number}", std::process::id());
                contender.turn(&folder, data, manner, notes)
            }
        })
        .collect();
    let mut turns: Vec<_> = turns
        .iter_mut()
        .map(|turn| turn as &mut dyn FnMut() -> Result<Round, Failure>)
        .collect();
    let measured = in_turns(rounds, &mut turns)?;
    drop(turns);
    Ok((measured, notes.into_inner()))
}

// ---- tables ------------------------------------------------------------------------------------

/// Workloads that share a table.
const GROUPS: [(&str, &[Workload]); 4] = [
    (
        "A file of 256 MiB, 1 MiB at a time",
        &[Workload::SequentialWrite, Workload::SequentialRead],
    ),
    (
        "4 KiB at random in it",
        &[Workload::RandomWrite, Workload::RandomRead],
    ),
    (
        "2,000 files in a directory, how many a second",
        &[
            Workload::Create,
            Workload::LookUp,
            Workload::GetAttributes,
            Workload::List,
            Workload::Remove,
        ],
    ),
    (
        "A source tree of 1,500 files is unpacked",
        &[Workload::Unpack],
    ),
];

fn tables(
    command: &str,
    contenders: &[Contender],
    measured: &[Rounds],
    notes: &[String],
    data: &Data,
) -> String {
    let (Some(first), Some(first_rounds)) = (contenders.first(), measured.first()) else {
        return String::new();
    };
    let mut text = String::new();
    let rounds = first_rounds.count();
    let figures = format!(
        "medians of {rounds} rounds in turns (quartiles); in brackets how many times as fast {} is, median of the ratios within the rounds",
        first.name
    );
    text += &Machine::this().caption(command, &figures);
    text.push('\n');
    if contenders
        .iter()
        .any(|contender| contender.promise.is_some())
    {
        text.push('\n');
        text += &table::head(&["", "what is committed is"]);
        for contender in contenders {
            text += &table::line([
                &contender.name[..],
                contender.promise.as_deref().unwrap_or(""),
            ]);
        }
    }
    for (title, workloads) in GROUPS {
        let _ = write!(text, "\n{title}");
        if workloads.contains(&Workload::Unpack) {
            let _ = write!(text, " ({:.1} MB)", data.tree_bytes() as f64 / 1e6);
        }
        text += ":\n\n";
        let heads: Vec<_> = [""]
            .into_iter()
            .chain(workloads.iter().map(|workload| workload.name()))
            .collect();
        text += &table::head(&heads);
        for (contender, rounds) in contenders.iter().zip(measured) {
            let cells = workloads.iter().map(|workload| {
                let key = workload.key();
                if !contender.place.has(*workload) {
                    return String::new();
                }
                let ratio = first_rounds.ratio_to(rounds, &key);
                cell(
                    rounds.median(&key),
                    ratio,
                    std::ptr::eq(rounds, first_rounds),
                )
            });
            text += &table::line([contender.name.clone()].into_iter().chain(cells));
        }
    }
    for note in notes {
        let _ = write!(text, "\nFailed: {note}.\n");
    }
    text
}

fn cell(rate: Median, ratio: Median, is_first: bool) -> String {
    match (rate.value.is_nan(), is_first) {
        (true, _) => "failed".to_owned(),
        (false, true) => table::digits(rate),
        (false, false) => format!("{} [{}]", table::digits(rate), table::three(ratio.value)),
    }
}

// ---- nfsserve, and the little work -------------------------------------------------------------

fn two_threads() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

async fn nfsserve_on(address: &str) -> std::io::Result<NFSTcpListener<Adapter<MemoryFileSystem>>> {
    let fs = Adapter(Arc::new(MemoryFileSystem::new()));
    NFSTcpListener::bind(address, fs).await
}

/// Runs a little work on our engine, `nfsserve` and a folder: everything must succeed, and the tables must contain it.
fn show_that_it_works() -> Result<(), Failure> {
    let data = Data::new(Effort::TINY);
    let servers = two_threads()?;
    let own = servers.block_on(server::start(Arc::new(MemoryFileSystem::new())));
    let (port, running) = servers.block_on(async {
        let listener = nfsserve_on("127.0.0.1:0").await?;
        let port = listener.get_listen_port();
        let running = tokio::spawn(async move { listener.handle_forever().await });
        std::io::Result::Ok((port, running))
    })?;
    let folder = tempfile::tempdir()?;
    let over =
        |text: String| -> Result<Server, Failure> { Ok(Server::new(text.parse::<ServerSpec>()?)?) };
    let own_port = own.address.port();
    let all = || -> Result<[Contender; 3], Failure> {
        Ok([
            // MOUNT over another connection, although it is the same port.
            Contender::new(
                "forebay",
                over(format!("127.0.0.1:{own_port}:{own_port}:/"))?,
            ),
            Contender::new("nfsserve", over(format!("127.0.0.1:{port}:/"))?),
            Contender::new("folder", Folder::new(folder.path().to_owned())),
        ])
    };
    let mut contenders = all()?;
    let (measured, notes) = measure(&mut contenders, 2, &data, &Manner::default())?;
    let text = tables(COMMAND, &contenders, &measured, &notes, &data);
    assert!(notes.is_empty() && !text.contains("failed"), "{text}");
    assert_eq!(
        text.matches("\n| nfsserve | ").count(),
        GROUPS.len(),
        "{text}"
    );
    for workload in [Workload::RandomRead, Workload::Create, Workload::Unpack] {
        let manner = Manner {
            only: Some(workload),
            ..Manner::default()
        };
        let (measured, notes) = measure(&mut all()?, 1, &data, &manner)?;
        assert!(notes.is_empty(), "{workload:?}: {notes:?}");
        assert!(
            measured
                .iter()
                .all(|rounds| rounds.median(&workload.key()).value > 0.0)
        );
    }
    let left = std::fs::read_dir(folder.path())?.count();
    assert_eq!(left, 0, "everything is removed");
    servers.block_on(own.stop());
    running.abort();
    servers.shutdown_background();
    Ok(())
}

fn run() -> Result<(), Failure> {
    let arguments = Arguments::of_this(&OPTIONS, &[KERNEL])?;
    if let Some(address) = arguments.after("--serve-nfsserve") {
        return two_threads()?.block_on(async {
            nfsserve_on(address).await?.handle_forever().await?;
            Ok(())
        });
    }
    let mut contenders = contenders(&arguments)?;
    if !arguments.full() || contenders.is_empty() {
        show_that_it_works()?;
        eprintln!("It works. For figures, run {COMMAND}: it starts the servers.");
        return Ok(());
    }
    let rounds = arguments.after("--rounds").unwrap_or("5").parse()?;
    let only = match arguments.after("--only") {
        Some(name) => {
            let known = Workload::named(name);
            Some(known.ok_or_else(|| format!("--only {name:?}: no workload has this name"))?)
        }
        None => None,
    };
    let manner = Manner {
        pause: Duration::from_secs(arguments.after("--pause").unwrap_or("0").parse()?),
        only,
        profiler: arguments.after("--profiler").map(PathBuf::from),
    };
    let data = Data::new(Effort::FULL);
    let (measured, notes) = measure(&mut contenders, rounds, &data, &manner)?;
    let [plain, kernel] = MARKS;
    let (mark, command) = match arguments.has(KERNEL) {
        true => (kernel, format!("{COMMAND} --kernel")),
        false => (plain, COMMAND.to_owned()),
    };
    let tables = tables(&command, &contenders, &measured, &notes, &data);
    arguments.show(mark, &tables)?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("beside: {error}");
            ExitCode::FAILURE
        }
    }
}
