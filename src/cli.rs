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
mod fsck;
mod gc;
mod keys;
mod quota;
mod salvage;
mod scrub;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Str;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::admin::QuotaRequest;
use crate::bench::Plan;
use crate::config::{CONFIG_VARIABLE, Inputs, SETTINGS, SYSTEM_FILE, Setting, Value};
use crate::new_volume::NewVolume;

pub use fsck::FsckRequest;
pub use gc::GcRequest;
pub use keys::KeysRequest;
pub use salvage::SalvageRequest;
pub use scrub::ScrubCommand;

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
        /// How long to wait for it; without a limit if not given.
        timeout: Option<Duration>,
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
    /// Print the rules of a running gateway's exports.
    Exports {
        /// As JSON.
        json: bool,
    },
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

/// A request about the logs in `data_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRequest {
    /// Print all logs, and which of their content is not in the bucket.
    List {
        /// As JSON.
        json: bool,
    },
    /// Print a log record by record.
    Show {
        /// The log.
        label: String,
        /// Where to begin; by default where the unpublished part begins.
        from: Option<u64>,
        /// As JSON, one object a line.
        json: bool,
    },
    /// Write the content that is not in the bucket as files.
    Salvage {
        /// The log.
        label: String,
        /// The folder to create.
        to: PathBuf,
        /// Do not use the bucket.
        ranges_only: bool,
    },
    /// Delete every archived log that was salvaged.
    ForgetSalvaged,
    /// Delete an archived log.
    Forget {
        /// The log.
        label: String,
        /// Also if it was not salvaged.
        force: bool,
    },
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
        "flush" => Request::Flush {
            timeout: matches.get_one("timeout").copied(),
        },
        "status" if matches.get_flag("check") => Request::Check,
        "status" => Request::Status {
            json: matches.get_flag("json"),
        },
        "exports" => Request::Exports {
            json: matches.get_flag("json"),
        },
        "fsck" => Request::Fsck(fsck::request(matches)),
        "gc" => Request::Gc(gc::request(matches)),
        "scrub" => Request::Scrub(scrub::request(matches)),
        "salvage" => Request::Salvage(salvage::request(matches)),
        "log" => {
            let Some((name, matches)) = matches.subcommand() else {
                return Ok((Request::Version, environment));
            };
            let request = Request::Log(log_request(name, matches));
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
        _ => return Ok((Request::Version, environment)),
    };
    Ok((request, with_flags(matches, environment)))
}

fn log_request(name: &str, matches: &ArgMatches) -> LogRequest {
    let json = || matches.get_flag("json");
    // Required where the argument exists.
    let label = || matches.get_one("label").cloned().unwrap_or_default();
    match name {
        "show" => LogRequest::Show {
            label: label(),
            from: matches.get_one("from").copied(),
            json: json(),
        },
        "salvage" => LogRequest::Salvage {
            label: label(),
            to: matches.get_one("to").cloned().unwrap_or_default(),
            ranges_only: matches.get_flag("ranges-only"),
        },
        "forget" if matches.get_flag("all-salvaged") => LogRequest::ForgetSalvaged,
        "forget" => LogRequest::Forget {
            label: label(),
            force: matches.get_flag("force"),
        },
        _ => LogRequest::List { json: json() },
    }
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
            "Every setting has a flag, an environment variable and a key in the configuration file, in this order \
             of\nprecedence; `forebay serve --help-settings` lists them. `forebay config` prints the effective \
             values and\nwhere each one came from.\n\nExit codes: 0 success, 1 failure, 2 the command line or the \
             configuration is wrong,\n3 (serve only) another gateway holds the volume.",
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
            .arg(timeout),
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
        .subcommand(
            configured(
                "exports",
                "Print the running gateway's exports: which clients may mount which directory, with which rights",
            )
            .arg(json.clone()),
        )
        .subcommand(fsck::command(&json))
        .subcommand(gc::command(&json))
        .subcommand(scrub::command(&json))
        .subcommand(keys::command(&json))
        .subcommand(salvage::command(&json))
        .subcommand(log_command(&json))
        .subcommand(bench::command(&json))
        .subcommand(Command::new("version").about("Print the version"))
}

