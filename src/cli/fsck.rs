//! The command `fsck`.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::configured;

/// How a volume is to be checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckRequest {
    /// Read every live frame.
    pub read_data: bool,
    /// Keep and print every finding.
    pub all: bool,
    /// Say nothing if everything fits together, and show no progress.
    pub quiet: bool,
    /// Write nothing to the bucket, not even the note that keeps metadata.
    pub no_pin: bool,
    /// As JSON.
    pub json: bool,
}

/// A flag without a value.
pub(super) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// `fsck`, which looks at the store.
pub(super) fn command(json: &Arg) -> Command {
    configured(
        "fsck",
        "Check whether what the bucket holds of the volume fits together",
    )
    .after_help(
        "A gateway may serve the volume meanwhile: one moment of it is checked, and nothing is \
         changed. What findings mean\nis in docs/fsck.md.\n\nExit codes: 0 everything fits \
         together, 1 there are findings, 2 the volume could not be checked, or the command\nline \
         or the configuration is wrong.",
    )
    .arg(switch(
        "read-data",
        "Read and verify every byte that files refer to as well",
    ))
    .arg(switch("all", "Print all findings, not some of each kind"))
    .arg(switch(
        "quiet",
        "Print nothing if everything fits together, and show no progress",
    ))
    .arg(switch(
        "no-pin",
        "Write nothing to the bucket, not even the note that keeps what is read from being deleted",
    ))
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> FsckRequest {
    FsckRequest {
        read_data: matches.get_flag("read-data"),
        all: matches.get_flag("all"),
        quiet: matches.get_flag("quiet"),
        no_pin: matches.get_flag("no-pin"),
        json: matches.get_flag("json"),
    }
}
