//! The command `restore`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, path, path_argument, switch};
use crate::admin::{RestoreOrder, VolumePath};

/// The arguments of a restore of one path.
const OF_A_PATH: [&str; 5] = ["path", "from", "to", "replace", "json"];

/// A request to restore something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreRequest {
    /// Have a running gateway put a file or directory of a snapshot back.
    Path {
        /// The order to the gateway.
        order: RestoreOrder,
        /// As JSON.
        json: bool,
    },
    /// Take the whole volume back to a snapshot, without a gateway.
    Volume(VolumeRestore),
}

/// A request to restore the whole volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRestore {
    /// The snapshot: name or number.
    pub snapshot: String,
    /// Go on although a gateway holds the volume.
    pub take_over: bool,
    /// Go on although the local log has changes that the bucket does not have.
    pub put_log_aside: bool,
}

/// `restore`.
pub(super) fn command(json: &Arg) -> Command {
    configured(
        "restore",
        "Put a file or directory of a snapshot back, or the whole volume",
    )
    .override_usage(
        "forebay restore PATH --from SNAPSHOT [--to PATH] [--replace] [--json]\n       \
         forebay restore --volume SNAPSHOT [--take-over] [--put-log-aside]",
    )
    .after_help(
        "With a path, which begins at the root of the volume, the running gateway makes a new object with the content, attributes\n\
         and times that the snapshot has. With --volume no gateway may run: stop it first. The state before becomes a snapshot\n\
         itself, before-restore-TIME. docs/snapshots.md has examples.",
    )
    .arg(path_argument("The file or directory: /home/ann/notes").required_unless_present("volume"))
    .arg(
        Arg::new("from")
            .long("from")
            .value_name("snapshot")
            .required_unless_present("volume")
            .help("The snapshot: its name or number"),
    )
    .arg(
        Arg::new("to")
            .long("to")
            .value_name("path")
            .value_parser(value_parser!(OsString))
            .help("The path that it gets; its directory must exist [default: the path that it had]"),
    )
    .arg(switch(
        "replace",
        "If there is an object with that path, rename it first: NAME becomes NAME.before-restore",
    ))
    .arg(json.clone())
    .arg(
        Arg::new("volume")
            .long("volume")
            .value_name("snapshot")
            .conflicts_with_all(OF_A_PATH)
            .help("Take the whole volume back to this snapshot: its name or number"),
    )
    .arg(
        switch(
            "take-over",
            "Go on although a gateway that did not stop in order holds the volume",
        )
        .conflicts_with_all(OF_A_PATH),
    )
    .arg(
        switch(
            "put-log-aside",
            "Go on although the log in data_dir has changes that the bucket does not have: the next start archives them",
        )
        .conflicts_with_all(OF_A_PATH),
    )
}

/// The request of `restore`.
pub(super) fn request(matches: &ArgMatches) -> Option<RestoreRequest> {
    if let Some(snapshot) = matches.get_one::<String>("volume") {
        return Some(RestoreRequest::Volume(VolumeRestore {
            snapshot: snapshot.clone(),
            take_over: matches.get_flag("take-over"),
            put_log_aside: matches.get_flag("put-log-aside"),
        }));
    }
    let to: Option<&OsString> = matches.get_one("to");
    Some(RestoreRequest::Path {
        order: RestoreOrder {
            path: path(matches)?,
            from: matches.get_one::<String>("from")?.clone(),
            to: to.map(|to| VolumePath(to.as_bytes().to_vec())),
            replace: matches.get_flag("replace"),
        },
        json: matches.get_flag("json"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<RestoreRequest> {
        let command = command(&switch("json", "Print JSON"));
        let matches = command.try_get_matches_from(line.split(' ')).ok()?;
        request(&matches)
    }

    #[test]
    fn a_path_or_the_whole_volume_is_restored_and_not_both() {
        let order = RestoreOrder {
            path: VolumePath(b"/a".to_vec()),
            from: "s".into(),
            to: Some(VolumePath(b"/b".to_vec())),
            replace: true,
        };
        assert_eq!(
            read("restore /a --from s --to /b --replace --json"),
            Some(RestoreRequest::Path { order, json: true })
        );
        let whole = VolumeRestore {
            snapshot: "s".into(),
            take_over: true,
            put_log_aside: false,
        };
        assert_eq!(
            read("restore --volume s --take-over"),
            Some(RestoreRequest::Volume(whole))
        );
        for line in [
            "restore",
            "restore /a",
            "restore --from s",
            "restore /a --from s --volume s",
            "restore --volume s --to /b",
            "restore /a --from s --take-over",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
