//! The command `keys`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::configured;

/// What is to be done with the key ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysRequest {
    /// Print what opens it, and its data keys.
    List {
        /// As JSON.
        json: bool,
    },
    /// Let another passphrase open the volume as well.
    AddPassphrase {
        /// The file that it is in; without one it is asked for.
        file: Option<PathBuf>,
    },
    /// Let another key file open the volume as well.
    AddKeyFile {
        /// The key file.
        file: PathBuf,
    },
    /// Put a new passphrase in the place of what opens the volume now.
    ChangePassphrase {
        /// The file that it is in; without one it is asked for.
        file: Option<PathBuf>,
    },
    /// Take a slot away.
    Remove {
        /// Its number.
        slot: u32,
    },
    /// Make a new data key.
    Rotate,
}

/// `keys` and what it can do.
pub(super) fn command(json: &Arg) -> Command {
    let new_passphrase = Arg::new("new-passphrase-file")
        .long("new-passphrase-file")
        .value_name("file")
        .value_parser(value_parser!(PathBuf))
        .help("File with the new passphrase [default: it is asked for, twice]");
    let file = Arg::new("file")
        .value_name("file")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The new key file: 32 or more random bytes, readable for its owner alone");
    let slot = Arg::new("slot")
        .value_name("slot")
        .required(true)
        .value_parser(value_parser!(u32))
        .help("Which slot, as `forebay keys list` calls it");
    Command::new("keys")
        .about("Look at or change what opens a sealed volume, and its data keys")
        .after_help(
            "Only the object forebay.keys is changed. A gateway may serve the volume meanwhile; it takes a \
             new data key at\nits next start. What each does is in docs/encryption.md.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            configured(
                "list",
                "List what opens the volume, and its data keys; needs no key, and verifies nothing",
            )
            .arg(json.clone()),
        )
        .subcommand(
            configured("add-passphrase", "Let another passphrase open the volume as well")
                .arg(new_passphrase.clone()),
        )
        .subcommand(
            configured("add-key-file", "Let another key file open the volume as well").arg(file),
        )
        .subcommand(
            configured(
                "change-passphrase",
                "Put a new passphrase in the place of what opens the volume now",
            )
            .arg(new_passphrase),
        )
        .subcommand(
            configured(
                "remove",
                "Take a slot away; never the one that opens the key ring for it",
            )
            .arg(slot),
        )
        .subcommand(configured(
            "rotate",
            "Make a new data key for what is written from the next start of a gateway on",
        ))
}

pub(super) fn request(name: &str, matches: &ArgMatches) -> KeysRequest {
    let new_passphrase = || matches.get_one("new-passphrase-file").cloned();
    match name {
        "add-passphrase" => KeysRequest::AddPassphrase {
            file: new_passphrase(),
        },
        "add-key-file" => KeysRequest::AddKeyFile {
            // Required.
            file: matches.get_one("file").cloned().unwrap_or_default(),
        },
        "change-passphrase" => KeysRequest::ChangePassphrase {
            file: new_passphrase(),
        },
        "remove" => KeysRequest::Remove {
            // Required; there is no slot 0.
            slot: matches.get_one("slot").copied().unwrap_or_default(),
        },
        "rotate" => KeysRequest::Rotate,
        _ => KeysRequest::List {
            json: matches.get_flag("json"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Request, parse};
    use crate::config::Inputs;

    fn read(line: &str) -> Option<KeysRequest> {
        let inputs = Inputs {
            flags: Vec::new(),
            file: None,
            variables: Vec::new(),
            system_file: PathBuf::new(),
            is_root: false,
        };
        match parse(line.split(' ').map(Into::into), inputs).ok()?.0 {
            Request::Keys(request) => Some(request),
            _ => None,
        }
    }

    #[test]
    fn what_is_to_be_done_and_no_secret_is_on_the_command_line() {
        let file = |path: &str| Some(PathBuf::from(path));
        for (line, request) in [
            ("list --json", KeysRequest::List { json: true }),
            ("add-passphrase", KeysRequest::AddPassphrase { file: None }),
            (
                "change-passphrase --new-passphrase-file /new --passphrase-file /old",
                KeysRequest::ChangePassphrase { file: file("/new") },
            ),
            (
                "add-key-file /key",
                KeysRequest::AddKeyFile {
                    file: "/key".into(),
                },
            ),
            ("remove 3", KeysRequest::Remove { slot: 3 }),
            ("rotate", KeysRequest::Rotate),
        ] {
            assert_eq!(
                read(&format!("forebay keys {line}")),
                Some(request),
                "{line}"
            );
        }
        for line in [
            "",
            "add-key-file",
            "add-passphrase words",
            "change-passphrase words",
            "remove",
            "remove one",
            "rotate --passphrase words",
        ] {
            assert_eq!(read(&format!("forebay keys {line}")), None, "{line}");
        }
    }
}
