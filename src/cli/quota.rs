//! The command `quota`.

use clap::{Arg, ArgGroup, ArgMatches, Command};

use super::configured;
use crate::admin::{QuotaLimit, QuotaRequest};
use crate::config::{Size, Value};

pub(super) fn request(name: &str, matches: &ArgMatches) -> QuotaRequest {
    // Required where the argument exists.
    let path = || matches.get_one("path").cloned().unwrap_or_default();
    let limit = |name| matches.get_one(name).copied().unwrap_or_default();
    match name {
        "show" => QuotaRequest::Show { path: path() },
        "set" => QuotaRequest::Set {
            path: path(),
            bytes: limit("bytes"),
            files: limit("files"),
        },
        "remove" => QuotaRequest::Remove { path: path() },
        _ => QuotaRequest::List,
    }
}

/// `quota` and its subcommands.
pub(super) fn command(json: &Arg) -> Command {
    let path = Arg::new("path")
        .value_name("path")
        .required(true)
        .help("The directory, from the root of the volume: /home/ann");
    let bytes = Arg::new("bytes")
        .long("bytes")
        .value_name("size")
        .value_parser(bytes_limit)
        .help("Bytes that files may use, for example 10GiB, or none [default: unchanged]");
    let files = Arg::new("files")
        .long("files")
        .value_name("number")
        .value_parser(files_limit)
        .help("Number of objects (files, directories and others), or none [default: unchanged]");
    let with_json = |name, about| configured(name, about).arg(json.clone());
    Command::new("quota")
        .about("Set, remove or print quotas of directories, with the running gateway")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with_json("list", "Print all quotas and their usage"))
        .subcommand(
            with_json("show", "Print the quota that a directory counts in").arg(path.clone()),
        )
        .subcommand(
            with_json("set", "Limit a directory and everything below it")
                .arg(path.clone())
                .arg(bytes)
                .arg(files)
                .group(
                    ArgGroup::new("limit")
                        .args(["bytes", "files"])
                        .required(true)
                        .multiple(true),
                ),
        )
        .subcommand(with_json("remove", "Remove the quota of a directory").arg(path))
}

fn bytes_limit(text: &str) -> Result<QuotaLimit, String> {
    if text == "none" {
        return Ok(QuotaLimit::None);
    }
    Size::read(text).map(|size| QuotaLimit::To(size.bytes()))
}

fn files_limit(text: &str) -> Result<QuotaLimit, String> {
    if text == "none" {
        return Ok(QuotaLimit::None);
    }
    let number = text.parse();
    number
        .map(QuotaLimit::To)
        .map_err(|_| "give a number such as 100000, or none".to_owned())
}
