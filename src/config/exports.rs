//! The exports that the configuration file lists.
//!
//! ```toml
//! [[export]]
//! path = "/scratch"
//! clients = ["10.0.0.0/8"]
//! commit = "async"
//! ```
//!
//! What an export does not say is as the setting of the same name says. Without any such table the
//! root of the volume is exported, with these settings.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::file::{File, scalar_or_list};
use super::{
    Clients, CommitMode, Config, ConfigError, LogMode, Setting, Source, Squash, Value, Written,
};

/// The key of the tables in the file.
pub(super) const TABLE: &str = "export";

/// The settings that an export may have its own value of.
const OWN: [&str; 3] = ["clients", "squash", "commit"];

/// A directory that clients may mount, with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The directory, from the root of the volume: `/`, or `/` and names with `/` between them.
    pub path: String,
    /// Whose hosts may mount it.
    pub clients: Clients,
    /// Whose identity is replaced.
    pub squash: Squash,
    /// What answers that promise stable storage wait for.
    pub commit: CommitMode,
}

impl Export {
    /// The root of the volume, with the general settings.
    pub(super) fn general(config: &Config) -> Export {
        Export {
            path: "/".to_owned(),
            clients: config.clients.clone(),
            squash: config.squash,
            commit: config.commit,
        }
    }

    /// The values beside the path, as they are written in a file.
    pub(super) fn written(&self) -> [(&'static str, Written); 3] {
        let [clients, squash, commit] = OWN;
        [
            (clients, self.clients.write()),
            (squash, self.squash.write()),
            (commit, self.commit.write()),
        ]
    }
}

/// The text of one table's values, and where each stands.
#[derive(Debug)]
pub(super) struct RawExport {
    place: Source,
    path: Option<(String, Source)>,
    values: BTreeMap<&'static str, (String, Source)>,
}

/// Takes the tables of a file apart; what is wrong with them goes to `errors`.
pub(super) fn gather(
    file: &File<'_>,
    place: Source,
    value: &DeValue<'_>,
    errors: &mut Vec<ConfigError>,
) -> Vec<RawExport> {
    let no_list = |place, errors: &mut Vec<ConfigError>| {
        errors.push(ConfigError::Export {
            place,
            problem: "`export` is a list of tables: begin each with a line [[export]]".to_owned(),
        });
    };
    let Some(items) = value.as_array() else {
        no_list(place, errors);
        return Vec::new();
    };
    let mut exports = Vec::new();
    for item in items {
        // The span of a table in a list is its header's.
        let place = file.place(item.span());
        match item.get_ref().as_table() {
            Some(table) => exports.push(one(file, place, table, errors)),
            None => no_list(place, errors),
        }
    }
    exports
}

fn one(
    file: &File<'_>,
    place: Source,
    table: &DeTable<'_>,
    errors: &mut Vec<ConfigError>,
) -> RawExport {
    let mut raw = RawExport {
        place,
        path: None,
        values: BTreeMap::new(),
    };
    for (key, value) in table {
        let place = file.place(key.span());
        if key.get_ref() == "path"
            && let Some(path) = value.get_ref().as_str()
        {
            raw.path = Some((path.to_owned(), place));
            continue;
        }
        let own = OWN.iter().find(|own| *own == key.get_ref());
        let Some(setting) = own.and_then(|own| Setting::find(own)) else {
            errors.push(ConfigError::Export {
                place,
                problem: match key.get_ref().as_ref() {
                    "path" => "path has to be a string".to_owned(),
                    key => format!(
                        "unknown key `{key}` in [[export]]; it takes path, clients, squash and commit"
                    ),
                },
            });
            continue;
        };
        match scalar_or_list(value.get_ref(), setting) {
            Some(text) => {
                raw.values.insert(setting.key, (text, place));
            }
            None => errors.push(file.wrong_type(setting, value, place)),
        }
    }
    raw
}

/// Reads the tables; what they leave out is as `config` has it.
pub(super) fn read(
    raw: &[RawExport],
    config: &Config,
    errors: &mut Vec<ConfigError>,
) -> Vec<Export> {
    if raw.is_empty() {
        let export = Export::general(config);
        check(&export, config.source("commit"), config, errors);
        return vec![export];
    }
    let mut exports: Vec<Export> = Vec::new();
    for raw in raw {
        let Some((path, place)) = &raw.path else {
            errors.push(ConfigError::Export {
                place: raw.place.clone(),
                problem: "an export needs a path, such as path = \"/home\"".to_owned(),
            });
            continue;
        };
        let mut refuse = |problem: String| {
            errors.push(ConfigError::Export {
                place: place.clone(),
                problem,
            });
        };
        let path = match check_path(path) {
            Ok(path) => path,
            Err(problem) => {
                refuse(problem);
                continue;
            }
        };
        if exports.iter().any(|other| other.path == path) {
            refuse(format!(
                "{path} is exported twice; one [[export]] can name all its clients"
            ));
            continue;
        }
        let export = Export {
            path,
            clients: own(raw, "clients", &config.clients, errors),
            squash: own(raw, "squash", &config.squash, errors),
            commit: own(raw, "commit", &config.commit, errors),
        };
        let commit = raw.values.get("commit").map(|(_, place)| place.clone());
        let place = commit.unwrap_or_else(|| config.source("commit"));
        check(&export, place, config, errors);
        exports.push(export);
    }
    exports
}

/// Refuses what the volume as a whole cannot do.
fn check(export: &Export, commit: Source, config: &Config, errors: &mut Vec<ConfigError>) {
    if config.log == LogMode::None && export.commit == CommitMode::Async {
        errors.push(ConfigError::Export {
            place: commit,
            problem: format!(
                "commit = async for {} has no meaning with {}: COMMIT waits for the bucket then; leave it out",
                export.path,
                config.described("log")
            ),
        });
    }
}

/// A path without slashes that say nothing.
fn check_path(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!(
            "path = `{path}`: has to begin with /, the root of the volume"
        ));
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    match names.iter().find(|name| matches!(**name, "." | "..")) {
        Some(dots) => Err(format!("path = `{path}`: leave out `{dots}`")),
        None => Ok(format!("/{}", names.join("/"))),
    }
}

/// The export's own value, or the general one.
fn own<T: Value + Clone>(
    raw: &RawExport,
    key: &'static str,
    general: &T,
    errors: &mut Vec<ConfigError>,
) -> T {
    let Some((text, place)) = raw.values.get(key) else {
        return general.clone();
    };
    T::read(text).unwrap_or_else(|reason| {
        errors.push(ConfigError::BadValue {
            key,
            place: place.clone(),
            value: text.clone(),
            reason,
            expected: Setting::find(key)
                .map(Setting::expected)
                .unwrap_or_default(),
        });
        general.clone()
    })
}