/// `log` and its subcommands.
fn log_command(json: &Arg) -> Command {
    let label = Arg::new("label")
        .value_name("label")
        .required(true)
        .help("The log's label, as `forebay log list` prints it");
    let from = Arg::new("from")
        .long("from")
        .value_name("LSN")
        .value_parser(value_parser!(u64))
        .help("Begin at this LSN [default: the first unpublished record; 0 for everything]");
    let to = Arg::new("to")
        .long("to")
        .value_name("folder")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The folder to create; it must not exist");
    let ranges_only = switch(
        "ranges-only",
        "Do not read the store: files that existed before get only the ranges that the log holds",
    );
    let force = switch(
        "force",
        "Delete it even if it was not salvaged: its content is lost",
    );
    Command::new("log")
        .about("List, print, salvage or delete the logs in data_dir whose changes are not in the bucket")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            configured(
                "list",
                "List the logs and their changes that are not in the bucket",
            )
            .arg(json.clone()),
        )
        .subcommand(
            configured("show", "Print a log record by record")
                .arg(label.clone())
                .arg(from)
                .arg(json.clone()),
        )
        .subcommand(
            configured(
                "salvage",
                "Write the changes that are not in the bucket as files; the store is only read",
            )
            .arg(label.clone())
            .arg(to)
            .arg(ranges_only),
        )
        .subcommand(
            configured("forget", "Delete archived logs")
                .arg(
                    label
                        .required(false)
                        .required_unless_present("all-salvaged"),
                )
                .arg(force)
                .arg(
                    switch("all-salvaged", "Delete all archived logs that were salvaged")
                        .conflicts_with_all(["label", "force"]),
                ),
        )
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
mod tests {
    use clap::error::ErrorKind;

    use super::*;
    use crate::admin::QuotaLimit;

    fn parse_line(line: &str) -> Result<(Request, Inputs), clap::Error> {
        let environment = Inputs {
            flags: Vec::new(),
            file: None,
            variables: Vec::new(),
            system_file: "/nonexistent".into(),
            is_root: false,
        };
        parse(line.split_whitespace().map(OsString::from), environment)
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_that_reads_the_configuration_takes_every_setting() {
        for name in [
            "serve", "format", "config", "flush", "status", "exports", "fsck", "gc",
        ] {
            for setting in SETTINGS {
                let line = format!("forebay {name} --{} x", setting.flag());
                let (_, inputs) = parse_line(&line).unwrap();
                assert_eq!(inputs.flags, [(setting.key, "x".to_owned())], "{line}");
            }
        }
    }

    /// Number of lines of a help text on a screen of 100 columns.
    fn lines(text: &str) -> usize {
        text.lines()
            .map(|line| line.len().div_ceil(100).max(1))
            .sum()
    }

    fn help(line: &str) -> String {
        let error = parse_line(line).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}");
        error.to_string()
    }

    #[test]
    fn the_help_of_every_command_fits_a_screen() {
        fn names(command: &Command, above: &str, all: &mut Vec<String>) {
            all.push(above.to_owned());
            for command in command.get_subcommands() {
                names(command, &format!("{above} {}", command.get_name()), all);
            }
        }
        let mut all = Vec::new();
        names(&command(), "forebay", &mut all);
        for name in all {
            let help = help(&format!("{name} --help"));
            assert!(lines(&help) <= 40, "{name}: {} lines: {help}", lines(&help));
        }
    }

    #[test]
    fn the_flags_of_settings_are_printed_when_they_are_asked_for() {
        for name in ["serve", "status", "log list", "quota set", "log forget"] {
            let own = help(&format!("forebay {name} --help"));
            assert!(
                own.contains("--help-settings") && own.contains("--data-dir"),
                "{own}"
            );
            assert!(!own.contains("--pack-bytes"), "{own}");
            let all = help(&format!("forebay {name} --help-settings --json"));
            for setting in SETTINGS {
                assert!(
                    all.contains(&format!("--{} ", setting.flag())),
                    "{name}: {}",
                    setting.key
                );
            }
            assert!(!all.contains("--json"), "{all}");
        }
    }

    #[test]
    fn a_new_volume_is_asked_for() {
        let request = |line| parse_line(line).unwrap().0;
        let new = NewVolume::Asked;
        assert_eq!(request("forebay serve --create"), Request::Serve { new });
        let new = NewVolume::NotAsked;
        assert_eq!(request("forebay serve"), Request::Serve { new });
    }

