//! The commands and their flags.
//!
//! Each command that reads the configuration takes a flag for every setting of the table in [`crate::config`]; the
//! flags are derived from that table.
//!
//! Exit codes: 0 success, 1 failure, 2 the command line or the configuration is wrong, 3 (of `serve`) another gateway
//! holds the volume, at the start or later. `fsck` and `gc` have their own: 1 there are findings (with `--repair`:
//! all were repaired), or there is garbage; 2 the volume could not be examined; 4 something is left that could not be
//! repaired. `status --check`: 1 the gateway is degraded, 2 it is failing or not running.

mod bench;
mod clone;
mod events;
mod fsck;
mod gc;
mod keys;
mod log;
mod past;
mod quota;
mod restore;
mod salvage;
mod scrub;
mod snapshot;
mod top;
mod trace;
mod undelete;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Str;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::admin::{QuotaRequest, SnapshotRequest, TrashRequest, VolumePath};
use crate::bench::Plan;
use crate::config::{CONFIG_VARIABLE, Inputs, SETTINGS, SYSTEM_FILE, Setting, Value};
use crate::new_volume::NewVolume;

pub use clone::CloneRequest;
pub use events::EventsCommand;
pub use fsck::FsckRequest;
pub use gc::GcRequest;
pub use keys::KeysRequest;
pub use log::LogRequest;
pub use past::{PastQuestion, PastRequest};
pub use restore::{RestoreRequest, VolumeRestore};
pub use salvage::SalvageRequest;
pub use scrub::ScrubCommand;
pub use top::TopForm;
pub use trace::TraceCommand;

/// The flag of `serve` that is short for `--takeover=allow`.
const TAKE_OVER: &str = "take-over";

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Serve a volume until SIGTERM or SIGINT.
    Serve {
        /// Whether it may be made first if it does not exist.
        new: NewVolume,
    },
    /// Make a volume.
    Format,
    /// Print the effective configuration.
    Config(ConfigForm),
    /// Have a running gateway publish everything now.
    Flush {
        /// A file or tree of the volume; all of it if not given.
        path: Option<VolumePath>,
        /// How long to wait for it; without a limit if not given.
        timeout: Option<Duration>,
    },
    /// Print where a file or tree is: in the bucket, in the log, in memory.
    Where {
        /// The file or tree.
        path: VolumePath,
        /// As JSON.
        json: bool,
    },
    /// Print the status of a running gateway.
    Status {
        /// As JSON.
        json: bool,
    },
    /// Print in one line whether the gateway is healthy, degraded or failing; the exit code says the same.
    Check,
    /// Set, remove or print quotas of the volume that a running gateway serves.
    Quota {
        /// The request to the gateway.
        request: QuotaRequest,
        /// As JSON.
        json: bool,
    },
    /// Make, list or delete snapshots of the volume that a running gateway serves.
    Snapshot {
        /// The request to the gateway.
        request: SnapshotRequest,
        /// As JSON.
        json: bool,
    },
    /// Make, list, detach or forget clones.
    Clone(CloneRequest),
    /// Put something of a snapshot back, or take the whole volume back to it.
    Restore(RestoreRequest),
    /// List the trash of a running gateway, or bring something back from it.
    Undelete {
        /// The request to the gateway.
        request: TrashRequest,
        /// As JSON.
        json: bool,
    },
    /// Print something about earlier states of the volume, out of its bucket.
    Past(PastRequest),
    /// Print the rules of a running gateway's exports.
    Exports {
        /// As JSON.
        json: bool,
    },
    /// Print the latest messages of a running gateway.
    Events(EventsCommand),
    /// Print the calls of the running gateway as they happen.
    Trace(TraceCommand),
    /// Show what a running gateway does, live.
    Top(TopForm),
    /// Print, salvage or delete the logs of a gateway.
    Log(LogRequest),
    /// Check the volume in the store.
    Fsck(FsckRequest),
    /// Look for objects of the volume that nothing refers to.
    Gc(GcRequest),
    /// Have packs read back and verified.
    Scrub(ScrubCommand),
    /// Print or change the key ring of the volume in the store.
    Keys(KeysRequest),
    /// Write the content of the packs as files.
    Salvage(SalvageRequest),
    /// Measure the speed of a folder.
    Bench {
        /// The parameters of the run.
        plan: Plan,
        /// As JSON.
        json: bool,
    },
    /// Print the version.
    Version,
}

