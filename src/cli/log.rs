//! The command `log`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, switch};

/// A request about the logs in `data_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRequest {
    /// Print all logs, and which of their content is not in the bucket.
    List {
        /// As JSON.
        json: bool,
    },
    /// Print a log record by record.
    Show {
        /// The log.
        label: String,
        /// Where to begin; by default where the unpublished part begins.
        from: Option<u64>,
        /// As JSON, one object a line.
        json: bool,
    },
    /// Write the content that is not in the bucket as files.
    Salvage {
        /// The log.
        label: String,
        /// The folder to create.
        to: PathBuf,
        /// Do not use the bucket.
        ranges_only: bool,
    },
    /// Delete every archived log that was salvaged.
    ForgetSalvaged,
    /// Delete an archived log.
    Forget {
        /// The log.
        label: String,
        /// Also if it was not salvaged.
        force: bool,
    },
}

/// The request of a subcommand of `log`.
pub(super) fn request(name: &str, matches: &ArgMatches) -> LogRequest {
    let json = || matches.get_flag("json");
    // Required where the argument exists.
    let label = || matches.get_one("label").cloned().unwrap_or_default();
    match name {
        "show" => LogRequest::Show {
            label: label(),
            from: matches.get_one("from").copied(),
            json: json(),
        },
        "salvage" => LogRequest::Salvage {
            label: label(),
            to: matches.get_one("to").cloned().unwrap_or_default(),
            ranges_only: matches.get_flag("ranges-only"),
        },
        "forget" if matches.get_flag("all-salvaged") => LogRequest::ForgetSalvaged,
        "forget" => LogRequest::Forget {
            label: label(),
            force: matches.get_flag("force"),
        },
        _ => LogRequest::List { json: json() },
    }
}

/// `log` and its subcommands.
pub(super) fn command(json: &Arg) -> Command {
    let label = Arg::new("label")
        .value_name("label")
        .required(true)
        .help("The log's label, as `forebay log list` prints it");
    let from = Arg::new("from")
        .long("from")
        .value_name("LSN")
        .value_parser(value_parser!(u64))
        .help("Begin at this LSN [default: the first unpublished record; 0 for everything]");
    let to = Arg::new("to")
        .long("to")
        .value_name("folder")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The folder to create; it must not exist");
    let ranges_only = switch(
        "ranges-only",
        "Do not read the store: files that existed before get only the ranges that the log holds",
    );
    let force = switch(
        "force",
        "Delete it even if it was not salvaged: its content is lost",
    );
    Command::new("log")
        .about("List, print, salvage or delete the logs in data_dir whose changes are not in the bucket")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            configured(
                "list",
                "List the logs and their changes that are not in the bucket",
            )
            .arg(json.clone()),
        )
        .subcommand(
            configured("show", "Print a log record by record")
                .arg(label.clone())
                .arg(from)
                .arg(json.clone()),
        )
        .subcommand(
            configured(
                "salvage",
                "Write the changes that are not in the bucket as files; the store is only read",
            )
            .arg(label.clone())
            .arg(to)
            .arg(ranges_only),
        )
        .subcommand(
            configured("forget", "Delete archived logs")
                .arg(
                    label
                        .required(false)
                        .required_unless_present("all-salvaged"),
                )
                .arg(force)
                .arg(
                    switch("all-salvaged", "Delete all archived logs that were salvaged")
                        .conflicts_with_all(["label", "force"]),
                ),
        )
}
