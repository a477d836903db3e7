//! Gathering what was set, before anything is read as a value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::nearest;
use super::exports::RawExport;
use super::{ConfigError, Default, SETTINGS, Setting, Source, Value, file};

/// What the names of all environment variables of the program begin with.
pub const VARIABLE_PREFIX: &str = "FOREBAY_";

/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "FOREBAY_CONFIG";

/// The configuration file that is read, if it exists, when none is named.
pub const SYSTEM_FILE: &str = "/etc/forebay/forebay.toml";

/// Everything that the configuration depends on.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Flags that were given: key and value.
    pub flags: Vec<(&'static str, String)>,
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The file to read when none is named, if it exists.
    pub system_file: PathBuf,
    /// Whether the program runs as root.
    pub is_root: bool,
}

impl Inputs {
    /// The environment of this process, without any flag.
    pub fn of_process() -> Inputs {
        Inputs {
            flags: Vec::new(),
            file: None,
            variables: std::env::vars_os().collect(),
            system_file: SYSTEM_FILE.into(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Collects the text of every value that was set, weakest source first.
    pub(super) fn gather(&self, errors: &mut Vec<ConfigError>) -> Raw {
        let mut raw = Raw::default();
        if let Some((path, named_by)) = self.config_file() {
            file::read(&path, &named_by, &mut raw, errors);
        }
        self.gather_variables(&mut raw, errors);
        for (key, text) in &self.flags {
            if let Some(setting) = Setting::find(key) {
                let source = Source::Flag(format!("--{}", setting.flag()));
                raw.set(setting, text.clone(), source);
            }
        }
        raw
    }

    /// The configuration file and who named it.
    fn config_file(&self) -> Option<(PathBuf, String)> {
        if let Some(path) = &self.file {
            return Some((path.clone(), "named by --config".to_owned()));
        }
        if let Some(path) = self.variable(CONFIG_VARIABLE) {
            return Some((path.into(), format!("named by {CONFIG_VARIABLE}")));
        }
        // A file that is there but cannot be looked at is an error, not an absent one.
        match self.system_file.try_exists() {
            Ok(false) => None,
            _ => Some((self.system_file.clone(), "the system's default".to_owned())),
        }
    }

    fn variable(&self, wanted: &str) -> Option<&OsString> {
        let (_, value) = self.variables.iter().find(|(name, _)| name == wanted)?;
        Some(value)
    }

    fn gather_variables(&self, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
        for (name, value) in &self.variables {
            let name = name.to_string_lossy();
            if !name.starts_with(VARIABLE_PREFIX) || name == CONFIG_VARIABLE {
                continue;
            }
            let source = Source::Variable(name.clone().into_owned());
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
                errors.push(ConfigError::UnknownVariable {
                    hint: unknown_variable_hint(&name),
                    name: name.into_owned(),
                });
                continue;
            };
            match value.to_str() {
                Some(text) => raw.set(setting, text.to_owned(), source),
                None => errors.push(ConfigError::BadValue {
                    key: setting.key,
                    place: source,
                    value: value.to_string_lossy().into_owned(),
                    reason: "not UTF-8".to_owned(),
                    expected: setting.expected(),
                }),
            }
        }
    }

    /// Where log and state go when nobody says where.
    fn default_data_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some("/var/lib/forebay".into());
        }
        // The XDG base directory specification has relative paths ignored.
        let absolute = |name| {
            self.variable(name)
                .map(Path::new)
                .filter(|path| path.is_absolute())
        };
        absolute("XDG_DATA_HOME")
            .map(|data| data.join("forebay"))
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share/forebay")))
    }
}

/// What to say about an unknown variable. Kubernetes gives every container variables named after
/// the services of its namespace, so a service called `forebay` makes some that look like ours.
fn unknown_variable_hint(name: &str) -> String {
    if name.contains("_SERVICE_") || name.contains("_PORT") {
        return "; if Kubernetes set it, say `enableServiceLinks: false` in the pod".to_owned();
    }
    nearest(name, Setting::variable)
}

/// The text of the values that were set, and where each was.
#[derive(Debug, Default)]
pub(super) struct Raw {
    values: BTreeMap<&'static str, (String, Source)>,
    /// What the file lists.
    pub(super) exports: Vec<RawExport>,
}

impl Raw {
    /// Sets a value, replacing that of a weaker source.
    pub(super) fn set(&mut self, setting: &'static Setting, text: String, source: Source) {
        self.values.insert(setting.key, (text, source));
    }

    /// Fills in the defaults of what was not set. A computed default that cannot be computed is
    /// left out.
    pub(super) fn add_defaults(&mut self, inputs: &Inputs) {
        let fixed = |setting: &Setting| match setting.default {
            Default::Fixed(text) => Some(text.to_owned()),
            Default::Computed(_) => None,
        };
        for setting in SETTINGS {
            if let Some(text) = fixed(setting) {
                self.add_default(setting.key, text);
            }
        }
        let data_dir = inputs.default_data_dir();
        if let Some(data_dir) = data_dir.as_deref().and_then(Path::to_str) {
            self.add_default("data_dir", data_dir.to_owned());
        }
        if let Some((data_dir, _)) = self.values.get("data_dir")
            && let Ok(data_dir) = PathBuf::read(data_dir)
        {
            let bucket = data_dir.join("bucket");
            self.add_default("store", format!("file://{}", bucket.display()));
        }
    }

    fn add_default(&mut self, key: &'static str, text: String) {
        self.values.entry(key).or_insert((text, Source::Default));
    }

    /// Reads a value; `check` refuses one that is out of bounds.
    pub(super) fn read<T: Value>(
        &self,
        key: &'static str,
        check: impl FnOnce(T) -> Result<T, String>,
        errors: &mut Vec<ConfigError>,
    ) -> Option<T> {
        let setting = Setting::find(key)?;
        let Some((text, source)) = self.values.get(key) else {
            // The store lacks a default only where the data_dir is at fault.
            if key == "data_dir" {
                errors.push(ConfigError::Missing {
                    key,
                    reason: "neither XDG_DATA_HOME nor HOME is an absolute path; \
                             set it with --data-dir or FOREBAY_DATA_DIR",
                });
            }
            return None;
        };
        match T::read(text).and_then(check) {
            Ok(value) => Some(value),
            Err(reason) => {
                errors.push(ConfigError::BadValue {
                    key,
                    place: source.clone(),
                    value: without_credentials(text),
                    reason,
                    expected: setting.expected(),
                });
                None
            }
        }
    }

    /// Where every value comes from.
    pub(super) fn sources(&self) -> BTreeMap<&'static str, Source> {
        let source =
            |(key, (_, source)): (&&'static str, &(String, Source))| (*key, source.clone());
        self.values.iter().map(source).collect()
    }
}

/// Refuses a value below `low` or above `high`.
pub(super) fn within<T: Value + PartialOrd>(value: T, low: &str, high: &str) -> Result<T, String> {
    if value < T::read(low)? {
        return Err("too small".to_owned());
    }
    if value > T::read(high)? {
        return Err("too large".to_owned());
    }
    Ok(value)
}
/// A bad value as it is shown: what may be a password in a URL is left out.
fn without_credentials(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}://...{}", &text[..scheme], &text[at..])
        }
        _ => text.to_owned(),
    }
}
