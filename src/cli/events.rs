//! The command `events`.

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{configured, switch};

/// A request for the latest messages of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventsCommand {
    /// Only events with a number above this.
    pub after: u64,
    /// Wait for further ones, and print each as it comes.
    pub follow: bool,
    /// As JSON, one object a line.
    pub json: bool,
}

/// `events`, which the running gateway answers.
pub(super) fn command(json: &Arg) -> Command {
    let after = Arg::new("after")
        .long("after")
        .value_name("number")
        .default_value("0")
        .hide_default_value(true)
        .value_parser(value_parser!(u64))
        .help(
            "Leave out events up to this number, which --json prints [default: all that are kept]",
        );
    configured(
        "events",
        "Print the latest messages of the running gateway: up to 1,000, independent of log_level",
    )
    .arg(after)
    .arg(switch(
        "follow",
        "Wait for further events, and print each as it comes; ends with the gateway, with exit code 1",
    ))
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> EventsCommand {
    EventsCommand {
        // It has a default.
        after: matches.get_one("after").copied().unwrap_or_default(),
        follow: matches.get_flag("follow"),
        json: matches.get_flag("json"),
    }
}