/// The form in which the configuration is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigForm {
    /// As a file that can be fed back.
    Toml,
    /// As JSON.
    Json,
    /// The table of all settings, independent of their values.
    Markdown,
}

/// Parses the command line. The second part of the result has the flags of the configuration, and the environment.
///
/// # Errors
/// The error of clap, which may be the requested help text.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Inputs,
) -> Result<(Request, Inputs), clap::Error> {
    let (arguments, command) = help_of_settings(arguments);
    let matches = command.try_get_matches_from(arguments)?;
    let (name, matches) = matches.subcommand().unwrap_or(("version", &matches));
    if name == "bench" {
        let json = matches.get_flag("json");
        let plan = bench::plan(matches);
        // It sends nothing to a gateway and needs no configuration.
        return Ok((Request::Bench { plan, json }, environment));
    }
    let request = match name {
        "serve" => {
            let mut inputs = with_flags(matches, environment);
            if matches.get_flag(TAKE_OVER) {
                inputs.flags.push(("takeover", "allow".to_owned()));
            }
            let new = match matches.get_flag("create") {
                true => NewVolume::Asked,
                false => NewVolume::NotAsked,
            };
            return Ok((Request::Serve { new }, inputs));
        }
        "format" => Request::Format,
        "config" if matches.get_flag("json") => Request::Config(ConfigForm::Json),
        "config" if matches.get_flag("markdown") => Request::Config(ConfigForm::Markdown),
        "config" => Request::Config(ConfigForm::Toml),
        "where" => Request::Where {
            path: path(matches).unwrap_or(VolumePath(Vec::new())),
            json: matches.get_flag("json"),
        },
        "flush" => Request::Flush {
            path: path(matches),
            timeout: matches.get_one("timeout").copied(),
        },
        "status" if matches.get_flag("check") => Request::Check,
        "status" => Request::Status {
            json: matches.get_flag("json"),
        },
        "clone" => {
            let request = Request::Clone(clone::request(matches));
            let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
            return Ok((request, with_flags(matches, environment)));
        }
        "undelete" => Request::Undelete {
            request: undelete::request(matches),
            json: matches.get_flag("json"),
        },
        "exports" => Request::Exports {
            json: matches.get_flag("json"),
        },
        "events" => Request::Events(events::request(matches)),
        "trace" => Request::Trace(trace::request(matches)),
        "top" => Request::Top(top::form(matches)),
        "fsck" => Request::Fsck(fsck::request(matches)),
        "gc" => Request::Gc(gc::request(matches)),
        "scrub" => Request::Scrub(scrub::request(matches)),
        "salvage" => Request::Salvage(salvage::request(matches)),
        "log" => {
            let Some((name, matches)) = matches.subcommand() else {
                return Ok((Request::Version, environment));
            };
            let request = Request::Log(log::request(name, matches));
            return Ok((request, with_flags(matches, environment)));
        }
        "keys" => {
            let Some((name, matches)) = matches.subcommand() else {
                return Ok((Request::Version, environment));
            };
            let request = Request::Keys(keys::request(name, matches));
            return Ok((request, with_flags(matches, environment)));
        }
        "quota" => {
            let Some((name, matches)) = matches.subcommand() else {
                return Ok((Request::Version, environment));
            };
            let request = Request::Quota {
                request: quota::request(name, matches),
                json: matches.get_flag("json"),
            };
            return Ok((request, with_flags(matches, environment)));
        }
        "snapshot" => {
            let Some((name, matches)) = matches.subcommand() else {
                return Ok((Request::Version, environment));
            };
            let request = match past::request(name, matches) {
                Some(request) => Request::Past(request),
                None => Request::Snapshot {
                    request: snapshot::request(name, matches),
                    json: matches.get_flag("json"),
                },
            };
            return Ok((request, with_flags(matches, environment)));
        }
        "restore" => match restore::request(matches) {
            Some(request) => Request::Restore(request),
            None => return Ok((Request::Version, environment)),
        },
        name => match past::request(name, matches) {
            Some(request) => Request::Past(request),
            None => return Ok((Request::Version, environment)),
        },
    };
    Ok((request, with_flags(matches, environment)))
}

