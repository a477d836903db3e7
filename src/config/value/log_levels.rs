//! Levels of messages: one for all, and others for some modules.

use std::collections::BTreeMap;

use super::{LogLevel, Value, Written};
use crate::config::error::nearest_of;

/// A part of the program, or a library, whose messages may have a level of their own.
#[derive(Debug, PartialEq, Eq)]
pub struct LogModule {
    /// Its name in the setting.
    pub name: &'static str,
    /// The beginning of the targets of its messages: its crate, or a prefix of the names of several crates.
    pub target: &'static str,
}

impl LogModule {
    /// Whether it is a crate of this project. Libraries of third parties log less at the same level.
    pub fn is_ours(&self) -> bool {
        self.target.starts_with("forebay")
    }
}

/// The name of the AWS SDK.
const AWS: &str = "aws";

/// Every crate of this project that logs anything, and the libraries whose messages help an operator.
pub const LOG_MODULES: &[LogModule] = &[
    // The crate has the name that all others begin with.
    module("program", "forebay::"),
    module("nfs", "forebay_nfs"),
    module("fs", "forebay_fs"),
    module("meta", "forebay_meta"),
    module("packs", "forebay_pack_store"),
    module("object", "forebay_object"),
    module("environment", "forebay_environment"),
    module("view", "forebay_view"),
    module("fsck", "forebay_fsck"),
    module("clones", "forebay_clones"),
    module("types", "forebay_types"),
    module("slatedb", "slatedb"),
    module(AWS, "aws"),
];

const fn module(name: &'static str, target: &'static str) -> LogModule {
    LogModule { name, target }
}

/// The least severe levels that are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// Of all messages but those of the listed modules.
    pub all: LogLevel,
    /// Of the messages of some modules, by name.
    modules: BTreeMap<&'static str, LogLevel>,
}

impl LogLevels {
    /// One level for all messages.
    pub fn of(all: LogLevel) -> LogLevels {
        LogLevels {
            all,
            modules: BTreeMap::new(),
        }
    }

    /// The level that a module has of its own.
    pub fn of_module(&self, module: &LogModule) -> Option<LogLevel> {
        self.modules.get(module.name).copied()
    }
}

impl Value for LogLevels {
    const KIND: &'static str = "level, and levels of modules";
    const EXAMPLE: &'static str = "error, warn, info, debug or trace, which may be followed by levels of modules such as in `info,nfs=debug`";
    const IS_LIST: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let (mut all, mut modules) = (None, BTreeMap::new());
        for entry in text.split(',') {
            let is_again = match entry.split_once('=') {
                None => all.replace(level(entry)?).is_some(),
                Some((name, word)) => {
                    let (module, level) = (named(name.trim())?, level(word)?);
                    if module.name == AWS && level == LogLevel::Trace {
                        return Err("the level of `aws` is at most debug: at trace it would print whole requests, and with them secrets".to_owned());
                    }
                    modules.insert(module.name, level).is_some()
                }
            };
            if is_again {
                return Err(format!(
                    "`{}` is a second level for the same messages",
                    entry.trim()
                ));
            }
        }
        let all = all.ok_or("there is no level for all other messages")?;
        Ok(LogLevels { all, modules })
    }

    fn write(&self) -> Written {
        let mut text = self.all.word().to_owned();
        for (name, level) in &self.modules {
            text += &format!(",{name}={}", level.word());
        }
        Written::Text(text)
    }
}

fn level(text: &str) -> Result<LogLevel, String> {
    let text = text.trim();
    LogLevel::read(text).map_err(|_| {
        let words = LogLevel::CHOICES.iter().map(|&word| word.to_owned());
        match nearest_of(text, words) {
            Some(word) => format!("`{text}` is no level; did you mean `{word}`?"),
            None => format!("`{text}` is no level"),
        }
    })
}

fn named(name: &str) -> Result<&'static LogModule, String> {
    let known = LOG_MODULES.iter().find(|module| module.name == name);
    known.ok_or_else(|| {
        let names = || LOG_MODULES.iter().map(|module| module.name.to_owned());
        // As the messages have it: `forebay_nfs`.
        let short = name.strip_prefix("forebay_").unwrap_or(name);
        let hint = match nearest_of(short, names()) {
            Some(near) => format!("; did you mean `{near}`? The"),
            None => "; the".to_owned(),
        };
        let list: Vec<_> = names().collect();
        format!(
            "there is no module `{name}`{hint} modules are {}",
            list.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn levels_are_one_or_one_and_some_of_modules() {
        for (text, written) in [
            ("info", "info"),
            (" nfs=trace , warn ", "warn,nfs=trace"),
            ("info,object=debug,aws=debug", "info,aws=debug,object=debug"),
        ] {
            let levels = LogLevels::read(text).unwrap();
            assert_eq!(levels.write().to_string(), written);
            assert_eq!(LogLevels::read(written), Ok(levels));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, parts) in [
            ("", &["`` is no level"][..]),
            ("inf", &["`inf` is no level; did you mean `info`?"]),
            ("info,", &["`` is no level"]),
            ("nfs=debug", &["no level for all other messages"]),
            ("info,warn", &["`warn` is a second level"]),
            ("info,nfs=debug,nfs=warn", &["`nfs=warn` is a second level"]),
            ("info,nfs=loud", &["`loud` is no level"]),
            (
                "info,nfsd=debug",
                &[
                    "no module `nfsd`; did you mean `nfs`?",
                    "The modules are program, nfs, fs,",
                ],
            ),
            ("info,forebay_object=debug", &["did you mean `object`?"]),
            ("info,xyzzy=debug", &["no module `xyzzy`; the modules are"]),
            ("info,aws=trace", &["at most debug", "secrets"]),
        ] {
            let error = LogLevels::read(text).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    /// Whether a source file below this folder logs anything.
    fn logs(folder: &Path) -> bool {
        fs::read_dir(folder).into_iter().flatten().any(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => logs(&path),
                false => fs::read_to_string(&path).unwrap().contains("tracing::"),
            }
        })
    }

    #[test]
    fn every_crate_that_logs_is_a_module_and_no_other() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
        let mut logging: Vec<_> = fs::read_dir(crates)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            // Tools and tests, which are in no program.
            .filter(|path| {
                ![
                    "client",
                    "conformance",
                    "crash",
                    "fuzz",
                    "measure",
                    "mutants",
                    "simulation",
                    "soak",
                ]
                .iter()
                .any(|tool| path.ends_with(tool))
            })
            .filter(|path| logs(&path.join("src")))
            .map(|path| {
                let name = path
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .replace('-', "_");
                format!("forebay_{name}")
            })
            .collect();
        logging.push("forebay::".to_owned());
        logging.sort();
        let mut ours: Vec<_> = LOG_MODULES
            .iter()
            .filter(|module| module.is_ours())
            .map(|module| module.target)
            .collect();
        ours.sort_unstable();
        assert_eq!(logging, ours);
    }
}
