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
        .help("Do not delete objects that are younger than this [default: 1h]");
    configured(
        "gc",
        "Find objects of the volume that nothing refers to, and packs that are mostly dead",
    )
    .after_help(
        "A gateway may serve the volume meanwhile. It rewrites mostly dead packs in the background; with --delete \
         the gateway\nwith the same data_dir does so at once, at background_rate. docs/gc.md explains when it is \
         safe to delete an object.\n\nExit codes: 0 there is no garbage, or it was deleted; 1 there is garbage; 2 \
         the volume could not be read as a\nwhole, or the command line or the configuration is wrong.",
    )
    .arg(switch(
        "delete",
        "Delete objects that nothing refers to, and let the running gateway rewrite packs that are mostly dead; \
         without this flag both are only reported",
    ))
    .arg(grace)
    .arg(
        switch(
            "no-wait",
            "Do not wait until the gateway has rewritten them; it continues in the background",
        )
        .requires("delete"),
    )
    .arg(switch(
        "quiet",
        "Print nothing if there is no garbage, and show no progress",
    ))
    .arg(switch(
        "no-pin",
        "Delete objects, but write none: not even the note that protects the metadata being read from deletion",
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
