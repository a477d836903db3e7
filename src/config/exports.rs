//! The exports that the configuration file lists.
//!
//! ```toml
//! [[export]]
//! path = "/scratch"
//! clients = ["10.0.0.0/8"]
//! commit = "async"
//!
//! [[export]]
//! path = "/scratch"
//! clients = ["10.1.2.3"]
//! access = "ro"
//! ```
//!
//! A table corresponds to a client entry in exports(5): some clients of a directory, with their options. Options that
//! it leaves out come from the setting of the same name. Without any such table the root of the volume is exported,
//! with these settings.

use std::collections::BTreeMap;

use forebay_fs::Levels;
use forebay_nfs::AddressRange;
use toml::de::{DeTable, DeValue};

use super::error::nearest_of;
use super::raw::RawExport;
use super::text::{FileText, scalar_or_list};
use super::{
    Access, Clients, CommitMode, Compression, Config, ConfigError, LogMode, MaybeDuration,
    Security, Setting, Source, SourcePort, Squash, Value, VirtualDirectory, Written, Xprtsec,
};

/// The key of the tables in the file.
pub(super) const TABLE: &str = "export";

/// The end of a sentence about a table of another name.
pub(super) fn no_such_table(name: &str) -> String {
    // One letter added, missing or replaced is considered a typo.
    match nearest_of(&name.to_ascii_lowercase(), [TABLE.to_owned()].into_iter()) {
        Some(right) => format!("; did you mean [[{right}]]?"),
        None => format!(
            "; the file has no sections but [[{TABLE}]] and [prices]: write other settings without a header, above the first [[{TABLE}]]"
        ),
    }
}

/// The message about a key that no table of an export takes.
fn no_such_key(key: &str) -> String {
    let own = OWN.iter().copied();
    let nearest = nearest_of(key, own.chain(["path"]).map(str::to_owned));
    // A setting of the whole gateway is not a misspelt option.
    if let Some(setting) = Setting::find(key) {
        return format!(
            "`{}` is a setting of the whole gateway, not of an [[export]]: write it above the first [[export]]",
            setting.key
        );
    }
    if let Some(right) = nearest {
        return format!("unknown key `{key}` in [[export]]; did you mean `{right}`?");
    }
    let (last, others) = OWN.split_last().unwrap_or((&"", &[]));
    let others = others.join(", ");
    format!("unknown key `{key}` in [[export]]; it takes path, {others} and {last}")
}

