//! The command `undelete`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, path, path_argument};
use crate::admin::{TrashRequest, VolumePath};

pub(super) fn request(matches: &ArgMatches) -> TrashRequest {
    let to: Option<&OsString> = matches.get_one("to");
    let to = to.map(|to| VolumePath(to.as_bytes().to_vec()));
    match (path(matches), matches.get_one::<u64>("id")) {
        (Some(path), _) => TrashRequest::Path { path, to },
        (None, Some(id)) => TrashRequest::Id { id: *id, to },
        (None, None) => TrashRequest::List { after: None },
    }
}

/// `undelete` and its arguments.
pub(super) fn command(json: &Arg) -> Command {
    let what = path_argument(
        "What to bring back, from the root of the volume: /home/ann/notes; a directory comes back with everything \
         below it [default: list the trash]",
    );
    let id = Arg::new("id")
        .long("id")
        .value_name("number")
        .value_parser(value_parser!(u64))
        .conflicts_with("path")
        .help("Bring back the object with this number of the list");
    let to = Arg::new("to")
        .long("to")
        .value_name("path")
        .value_parser(value_parser!(OsString))
        .help("Bring one file back as this path, which must be free [default: its own]");
    configured(
        "undelete",
        "List the removed files in the trash, or bring them back; never replaces a file",
    )
    .arg(what)
    .arg(id)
    .arg(to)
    .group(clap::ArgGroup::new("what").args(["path", "id"]))
    .mut_arg("to", |to| to.requires("what"))
    .arg(json.clone())
}
