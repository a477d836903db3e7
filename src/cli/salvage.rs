//! The command `salvage`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::configured;

/// Where files are to be salvaged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageRequest {
    /// The folder to make.
    pub to: PathBuf,
    /// Show no progress.
    pub quiet: bool,
}

/// `salvage`, which reads the packs of the store.
pub(super) fn command() -> Command {
    let to = Arg::new("to")
        .long("to")
        .value_name("folder")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The folder to make; it must not exist");
    let quiet = Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .help("Show no progress");
    configured(
        "salvage",
        "Write what the packs hold as files, for a volume whose metadata are lost",
    )
    .after_help(
        "The last resort: packs know no names, no sizes and no attributes. What that means is in \
         docs/salvage.md. The store is\nread, not changed. While the metadata can be read, use \
         forebay fsck --repair.",
    )
    .args([to, quiet])
}

pub(super) fn request(matches: &ArgMatches) -> SalvageRequest {
    SalvageRequest {
        // Required.
        to: matches.get_one("to").cloned().unwrap_or_default(),
        quiet: matches.get_flag("quiet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_a_folder() {
        let read = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' '));
            Some(request(&matches.ok()?))
        };
        let wanted = SalvageRequest {
            to: "/x".into(),
            quiet: true,
        };
        assert_eq!(read("salvage --to /x --quiet"), Some(wanted));
        assert_eq!(read("salvage"), None);
    }
}
