//! The command `top`.

use clap::{Arg, ArgMatches, Command};

use super::{configured, switch};

/// The form in which `top` shows a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopForm {
    /// In the terminal, until the user ends it.
    Live,
    /// One picture, as text.
    Once,
    /// The values of one picture, as JSON.
    OnceJson,
}

/// `top`, which asks the running gateway every two seconds.
pub(super) fn command(json: &Arg) -> Command {
    configured(
        "top",
        "Show what the running gateway does, live: throughput, latency, busiest clients and files",
    )
    .arg(switch("once", "Print one picture, and end"))
    .arg(json.clone().requires("once"))
}

pub(super) fn form(matches: &ArgMatches) -> TopForm {
    match (matches.get_flag("once"), matches.get_flag("json")) {
        (true, true) => TopForm::OnceJson,
        (true, false) => TopForm::Once,
        (false, _) => TopForm::Live,
    }
}