    #[test]
    fn commands_have_their_own_flags() {
        let (request, inputs) = parse_line("forebay flush --timeout 1m30s --config /x").unwrap();
        assert_eq!(
            request,
            Request::Flush {
                timeout: Some(Duration::from_secs(90))
            }
        );
        assert_eq!(inputs.file, Some("/x".into()));
        let request = |line| parse_line(line).unwrap().0;
        assert_eq!(request("forebay flush"), Request::Flush { timeout: None });
        assert_eq!(
            request("forebay status --json"),
            Request::Status { json: true }
        );
        assert_eq!(request("forebay status --check"), Request::Check);
        assert!(parse_line("forebay status --check --json").is_err());
        assert_eq!(
            request("forebay exports --json"),
            Request::Exports { json: true }
        );
        assert_eq!(
            request("forebay config --markdown"),
            Request::Config(ConfigForm::Markdown)
        );
        assert_eq!(request("forebay version"), Request::Version);
        assert_eq!(request("forebay gc"), Request::Gc(GcRequest::default()));
        assert_eq!(
            request("forebay gc --delete --grace 2h --no-wait --quiet --no-pin --json"),
            Request::Gc(GcRequest {
                delete: true,
                grace: Duration::from_secs(7200),
                no_wait: true,
                quiet: true,
                no_pin: true,
                json: true
            })
        );
        assert_eq!(
            request("forebay log show epoch-3 --from 4096 --json"),
            Request::Log(LogRequest::Show {
                label: "epoch-3".into(),
                from: Some(4096),
                json: true
            })
        );
        assert_eq!(
            request("forebay log salvage epoch-3 --to /x --ranges-only --data-dir /y"),
            Request::Log(LogRequest::Salvage {
                label: "epoch-3".into(),
                to: "/x".into(),
                ranges_only: true
            })
        );
        assert_eq!(
            request("forebay log forget epoch-3"),
            Request::Log(LogRequest::Forget {
                label: "epoch-3".into(),
                force: false
            })
        );
        assert_eq!(
            request("forebay log forget --all-salvaged"),
            Request::Log(LogRequest::ForgetSalvaged)
        );
        for wrong in ["", " epoch-3 --all-salvaged", " --force --all-salvaged"] {
            let error = parse_line(&format!("forebay log forget{wrong}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong}");
        }
        let (_, inputs) = parse_line("forebay log list --data-dir /y").unwrap();
        assert_eq!(inputs.flags, [("data_dir", "/y".to_owned())]);
    }

    #[test]
    fn a_start_may_take_the_volume_over() {
        let (request, inputs) = parse_line("forebay serve --take-over").unwrap();
        assert!(matches!(request, Request::Serve { .. }));
        assert_eq!(inputs.flags, [("takeover", "allow".to_owned())]);
        let error = parse_line("forebay serve --take-over --takeover refuse").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
        let error = parse_line("forebay flush --take-over").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument);
    }

    #[test]
    fn quotas_are_set_by_size_and_number() {
        let request = |line| match parse_line(line).unwrap() {
            (Request::Quota { request, json }, _) => (request, json),
            (other, _) => panic!("{other:?}"),
        };
        let set = QuotaRequest::Set {
            path: "/home/ann".to_owned(),
            bytes: QuotaLimit::To(10 << 30),
            files: QuotaLimit::Keep,
        };
        let line = "forebay quota set /home/ann --bytes 10GiB --json --data-dir /y";
        assert_eq!(request(line), (set, true));
        let set = QuotaRequest::Set {
            path: "/a".to_owned(),
            bytes: QuotaLimit::None,
            files: QuotaLimit::To(7),
        };
        let line = "forebay quota set /a --bytes none --files 7";
        assert_eq!(request(line), (set, false));
        assert_eq!(request("forebay quota list"), (QuotaRequest::List, false));
        for line in [
            "forebay quota set /a",
            "forebay quota set --bytes 1MiB",
            "forebay quota set /a --bytes much",
            "forebay quota set /a --files -1",
            "forebay quota show",
        ] {
            assert_eq!(parse_line(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn unknown_flags_name_the_nearest_right_one() {
        let error = parse_line("forebay serve --log-limt 1GiB").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownArgument);
        assert!(error.to_string().contains("--log-limit"), "{error}");
        let error = parse_line("forebay serv").unwrap_err();
        assert!(error.to_string().contains("serve"), "{error}");
    }

    #[test]
    fn a_flag_that_is_given_twice_is_an_error() {
        let error = parse_line("forebay serve --log disk --log none").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn no_command_is_help_and_an_error() {
        for line in ["forebay", "forebay log", "forebay log salvage epoch-1"] {
            let error = parse_line(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
