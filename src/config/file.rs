//! Reads the configuration file.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::nearest;
use super::raw::Raw;
use super::text::{FileText, scalar_or_list};
use super::{ConfigError, Setting, exports};

/// Reads the file into `raw`; errors are added to `errors`.
pub(super) fn read(path: &Path, named_by: &str, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&FileText { path, text: &text }, raw, errors),
        Err(error) => errors.push(ConfigError::Unreadable {
            path: path.to_owned(),
            named_by: named_by.to_owned(),
            error,
        }),
    }
}

/// Parses the text.
fn parse(file: &FileText<'_>, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
    let table = match DeTable::parse(file.text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            errors.push(ConfigError::Syntax {
                place: file.place(error.span().unwrap_or(0..0)),
                problem: error.message().to_owned(),
            });
            return;
        }
    };
    for (key, value) in &table {
        let source = file.place(key.span());
        if key.get_ref() == exports::TABLE {
            raw.exports = exports::gather(file, source, value.get_ref(), errors);
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
            None => errors.push(file.wrong_type(setting, value, source)),
        }
    }
}

/// Whether a key was written as the header of a table.
fn is_table_or_tables(value: &DeValue<'_>) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    let items = value.as_array();
    is_table(value) || items.is_some_and(|items| items.iter().any(|item| is_table(item.get_ref())))
}
