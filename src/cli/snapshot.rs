//! The command `snapshot`.

use clap::{Arg, ArgMatches, Command};

use super::{configured, past};
use crate::admin::SnapshotRequest;

pub(super) fn request(name: &str, matches: &ArgMatches) -> SnapshotRequest {
    let given = || matches.get_one::<String>("name").cloned();
    // Required where the argument exists.
    let required = || given().unwrap_or_default();
    match name {
        "show" => SnapshotRequest::Show { name: required() },
        "create" => SnapshotRequest::Create {
            name: given(),
            by: format!("uid {}", rustix::process::getuid().as_raw()),
        },
        "delete" => SnapshotRequest::Delete { name: required() },
        _ => SnapshotRequest::List,
    }
}

/// `snapshot` and its subcommands.
pub(super) fn command(json: &Arg) -> Command {
    let name = |help: &'static str| Arg::new("name").value_name("name").help(help);
    let existing = name("The snapshot: its name or number").required(true);
    let with_json = |name, about| configured(name, about).arg(json.clone());
    Command::new("snapshot")
        .about("Make, list, compare or delete snapshots of the volume")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            with_json(
                "create",
                "Make a snapshot of everything that was acknowledged before",
            )
            .arg(name(
                "Its name, such as before-upgrade [default: the time in UTC]",
            )),
        )
        .subcommand(with_json("list", "Print all snapshots and what they hold").arg(past::bucket()))
        .subcommand(
            with_json("show", "Print one snapshot and what it holds")
                .arg(existing.clone())
                .arg(past::bucket()),
        )
        .subcommand(past::diff(json))
        .subcommand(
            with_json(
                "delete",
                "Delete a snapshot; its space is given back in the background",
            )
            .arg(existing),
        )
}