/// The whole command line.
pub fn command() -> Command {
    let json = switch("json", "Print JSON");
    let markdown =
        switch("markdown", "Print the table of all settings instead").conflicts_with("json");
    let timeout = Arg::new("timeout")
        .long("timeout")
        .value_name("duration")
        .value_parser(Duration::read)
        .help("Give up after this time, for example 30s [default: wait without end]");

    let check = switch(
        "check",
        "Print one line, and exit with 0 if the gateway is healthy, 1 if it is degraded (it serves, and an operator \
         has to look), 2 if it is failing or does not run",
    )
    .conflicts_with("json");

    Command::new("forebay")
        .about("An NFSv3 server whose disk is an S3 bucket")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Every setting has a flag, an environment variable and a key in the configuration file, in this \
             order\nof precedence: `forebay serve --help-settings` lists them, `forebay config` prints their values.\n\nExit codes: 0 success, 1 failure, 2 wrong usage or \
             settings, 3 (serve) a gateway has the volume.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            configured("serve", "Serve a volume over NFS")
                .arg(switch(
                    "create",
                    "Create the volume if it does not exist [default: only in the default folder, or in a bucket without any other volume]",
                ))
                .arg(
                    switch(
                        TAKE_OVER,
                        "Take the volume from a gateway that holds it or did not shut down cleanly: takeover = \"allow\", for this start",
                    )
                    .conflicts_with("takeover"),
                )
                .mut_args(|arg| match arg.get_id().as_str() {
                    "listen" | "clients" => arg.hide(false),
                    _ => arg,
                }),
        )
        .subcommand(configured("format", "Make a volume in an empty store"))
        .subcommand(
            configured(
                "config",
                "Print the effective configuration, as a file that the program reads",
            )
            .arg(json.clone())
            .arg(markdown),
        )
        .subcommand(
            configured(
                "flush",
                "Publish all changes of the running gateway to the bucket now",
            )
            .arg(path_argument(
                "Return when this file or tree is in the bucket, at once if it is: a path from the volume's root \
                 [default: everything]",
            ))
            .arg(timeout),
        )
        .subcommand(
            configured(
                "where",
                "Print whether the bucket has a file or tree, and where its bytes are",
            )
            .arg(
                path_argument("The file or directory, from the root of the volume: /home/ann")
                    .required(true),
            )
            .arg(json.clone()),
        )
        .subcommand(
            configured(
                "status",
                "Print the state of the running gateway, and how much is not in the bucket yet",
            )
            .arg(json.clone())
            .arg(check),
        )
        .subcommand(quota::command(&json))
        .subcommand(snapshot::command(&json))
        .subcommand(restore::command(&json))
        .subcommand(clone::clone(&json))
        .subcommand(undelete::command(&json))
        .subcommand(past::changes(&json))
        .subcommand(past::versions(&json))
        .subcommand(
            configured(
                "exports",
                "Print the running gateway's exports: which clients may mount which directory",
            )
            .arg(json.clone()),
        )
        .subcommand(events::command(&json))
        .subcommand(trace::command(&json))
        .subcommand(top::command(&json))
        .subcommand(fsck::command(&json))
        .subcommand(gc::command(&json))
        .subcommand(scrub::command(&json))
        .subcommand(keys::command(&json))
        .subcommand(salvage::command(&json))
        .subcommand(log::command(&json))
        .subcommand(bench::command(&json))
        .subcommand(Command::new("version").about("Print the version"))
}

