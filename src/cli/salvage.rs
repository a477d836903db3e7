//! The command `salvage`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, switch};

/// The options of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageRequest {
    /// The folder to create.
    pub to: PathBuf,
    /// Show no progress.
    pub quiet: bool,
    /// As JSON, including the list of lost data.
    pub json: bool,
}

/// `salvage`, which reads the packs of the store.
pub(super) fn command(json: &Arg) -> Command {
    let to = Arg::new("to")
        .long("to")
        .value_name("folder")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The folder to create; it must not exist");
    configured(
        "salvage",
        "Write the contents of the packs as files, for a volume whose metadata are lost",
    )
    .after_help(
        "The last resort: packs hold no names, no sizes and no attributes; docs/salvage.md \
         explains the result. The store is\nonly read. As long as the metadata can be read, use \
         forebay fsck --repair instead.",
    )
    .arg(to)
    .arg(switch("quiet", "Show no progress"))
    .arg(
        json.clone()
            .help("Print JSON, and list lost data as JSON, one line each"),
    )
}

pub(super) fn request(matches: &ArgMatches) -> SalvageRequest {
    SalvageRequest {
        // Required.
        to: matches.get_one("to").cloned().unwrap_or_default(),
        quiet: matches.get_flag("quiet"),
        json: matches.get_flag("json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_a_folder() {
        let read = |line: &str| {
            let json = switch("json", "Print JSON");
            let matches = command(&json).try_get_matches_from(line.split(' '));
            Some(request(&matches.ok()?))
        };
        let wanted = SalvageRequest {
            to: "/x".into(),
            quiet: true,
            json: true,
        };
        assert_eq!(read("salvage --to /x --quiet --json"), Some(wanted));
        assert_eq!(read("salvage"), None);
    }
}
