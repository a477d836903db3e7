//! The commands and their flags.
//!
//! Each command that reads the configuration takes a flag for every setting of the table in
//! [`crate::config`]; none of them is written down here a second time.
//!
//! Exit codes: 0 it worked, 1 it failed, 2 the command line or the configuration is wrong.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Str;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::config::{CONFIG_VARIABLE, Inputs, SETTINGS, SYSTEM_FILE, Setting, Value};

/// What the user wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Serve a volume until told to stop, making it first if there is none.
    Serve,
    /// Make a volume.
    Format,
    /// Print the effective configuration.
    Config(ConfigForm),
    /// Have a running gateway publish everything now.
    Flush {
        /// How long to wait for it; without end if nothing is said.
        timeout: Option<Duration>,
    },
    /// Print how a running gateway is.
    Status {
        /// As JSON.
        json: bool,
    },
    /// Print the version.
    Version,
}

/// In which form the configuration is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigForm {
    /// As a file that can be fed back.
    Toml,
    /// As JSON.
    Json,
    /// The table of all settings, whatever their values are.
    Markdown,
}

/// Reads the command line. The flags of the configuration, and the environment, are in the second
/// part.
///
/// # Errors
/// What clap has to say, which may be the help text that was asked for.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Inputs,
) -> Result<(Request, Inputs), clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    let (name, matches) = matches.subcommand().unwrap_or(("version", &matches));
    let request = match name {
        "serve" => Request::Serve,
        "format" => Request::Format,
        "config" if matches.get_flag("json") => Request::Config(ConfigForm::Json),
        "config" if matches.get_flag("markdown") => Request::Config(ConfigForm::Markdown),
        "config" => Request::Config(ConfigForm::Toml),
        "flush" => Request::Flush {
            timeout: matches.get_one("timeout").copied(),
        },
        "status" => Request::Status {
            json: matches.get_flag("json"),
        },
        _ => return Ok((Request::Version, environment)),
    };
    Ok((request, with_flags(matches, environment)))
}

/// The whole command line.
pub fn command() -> Command {
    let json = Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON");
    let markdown = Arg::new("markdown")
        .long("markdown")
        .action(ArgAction::SetTrue)
        .conflicts_with("json")
        .help("Print the table of all settings instead");
    let timeout = Arg::new("timeout")
        .long("timeout")
        .value_name("duration")
        .value_parser(Duration::read)
        .help("Give up after so long, for example 30s [default: wait without end]");

    Command::new("forebay")
        .about("An NFSv3 server whose disk is an S3 bucket")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(
            "Every setting has a flag, an environment variable and a key in the configuration \
             file, in this order of\nprecedence. `forebay config` prints what is in effect and \
             where each value came from.\n\nExit codes: 0 it worked, 1 it failed, 2 the command \
             line or the configuration is wrong.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(configured(
            "serve",
            "Serve a volume over NFS, making it if there is none",
        ))
        .subcommand(configured("format", "Make a volume in an empty store"))
        .subcommand(
            configured(
                "config",
                "Print the effective configuration, as a file to be fed back",
            )
            .arg(json.clone())
            .arg(markdown),
        )
        .subcommand(
            configured(
                "flush",
                "Have the running gateway publish everything to the bucket now",
            )
            .arg(timeout),
        )
        .subcommand(
            configured(
                "status",
                "Print what the running gateway does, and what is not in the bucket yet",
            )
            .arg(json),
        )
        .subcommand(Command::new("version").about("Print the version"))
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
        .args(SETTINGS.iter().map(flag))
}

/// The flag of a setting. Its value is read later, together with those from other sources.
fn flag(setting: &'static Setting) -> Arg {
    let help = format!(
        "{} [{}] [env: {}] [default: {}]",
        setting.meaning(),
        setting.type_text(),
        setting.variable(),
        setting.default_text(),
    );
    Arg::new(setting.key)
        .long(Str::from(setting.flag()))
        .value_name(setting.kind)
        .help_heading(setting.section)
        .help(help)
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
        for name in ["serve", "format", "config", "flush", "status"] {
            for setting in SETTINGS {
                let line = format!("forebay {name} --{} x", setting.flag());
                let (_, inputs) = parse_line(&line).unwrap();
                assert_eq!(inputs.flags, [(setting.key, "x".to_owned())], "{line}");
            }
        }
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
        assert_eq!(
            request("forebay config --markdown"),
            Request::Config(ConfigForm::Markdown)
        );
        assert_eq!(request("forebay version"), Request::Version);
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
        let error = parse_line("forebay").unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
}