/// A path of the volume.
fn path_argument(help: &'static str) -> Arg {
    Arg::new("path")
        .value_name("path")
        .value_parser(value_parser!(OsString))
        .help(help)
}

fn path(matches: &ArgMatches) -> Option<VolumePath> {
    let path: &OsString = matches.get_one("path")?;
    Some(VolumePath(path.as_bytes().to_vec()))
}

/// A flag without a value.
fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// The flag that prints the flags of all settings, which would hide a command's own.
const HELP_SETTINGS: &str = "help-settings";

/// Settings whose flags are printed with every command's own, because they identify the gateway or the volume.
const SHOWN: &[&str] = &["store", "data_dir"];

/// If the arguments contain `--help-settings`: the arguments and the command that print the help of settings.
fn help_of_settings(arguments: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Command) {
    let asked = OsString::from(format!("--{HELP_SETTINGS}"));
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    let Some(at) = arguments.iter().position(|argument| *argument == asked) else {
        return (arguments, command());
    };
    arguments[at] = "--help".into();
    // Later arguments may be wrong, and do not matter here.
    arguments.truncate(at + 1);
    (arguments, showing_settings(command()))
}

/// The same command, with a help that shows the flags of settings and none of its own.
fn showing_settings(command: Command) -> Command {
    command
        .mut_args(|arg| match Setting::find(arg.get_id().as_str()) {
            Some(setting) => arg.hide(false).help(whole_help(setting)),
            None => arg.hide(true),
        })
        .mut_subcommands(showing_settings)
}

/// A command that reads the configuration.
fn configured(name: &'static str, about: &'static str) -> Command {
    let file = Arg::new("config")
        .long("config")
        .value_name("file")
        .value_parser(value_parser!(PathBuf))
        .help(format!(
            "Configuration file (TOML) [env: {CONFIG_VARIABLE}] [default: {SYSTEM_FILE}, if it exists]"
        ));
    Command::new(name)
        .about(about)
        .arg(file)
        .arg(
            Arg::new(HELP_SETTINGS)
                .long(HELP_SETTINGS)
                .action(ArgAction::SetTrue)
                .help("Print the flags of all settings, which this command takes as well"),
        )
        .args(SETTINGS.iter().map(flag))
}

/// The flag of a setting. Its value is parsed later, together with those from other sources.
fn flag(setting: &'static Setting) -> Arg {
    let meaning = setting.meaning();
    let first = meaning.split_inclusive(". ").next().unwrap_or_default();
    Arg::new(setting.key)
        .long(Str::from(setting.flag()))
        .value_name(setting.kind)
        .help_heading(setting.section)
        .hide(!SHOWN.contains(&setting.key))
        .help(format!("{} {}", first.trim_end(), origins(setting)))
}

/// The complete help of a setting.
fn whole_help(setting: &Setting) -> String {
    let (meaning, kind) = (setting.meaning(), setting.type_text());
    format!("{meaning} [{kind}] {}", origins(setting))
}

/// The other sources of its value, and the default.
fn origins(setting: &Setting) -> String {
    let (variable, default) = (setting.variable(), setting.default_text());
    format!("[env: {variable}] [default: {default}]")
}

fn with_flags(matches: &ArgMatches, environment: Inputs) -> Inputs {
    let given = |setting: &'static Setting| {
        let text: &String = matches.get_one(setting.key)?;
        Some((setting.key, text.clone()))
    };
    Inputs {
        flags: SETTINGS.iter().filter_map(given).collect(),
        file: matches.get_one("config").cloned(),
        ..environment
    }
}

#[cfg(test)]
mod tests;
