//! Collects the values that were set, as text.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::nearest;
use super::raw::Raw;
use super::{ConfigError, SETTINGS, Setting, Source, file};

/// Prefix of all environment variables of the program.
pub const VARIABLE_PREFIX: &str = "FOREBAY_";

/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "FOREBAY_CONFIG";

/// The configuration file that is read if none is named and this one exists.
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
    /// The file that is read if none is named and this one exists.
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

    /// The configuration file and the flag or variable that names it.
    fn config_file(&self) -> Option<(PathBuf, String)> {
        if let Some(path) = &self.file {
            return Some((path.clone(), "named by --config".to_owned()));
        }
        if let Some(path) = self.variable(CONFIG_VARIABLE) {
            return Some((path.into(), format!("named by {CONFIG_VARIABLE}")));
        }
        // A file that exists but cannot be accessed is an error, not a missing file.
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

    /// The default folder for log and state.
    pub(super) fn default_data_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some("/var/lib/forebay".into());
        }
        // According to the XDG base directory specification, relative paths are ignored.
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

/// The hint for an unknown variable. Kubernetes gives every container variables named after the services of its
/// namespace, so a service called `forebay` creates some that look like variables of the program.
fn unknown_variable_hint(name: &str) -> String {
    if name.contains("_SERVICE_") || name.contains("_PORT") {
        return "; if Kubernetes set it, say `enableServiceLinks: false` in the pod".to_owned();
    }
    nearest(name, Setting::variable)
}
