//! The command `gc`.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::{configured, switch};
use crate::config::Value;

/// The default age below which an object is left alone.
const GRACE: Duration = Duration::from_secs(3600);

/// The options of a search for garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcRequest {
    /// Delete it.
    pub delete: bool,
    /// Age in the bucket below which an object is left alone.
    pub grace: Duration,
    /// Do not wait until the gateway has rewritten packs.
    pub no_wait: bool,
    /// Print nothing if there is none, and show no progress.
    pub quiet: bool,
    /// Write nothing to the bucket, not even the note that pins the metadata.
    pub no_pin: bool,
    /// As JSON.
    pub json: bool,
}

impl Default for GcRequest {
    fn default() -> Self {
        GcRequest {
            delete: false,
            grace: GRACE,
            no_wait: false,
            quiet: false,
            no_pin: false,
            json: false,
        }
    }
}

/// `gc`, which searches the store.
pub(super) fn command(json: &Arg) -> Command {
    let grace = Arg::new("grace")
        .long("grace")
        .value_name("duration")
        .value_parser(Duration::read)
        .help("Leave alone what is younger than this in the bucket [default: 1h]");
    configured(
        "gc",
        "Find objects of the volume that nothing refers to, and packs that are mostly dead",
    )
    .after_help(
        "A gateway may serve the volume meanwhile. It rewrites packs that are mostly dead by itself; with --delete \
         the one that\nruns with the same data_dir does so at once, at background_rate. docs/gc.md says how, and what \
         is safe to delete when.\n\nExit codes: 0 there is no \
         garbage, or it was deleted; 1 there is some; 2 the volume could not be read through,\nor \
         the command line or the configuration is wrong.",
    )
    .arg(switch(
        "delete",
        "Delete what nothing refers to, and have the running gateway rewrite packs that are mostly dead; without it, \
         both are only reported",
    ))
    .arg(grace)
    .arg(
        switch(
            "no-wait",
            "Do not wait until the gateway has rewritten them: it goes on by itself",
        )
        .requires("delete"),
    )
    .arg(switch(
        "quiet",
        "Print nothing if there is no garbage, and show no progress",
    ))
    .arg(switch(
        "no-pin",
        "Write nothing to the bucket but what is deleted: no note that keeps what is read from being deleted",
    ))
    .arg(json.clone())
}

pub(super) fn request(matches: &ArgMatches) -> GcRequest {
    GcRequest {
        delete: matches.get_flag("delete"),
        grace: matches.get_one("grace").copied().unwrap_or(GRACE),
        no_wait: matches.get_flag("no-wait"),
        quiet: matches.get_flag("quiet"),
        no_pin: matches.get_flag("no-pin"),
        json: matches.get_flag("json"),
    }
}
