//! Reading the configuration file.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::nearest;
use super::inputs::Raw;
use super::{ConfigError, Setting, Source, exports};

/// Reads the file into `raw`; what is wrong with it goes to `errors`.
pub(super) fn read(path: &Path, named_by: &str, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
    match std::fs::read_to_string(path) {
        Ok(text) => File { path, text: &text }.parse(raw, errors),
        Err(error) => errors.push(ConfigError::Unreadable {
            path: path.to_owned(),
            named_by: named_by.to_owned(),
            error,
        }),
    }
}

/// A file that is being read.
pub(super) struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    /// Where a span of the text is.
    pub(super) fn place(&self, span: Range<usize>) -> Source {
        Source::File {
            path: self.path.to_owned(),
            line: line_of(self.text, span.start),
        }
    }

    /// The error for a value of a TOML type that the setting has no use for.
    pub(super) fn wrong_type(
        &self,
        setting: &'static Setting,
        value: &Spanned<DeValue<'_>>,
        place: Source,
    ) -> ConfigError {
        ConfigError::BadValue {
            key: setting.key,
            place,
            value: self.text.get(value.span()).unwrap_or_default().to_owned(),
            reason: format!("a TOML {} does not fit", value.get_ref().type_str()),
            expected: setting.expected(),
        }
    }

    fn parse(&self, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
        let table = match DeTable::parse(self.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                errors.push(ConfigError::Syntax {
                    place: self.place(error.span().unwrap_or(0..0)),
                    problem: error.message().to_owned(),
                });
                return;
            }
        };
        for (key, value) in &table {
            let source = self.place(key.span());
            if key.get_ref() == exports::TABLE {
                raw.exports = exports::gather(self, source, value.get_ref(), errors);
                continue;
            }
            let Some(setting) = Setting::find(key.get_ref()) else {
                let hint = match value.get_ref() {
                    value if is_table_or_tables(value) => exports::no_such_table(key.get_ref()),
                    _ => nearest(key.get_ref(), |setting| setting.key.to_owned()),
                };
                errors.push(ConfigError::UnknownKey {
                    place: source,
                    key: key.get_ref().to_string(),
                    hint,
                });
                continue;
            };
            match scalar_or_list(value.get_ref(), setting) {
                Some(value) => raw.set(setting, value, source),
                None => errors.push(self.wrong_type(setting, value, source)),
            }
        }
    }
}

/// Whether a key was written as the header of a table.
fn is_table_or_tables(value: &DeValue<'_>) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    let items = value.as_array();
    is_table(value) || items.is_some_and(|items| items.iter().any(|item| is_table(item.get_ref())))
}

/// The text of a value as a flag would give it; nothing for types that no setting has.
pub(super) fn scalar_or_list(value: &DeValue<'_>, setting: &Setting) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(if *value { "on" } else { "off" }.to_owned()),
        DeValue::Array(items) if setting.is_list => {
            let items: Option<Vec<_>> = items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect();
            Some(items?.join(","))
        }
        _ => None,
    }
}

/// Line of a byte of the text, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
