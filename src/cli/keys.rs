//! The command `keys`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::configured;
use crate::config::{Endpoint, KmsKey, Region, Value};

/// A request about the key ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysRequest {
    /// Print its slots and its data keys.
    List {
        /// As JSON.
        json: bool,
    },
    /// Let another passphrase open the volume as well.
    AddPassphrase {
        /// The file that contains it; without a file the user is asked for it.
        file: Option<PathBuf>,
    },
    /// Let another key file open the volume as well.
    AddKeyFile {
        /// The key file.
        file: PathBuf,
    },
    /// Let a key of AWS KMS open the volume as well.
    AddKms {
        /// The key: its ARN, its id or an alias.
        key: String,
        /// Its region, if given.
        region: Option<Region>,
        /// URL of the service, if given.
        endpoint: Option<Endpoint>,
    },
    /// Replace the credential that opens the volume now with a new passphrase.
    ChangePassphrase {
        /// The file that contains it; without a file the user is asked for it.
        file: Option<PathBuf>,
    },
    /// Remove a slot.
    Remove {
        /// Its number.
        slot: u32,
    },
    /// Make a new data key.
    Rotate,
}

/// `keys` and its subcommands.
pub(super) fn command(json: &Arg) -> Command {
    let new_passphrase = Arg::new("new-passphrase-file")
        .long("new-passphrase-file")
        .value_name("file")
        .value_parser(value_parser!(PathBuf))
        .help("File with the new passphrase [default: type it twice at the prompt]");
    let file = Arg::new("file")
        .value_name("file")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The new key file: 32 or more random bytes, readable for its owner alone");
    let key = Arg::new("key")
        .value_name("key")
        .required(true)
        .value_parser(kms_key)
        .help("The key: its ARN, its id, or an alias such as alias/forebay");
    let region = Arg::new("region")
        .long("region")
        .value_name(Region::KIND)
        .value_parser(|text: &str| Region::read(text))
        .help("Its region [default: the one in its ARN, else kms_region, else that of AWS_REGION, the profile or the machine]");
    let endpoint = Arg::new("endpoint")
        .long("endpoint")
        .value_name(Endpoint::KIND)
        .value_parser(|text: &str| Endpoint::read(text))
        .help(
            "URL of KMS [default: kms_endpoint if the region is the same, else that of AWS_ENDPOINT_URL_KMS or AWS_ENDPOINT_URL, else AWS's own for the region]",
        );
    let slot = Arg::new("slot")
        .value_name("slot")
        .required(true)
        .value_parser(value_parser!(u32))
        .help("The number of the slot, as `forebay keys list` prints it");
    Command::new("keys")
        .about("List or change the slots that open a sealed volume, and its data keys")
        .after_help(
            "These commands change only the object forebay.keys. A gateway may serve the volume meanwhile; \
             it uses a new data key\nfrom its next start on. docs/encryption.md explains each command.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            configured(
                "list",
                "List the slots that open the volume, and its data keys; needs no key, and verifies nothing",
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
            configured("add-kms", "Let a key of AWS KMS open the volume as well")
                .arg(key)
                .arg(region)
                .arg(endpoint),
        )
        .subcommand(
            configured(
                "change-passphrase",
                "Replace the slot that opens the volume now by a new passphrase",
            )
            .arg(new_passphrase),
        )
        .subcommand(
            configured(
                "remove",
                "Remove a slot; not the one that this command opens the key ring with",
            )
            .arg(slot),
        )
        .subcommand(configured(
            "rotate",
            "Make a new data key; the gateway seals with it from its next start on",
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
        "add-kms" => KeysRequest::AddKms {
            // Required.
            key: matches.get_one("key").cloned().unwrap_or_default(),
            region: matches.get_one("region").cloned(),
            endpoint: matches.get_one("endpoint").cloned(),
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

/// The name of a key; `none` is refused.
fn kms_key(text: &str) -> Result<String, String> {
    let named = KmsKey::read(text)?.0;
    named.ok_or_else(|| "name the key that opens the volume".to_owned())
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
            (
                "add-kms alias/k --region eu-central-1 --endpoint https://k --kms-key alias/old",
                KeysRequest::AddKms {
                    key: "alias/k".to_owned(),
                    region: Some(Region(Some("eu-central-1".to_owned()))),
                    endpoint: Some(Endpoint(Some("https://k".to_owned()))),
                },
            ),
            (
                "add-kms 1234abcd --region auto",
                KeysRequest::AddKms {
                    key: "1234abcd".to_owned(),
                    region: Some(Region(None)),
                    endpoint: None,
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
            "add-kms",
            "add-kms none",
            "add-kms alias/k --region eu/central",
            "add-kms alias/k --endpoint kms",
            "change-passphrase words",
            "remove",
            "remove one",
            "rotate --passphrase words",
        ] {
            assert_eq!(read(&format!("forebay keys {line}")), None, "{line}");
        }
    }
}
