//! Tables about a volume: `cargo bench --bench tables -- [NAME ...] [--update FILE]`.
//!
//! | name | content |
//! |---|---|
//! | [`at_rest`] | the content of the bucket, for typical data |
//! | [`buffers`] | the gain from recycling block buffers |
//! | [`bursts`] | a burst of twenty times the memory |
//! | [`cold_reads`] | reads of data that only the bucket has, 1 to 100 ms away |
//! | [`engines`] | the cost of a call on several servers, nfsserve among them |
//! | [`many`] | many connections and clients, beside one with as many calls in flight |
//! | [`names`] | one large directory, and a volume of many files |
//! | [`reads`] | reads of a file in memory, beside a bare loop over a socket |
//! | [`requests`] | requests and bytes of everyday work |
//! | [`scale`] | how costs grow with the number of files and the distance of the bucket |
//! | [`sealed_log`] | the cost of sealing the log for a write |
//! | [`sharing`] | the cost of callers for one another |
//! | [`streams`] | the memory that sequential writers hold |
//! | [`uploads`] | the rate at which written data reach the bucket |
//! | [`write_latency`] | the time of a write while earlier data are compressed, sealed and uploaded |
//! | [`write_patterns`] | the write patterns of a published file layer |
//!
//! One program has all of them, because linking it takes longer than most of them do. It measures those whose names
//! contain one of the given names, or that one alone if a table has just that name, and all without any. Each has options of its own, and refuses options that it would
//! ignore. `--store s3://BUCKET/PREFIX`, which [`cold_reads`] and [`uploads`] accept, uses a bucket of a server
//! (`benches/on_s3.sh`). `--update FILE` puts each table between its marks in that file instead of printing it. Run by
//! `cargo test`, a little of everything shows that it works.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

mod at_rest;
mod bare_socket;
mod buffers;
mod bursts;
mod clocks;
mod cold_reads;
mod engines;
mod far;
mod many;
mod names;
#[path = "../nfs_client/mod.rs"]
mod nfs_client;
#[path = "../nfsserve_adapter/mod.rs"]
mod nfsserve_adapter;
mod reads;
mod requests;
mod scale;
mod sealed_log;
#[path = "../server/mod.rs"]
mod server;
mod sharing;
mod stage;
mod streams;
#[path = "../surroundings/mod.rs"]
mod surroundings;
mod uploads;
#[path = "../volume/mod.rs"]
mod volume;
mod write_latency;
mod write_patterns;

use std::collections::BTreeSet;

use forebay_measure::Arguments;
use forebay_vfs::Credentials;
use tokio::runtime::{Builder, Runtime};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A name, its options, and the function that measures and returns a table in Markdown.
type Tables = (
    &'static str,
    &'static [&'static str],
    fn(&Arguments) -> Result<String, Failure>,
);

const ROUNDS: &[&str] = &["--rounds"];

const ALL: [Tables; 16] = [
    ("at_rest", &["--tree", "--write-to"], at_rest::tables),
    ("buffers", ROUNDS, buffers::tables),
    ("bursts", ROUNDS, bursts::tables),
    ("cold_reads", &["--rounds", "--store"], cold_reads::tables),
    (
        "engines",
        &["--rounds", "--only", "--log-in"],
        engines::tables,
    ),
    ("many", ROUNDS, many::tables),
    ("names", &["--files"], names::tables),
    ("reads", ROUNDS, reads::tables),
    ("requests", &["--idle"], requests::tables),
    ("scale", ROUNDS, scale::tables),
    ("sealed_log", ROUNDS, sealed_log::tables),
    ("sharing", ROUNDS, sharing::tables),
    ("streams", ROUNDS, streams::tables),
    (
        "uploads",
        &["--rounds", "--only", "--store"],
        uploads::tables,
    ),
    ("write_latency", ROUNDS, write_latency::tables),
    ("write_patterns", ROUNDS, write_patterns::tables),
];

static ROOT: Credentials = Credentials::ROOT;

/// The runtime of the program on a machine with two processors.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// The number of rounds: as `--rounds` says; `usual` without it, and one if run by `cargo test`.
fn rounds(arguments: &Arguments, usual: usize) -> Result<usize, Failure> {
    Ok(match arguments.after("--rounds") {
        Some(count) => count.parse()?,
        None if arguments.full() => usual,
        None => 1,
    })
}

fn main() -> Result<(), Failure> {
    let options: BTreeSet<&str> = ALL
        .iter()
        .flat_map(|(_, options, _)| *options)
        .copied()
        .collect();
    let options: Vec<&str> = options.into_iter().collect();
    let arguments = Arguments::of_this(&options, &[])?;
    let mut chosen = ALL.to_vec();
    let names = ALL.map(|(name, ..)| name);
    chosen.retain(|(name, ..)| arguments.chooses_among(name, &names));
    if chosen.is_empty() {
        // Other benchmarks may have the requested one.
        eprintln!("no table is called so; there are: {}", names.join(", "));
    }
    for (name, options, _) in &chosen {
        arguments.check_for(name, options)?;
    }
    for (name, _, tables) in chosen {
        let (store, files) = (arguments.after("--store"), arguments.after("--files"));
        let mark = match (store, files) {
            (Some(_), _) => format!("{name}, on a server"),
            (None, Some(files)) => format!("{name}, of {files} files"),
            (None, None) => name.to_owned(),
        };
        arguments.show(&mark, &tables(&arguments)?)?;
    }
    Ok(())
}
