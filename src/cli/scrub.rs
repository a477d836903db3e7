//! The command `scrub`.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::{configured, switch};
use crate::admin::ScrubRequest;
use crate::config::Value;

/// A request about the scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubCommand {
    /// The request to the gateway.
    pub request: ScrubRequest,
    /// As JSON.
    pub json: bool,
}

/// `scrub`, which the running gateway executes.
pub(super) fn command(json: &Arg) -> Command {
    let age = Arg::new("older-than")
        .long("older-than")
        .value_name("duration")
        .value_parser(Duration::read)
        .help("Leave out packs that were verified within this time, for example 7d [default: all packs]");
    let stop = switch(
        "stop",
        "End the running round; packs that it has verified count as verified",
    )
    .conflicts_with_all(["older-than", "status"]);
    let status = switch(
        "status",
        "Print the progress, when packs were verified, and the damage",
    )
    .conflicts_with("older-than");
    configured(
        "scrub",
        "Let the running gateway read all packs back and verify them, in the background",
    )
    .arg(age)
    .arg(stop)
    .arg(status)
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> ScrubCommand {
    ScrubCommand {
        request: asked(matches),
        json: matches.get_flag("json"),
    }
}

fn asked(matches: &ArgMatches) -> ScrubRequest {
    if matches.get_flag("status") {
        return ScrubRequest::Status;
    }
    if matches.get_flag("stop") {
        return ScrubRequest::Stop;
    }
    let age: Option<&Duration> = matches.get_one("older-than");
    ScrubRequest::Start {
        age_seconds: age.map_or(0, Duration::as_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Request, parse};
    use crate::config::Inputs;

    fn scrub(line: &str) -> Result<ScrubCommand, i32> {
        let environment = Inputs {
            flags: Vec::new(),
            file: None,
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: false,
        };
        let words = line.split(' ').map(Into::into);
        match parse(words, environment) {
            Ok((Request::Scrub(command), _)) => Ok(command),
            Ok((other, _)) => panic!("{other:?}"),
            Err(error) => Err(error.exit_code()),
        }
    }

    #[test]
    fn a_round_is_begun_ended_and_asked_about() {
        let start = |age_seconds| ScrubRequest::Start { age_seconds };
        let asked = |line| scrub(line).unwrap().request;
        assert_eq!(asked("forebay scrub"), start(0));
        let week = "forebay scrub --older-than 7d --data-dir /y";
        assert_eq!(asked(week), start(7 * 86_400));
        assert_eq!(asked("forebay scrub --stop"), ScrubRequest::Stop);
        let status = scrub("forebay scrub --status --json").unwrap();
        assert_eq!((status.request, status.json), (ScrubRequest::Status, true));
        for line in [
            "forebay scrub --stop --status",
            "forebay scrub --status --older-than 7d",
            "forebay scrub --older-than long",
        ] {
            assert_eq!(scrub(line), Err(2), "{line}");
        }
    }
}
