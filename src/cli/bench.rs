//! The command `bench`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::bench::Plan;
use crate::config::{Size, Value};

/// `bench`, which measures any folder.
pub(super) fn command(json: &Arg) -> Command {
    let folder = Arg::new("folder")
        .value_name("folder")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The folder to measure: a mount, or a local folder for comparison");
    let size = Arg::new("size")
        .long("size")
        .value_name("size")
        .default_value("256MiB")
        .value_parser(file_size)
        .help("Size of the large file; best larger than the memory of client and server");
    let files = Arg::new("files")
        .long("files")
        .value_name("number")
        .default_value("1000")
        .value_parser(value_parser!(u64).range(1..=10_000_000))
        .help("Number of small files");
    let parallel = Arg::new("parallel")
        .long("parallel")
        .value_name("number")
        .default_value("8")
        .value_parser(value_parser!(u16).range(1..=256))
        .help("Threads of the parallel measurements");
    Command::new("bench")
        .about("Measure the speed of a folder, and print a table")
        .after_help(
            "Creates a folder of its own in the given one, and removes it at the end. Writes are \
             flushed (fsync) before\nthe clock stops. Before reads, the files are dropped from \
             this machine's page cache, not from the server's memory.",
        )
        .args([folder, size, files, parallel])
        .arg(json.clone())
}

fn file_size(text: &str) -> Result<u64, String> {
    const MIB: u64 = 1 << 20;
    let bytes = Size::read(text)?.bytes();
    match bytes >= MIB && bytes % MIB == 0 {
        true => Ok(bytes),
        false => Err("give a whole number of MiB, at least one: for example 512MiB".to_owned()),
    }
}

pub(super) fn plan(matches: &ArgMatches) -> Plan {
    // Each is required or has a default.
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or(1);
    let parallel = matches.get_one::<u16>("parallel").copied().unwrap_or(1);
    Plan {
        folder: matches.get_one("folder").cloned().unwrap_or_default(),
        file_bytes: number("size"),
        files: number("files"),
        parallel: usize::from(parallel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Plan> {
        let json = Arg::new("json").long("json");
        let matches = command(&json).try_get_matches_from(line.split(' '));
        Some(plan(&matches.ok()?))
    }

    #[test]
    fn a_plan_has_defaults_and_limits() {
        let defaults = Plan {
            folder: "/mnt".into(),
            file_bytes: 256 << 20,
            files: 1000,
            parallel: 8,
        };
        assert_eq!(read("bench /mnt"), Some(defaults));
        let given = Plan {
            folder: "/mnt".into(),
            file_bytes: 3 << 20,
            files: 1,
            parallel: 256,
        };
        let line = "bench /mnt --size 3MiB --files 1 --parallel 256";
        assert_eq!(read(line), Some(given));
        for line in [
            "bench",
            "bench /mnt --size 0",
            "bench /mnt --size 1500KiB",
            "bench /mnt --files 0",
            "bench /mnt --parallel 0",
            "bench /mnt --parallel 257",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
