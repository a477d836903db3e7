//! The command `fsck`.

use clap::{Arg, ArgMatches, Command};

use super::{configured, switch};

/// The options of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckRequest {
    /// Read every live frame.
    pub read_data: bool,
    /// Keep and print every finding.
    pub all: bool,
    /// Print nothing if there are no findings, and show no progress.
    pub quiet: bool,
    /// Write nothing to the bucket, not even the note that pins the metadata.
    pub no_pin: bool,
    /// Repair the findings.
    pub repair: bool,
    /// Only print what a repair would do.
    pub dry_run: bool,
    /// Give up data that cannot be read, where they prevent a repair.
    pub accept_loss: bool,
    /// Repair although this machine's log holds changes that are not in the bucket.
    pub put_log_aside: bool,
    /// As JSON.
    pub json: bool,
}

/// `fsck`, which checks the store.
pub(super) fn command(json: &Arg) -> Command {
    configured(
        "fsck",
        "Check whether the volume in the bucket is consistent",
    )
    .after_help(
        "A gateway may serve the volume meanwhile: the check reads one published state and \
         changes nothing. docs/fsck.md\nexplains the findings.\n\nExit codes: 0 the volume is \
         consistent, 1 there are findings, 2 the volume could not be checked, or the \
         command\nline or the configuration is wrong.\n\nWith --repair, for which you stop all \
         gateways of the volume first: 0 the volume is consistent, 1 all findings\nare repaired, \
         4 some findings remain, 2 the repair failed.",
    )
    .arg(switch(
        "read-data",
        "Read and verify every byte that files refer to as well",
    ))
    .arg(switch("all", "Print all findings, not only some of each kind"))
    .arg(switch(
        "quiet",
        "Print nothing if the volume is consistent, and show no progress",
    ))
    .arg(switch(
        "no-pin",
        "Write nothing to the bucket, not even the note that protects the metadata being read from deletion",
    ))
    .arg(switch(
        "repair",
        "Repair the findings, and print each step; no gateway may serve the volume",
    ))
    .arg(
        switch("dry-run", "Print the steps of --repair, and change nothing").requires("repair"),
    )
    .arg(
        switch(
            "accept-loss",
            "Let --repair give up unreadable data where they prevent a repair: such bytes then read as zeros",
        )
        .requires("repair"),
    )
    .arg(
        switch(
            "put-log-aside",
            "Let --repair continue although the log in data_dir holds unpublished changes: salvage that log afterwards",
        )
        .requires("repair")
        .conflicts_with("dry-run"),
    )
    .mut_arg("no-pin", |arg| arg.conflicts_with("repair"))
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> FsckRequest {
    FsckRequest {
        read_data: matches.get_flag("read-data"),
        all: matches.get_flag("all"),
        quiet: matches.get_flag("quiet"),
        no_pin: matches.get_flag("no-pin"),
        repair: matches.get_flag("repair"),
        dry_run: matches.get_flag("dry-run"),
        accept_loss: matches.get_flag("accept-loss"),
        put_log_aside: matches.get_flag("put-log-aside"),
        json: matches.get_flag("json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<FsckRequest> {
        let json = switch("json", "Print JSON");
        let matches = command(&json).try_get_matches_from(line.split(' '));
        Some(request(&matches.ok()?))
    }

    #[test]
    fn a_check_has_flags_of_its_own() {
        assert_eq!(read("fsck"), Some(FsckRequest::default()));
        let line = "fsck --read-data --all --quiet --no-pin --json --data-dir /y";
        let all = FsckRequest {
            read_data: true,
            all: true,
            quiet: true,
            no_pin: true,
            json: true,
            ..FsckRequest::default()
        };
        assert_eq!(read(line), Some(all));
    }

    #[test]
    fn what_is_about_repairs_needs_one() {
        let repair = FsckRequest {
            repair: true,
            ..FsckRequest::default()
        };
        assert_eq!(read("fsck --repair"), Some(repair));
        let accepting = FsckRequest {
            accept_loss: true,
            put_log_aside: true,
            ..repair
        };
        let line = "fsck --repair --accept-loss --put-log-aside";
        assert_eq!(read(line), Some(accepting));
        for line in [
            "fsck --dry-run",
            "fsck --accept-loss",
            "fsck --put-log-aside",
            "fsck --repair --no-pin",
            "fsck --repair --dry-run --put-log-aside",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