/// The settings that an export may override: one row creates the field, its key, and the code that reads and shows
/// it.
macro_rules! options {
    ($($(#[doc = $documentation:literal])+ $key:ident: $kind:ty;)+) => {
        /// Their keys.
        pub(super) const OWN: [&str; [$(stringify!($key)),+].len()] = [$(stringify!($key)),+];

        /// Some clients of a directory, with their rules.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Export {
            /// The directory, from the root of the volume: `/`, or `/` and names with `/` between them.
            pub path: String,
            $($(#[doc = $documentation])+ pub $key: $kind,)+
        }

        impl Export {
            /// The root of the volume, with the general settings.
            pub(super) fn general(config: &Config) -> Export {
                Export {
                    path: "/".to_owned(),
                    $($key: config.$key.clone(),)+
                }
            }

            /// The values beside the path, in the form of a file.
            pub(super) fn written(&self) -> [(&'static str, Written); OWN.len()] {
                [$((stringify!($key), self.$key.write()),)+]
            }

            /// Reads the values of a table, and takes those that it leaves out from `config`.
            fn read(
                path: String,
                raw: &RawExport,
                config: &Config,
                errors: &mut Vec<ConfigError>,
            ) -> Export {
                Export {
                    path,
                    $($key: own(raw, stringify!($key), &config.$key, errors),)+
                }
            }
        }
    };
}

options! {
    /// The addresses of the clients.
    clients: Clients;
    /// Whether they may change anything.
    access: Access;
    /// The callers whose identity is replaced.
    squash: Squash;
    /// The user that replaces it.
    anonuid: u32;
    /// The group that replaces it.
    anongid: u32;
    /// The accepted flavors of credentials.
    sec: Security;
    /// The ports from which they may connect.
    source_port: SourcePort;
    /// The required protection of their connections.
    xprtsec: Xprtsec;
    /// The commit mode: where data must be before a reply that promises stable storage.
    commit: CommitMode;
    /// Whether written data is compressed.
    compression: Compression;
    /// The levels of compression.
    compression_level: Levels;
    /// How they see snapshots.
    snapshot_directory: VirtualDirectory;
    /// How long removed and replaced files stay in the trash.
    trash: MaybeDuration;
    /// How they see the trash.
    trash_directory: VirtualDirectory;
}

/// Extracts the tables of a file; errors are added to `errors`.
pub(super) fn gather(
    file: &FileText<'_>,
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
        // The span of a table in a list is that of its header.
        let place = file.place(item.span());
        match item.get_ref().as_table() {
            Some(table) => exports.push(one(file, place, table, errors)),
            None => no_list(place, errors),
        }
    }
    exports
}

fn one(
    file: &FileText<'_>,
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
                    key => no_such_key(key),
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

/// Reads the tables; options that they leave out come from `config`.
pub(super) fn read(
    raw: &[RawExport],
    config: &Config,
    errors: &mut Vec<ConfigError>,
) -> Vec<Export> {
    if raw.is_empty() {
        let export = Export::general(config);
        let general = |key: &str| config.source(key);
        check(&export, &general, config, errors);
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
        let export = Export::read(path, raw, config, errors);
        if let Some(range) = shared_range(&export, &exports) {
            errors.push(ConfigError::Export {
                place: place.clone(),
                problem: format!(
                    "{} is exported to {range} twice, so the rules are ambiguous; leave it out of one \
                     [[export]]",
                    export.path
                ),
            });
            continue;
        }
        let place = |key: &str| {
            let own = raw.values.get(key).map(|(_, place)| place.clone());
            own.unwrap_or_else(|| config.source(key))
        };
        check(&export, &place, config, errors);
        exports.push(export);
    }
    exports
}

/// Refuses options that the whole gateway does not support. `place` returns where a value of the export was set.
fn check(
    export: &Export,
    place: &impl Fn(&str) -> Source,
    config: &Config,
    errors: &mut Vec<ConfigError>,
) {
    check_xprtsec(export, place("xprtsec"), config, errors);
    if config.log == LogMode::None && export.commit == CommitMode::Async {
        errors.push(ConfigError::Export {
            place: place("commit"),
            problem: format!(
                "commit = async for {} has no meaning with {}: COMMIT waits for the bucket then; leave it out",
                export.path,
                config.described("log")
            ),
        });
    }
}

/// An export that no client could use is a mistake: the files that its clients need must be configured.
fn check_xprtsec(export: &Export, place: Source, config: &Config, errors: &mut Vec<ConfigError>) {
    let missing = match export.xprtsec {
        Xprtsec { none: true, .. } => return,
        _ if config.tls_certificate.path().is_none() => {
            "TLS, which needs tls_certificate and tls_key"
        }
        Xprtsec { tls: true, .. } => return,
        Xprtsec { .. } if config.tls_client_ca.path().is_some() => return,
        Xprtsec { .. } => "certificates of clients, which needs tls_client_ca",
    };
    errors.push(ConfigError::Export {
        place,
        problem: format!(
            "xprtsec = {} for {} asks for {missing}: set that, or add none to xprtsec",
            export.xprtsec.write(),
            export.path
        ),
    });
}

/// Clients that an earlier table of the same path contains as well.
fn shared_range(export: &Export, earlier: &[Export]) -> Option<AddressRange> {
    let same_path = earlier.iter().filter(|other| other.path == export.path);
    let named: Vec<AddressRange> = same_path
        .flat_map(|other| other.clients.ranges())
        .copied()
        .collect();
    let mut own = export.clients.ranges().iter().copied();
    own.find(|range| named.contains(range))
}

/// A path without redundant slashes.
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
