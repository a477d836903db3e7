//! The command `trace`.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use forebay_nfs::nfs3::PROCEDURES;

use super::configured;
use crate::config::Value as _;
use crate::trace::TraceRequest;

/// A request for the calls of a gateway as they happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCommand {
    /// Which calls.
    pub request: TraceRequest,
    /// As JSON, one object a line.
    pub json: bool,
}

/// `trace`, which the running gateway answers.
pub(super) fn command(json: &Arg) -> Command {
    let filter = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    configured(
        "trace",
        "Print the calls of the running gateway as they are answered, with what they waited for",
    )
    .arg(
        filter("client", "address", "Only calls of this client")
            .value_parser(value_parser!(IpAddr)),
    )
    .arg(filter(
        "path",
        "path",
        "Only calls about this path from the root of the volume, and about everything below it",
    ))
    .arg(
        filter(
            "slower-than",
            "duration",
            "Only calls that take at least this long, such as 100ms",
        )
        .value_parser(Duration::read),
    )
    .arg(
        filter(
            "procedure",
            "name",
            "Only calls of this procedure, such as READ",
        )
        .ignore_case(true)
        .hide_possible_values(true)
        .value_parser(PROCEDURES),
    )
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> TraceCommand {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    TraceCommand {
        request: TraceRequest {
            client: matches.get_one("client").copied(),
            path: text("path"),
            slower_than: matches.get_one::<Duration>("slower-than").copied(),
            procedure: text("procedure").map(|name| name.to_ascii_uppercase()),
        },
        json: matches.get_flag("json"),
    }
}
