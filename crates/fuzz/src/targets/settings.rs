//! The command line and the environment.
//!
//! For all words and variables: they are refused with a message, or their values are the same after they are written
//! (`forebay config`) and read again.
//!
//! ```text
//! input     lines
//! line      $NAME=value     an environment variable; a NAME of one byte is the number of a setting, whose variable it is
//!           %K=value        the flag of the setting whose number is the byte K
//!           anything else   a word of the command line
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use forebay::cli;
use forebay::config::{Config, SETTINGS};

use super::config_file::{check, inputs};
use crate::Target;

/// The target.
pub const TARGET: Target = Target {
    name: "settings",
    run,
    seeds,
    max_bytes: 512,
};

fn run(bytes: &[u8]) {
    let mut environment = inputs(None);
    let mut words: Vec<OsString> = vec!["forebay".into(), "config".into()];
    let mut flags = Vec::new();
    for line in bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match line {
            [b'$', rest @ ..] => {
                let equals = rest.iter().position(|byte| *byte == b'=');
                let (name, value) = rest.split_at(equals.unwrap_or(rest.len()));
                let name = match name {
                    [number] => OsString::from(setting(*number).variable()),
                    name => OsString::from_vec(name.to_vec()),
                };
                // A fuzzer must not choose the file that a variable names.
                if name != "FOREBAY_CONFIG" {
                    let value = value.get(1..).unwrap_or_default().to_vec();
                    environment
                        .variables
                        .push((name, OsString::from_vec(value)));
                }
            }
            [b'%', number, b'=', value @ ..] => {
                let value = String::from_utf8_lossy(value).into_owned();
                flags.push((setting(*number).key, value));
            }
            word => words.push(OsString::from_vec(word.to_vec())),
        }
    }
    // Parsing the command line takes a hundred times as long as everything else.
    let mut read = match words.len() {
        2 => environment,
        _ => match cli::parse(words, environment) {
            Ok((_, read)) => read,
            Err(error) => return assert!(!error.to_string().is_empty()),
        },
    };
    read.flags.extend(flags);
    if read.file.is_some() {
        return;
    }
    match Config::load(&read) {
        Ok(config) => check(&config),
        Err(errors) => assert!(!errors.to_string().trim().is_empty()),
    }
}

/// The setting that a byte stands for.
fn setting(number: u8) -> &'static forebay::config::Setting {
    &SETTINGS[usize::from(number) % SETTINGS.len()]
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let each: Vec<u8> = SETTINGS
        .iter()
        .zip(0u8..)
        .filter(|(setting, _)| !setting.default_text().contains([' ', '<']))
        .flat_map(|(setting, number)| {
            // Numbers that are line breaks or equals signs would be parsed as such.
            let number = match number {
                b'\n' | b'=' => number + SETTINGS.len() as u8,
                _ => number,
            };
            [
                b"%",
                &[number][..],
                b"=",
                setting.default_text().as_bytes(),
                b"\n",
            ]
            .concat()
        })
        .collect();
    vec![
        ("each-flag", each),
        (
            "line",
            b"--log-limit\n1GiB\n--sync=async\n--store\ns3://bucket/p\n".to_vec(),
        ),
        (
            "environment",
            b"$FOREBAY_LOG=none\n$FOREBAY_STORE=file:///srv/x\n$XDG_DATA_HOME=/data\n".to_vec(),
        ),
        (
            "unknown",
            b"$FOREBAY_LOG_LIMT=1\n$FOREBAY_PORT=tcp://10.0.0.1\n--log-limt\n1\n".to_vec(),
        ),
        (
            "not-utf8",
            b"$FOREBAY_DATA_DIR=\xff\xfe\n--data-dir\n\xff\n".to_vec(),
        ),
    ]
}
