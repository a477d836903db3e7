//! The text of the values that were set, and the place of each, before they are parsed.
//!
//! [`inputs`](super::inputs) gathers it, with the file's part from [`file`](super::file) and
//! [`exports`](super::exports); [`settings`](super::settings) reads the values out of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{ConfigError, Default, SETTINGS, Setting, Source, Value};

/// The text of the values that were set, and the place of each.
#[derive(Debug, Default)]
pub(super) struct Raw {
    values: BTreeMap<&'static str, (String, Source)>,
    /// The exports that the file lists.
    pub(super) exports: Vec<RawExport>,
}

impl Raw {
    /// Sets a value, replacing that of a weaker source.
    pub(super) fn set(&mut self, setting: &'static Setting, text: String, source: Source) {
        self.values.insert(setting.key, (text, source));
    }

    /// Adds the defaults of values that were not set; `data_dir` is that of its setting. A computed default that
    /// cannot be computed is left out.
    pub(super) fn add_defaults(&mut self, data_dir: Option<&Path>) {
        let fixed = |setting: &Setting| match setting.default {
            Default::Fixed(text) => Some(text.to_owned()),
            Default::Computed(_) => None,
        };
        for setting in SETTINGS {
            if let Some(text) = fixed(setting) {
                self.add_default(setting.key, text);
            }
        }
        if let Some(data_dir) = data_dir.and_then(Path::to_str) {
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
            // The store has no default only if that of data_dir is missing.
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

    /// The source of every value.
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

/// A value for a message: text that may be a password in a URL is left out.
pub(super) fn without_credentials(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}://...{}", &text[..scheme], &text[at..])
        }
        _ => text.to_owned(),
    }
}

/// The text of the values of one table, and the place of each.
#[derive(Debug)]
pub(super) struct RawExport {
    pub(super) place: Source,
    pub(super) path: Option<(String, Source)>,
    pub(super) values: BTreeMap<&'static str, (String, Source)>,
}
