//! Reads the configuration file.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{nearest, nearest_of};
use super::raw::Raw;
use super::table::TABLES;
use super::text::{FileText, scalar_or_list};
use super::{ConfigError, SETTINGS, Setting, exports};

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
        let name = key.get_ref();
        if let (Some(table), DeValue::Table(rows)) =
            (TABLES.iter().find(|own| *own == name), value.get_ref())
        {
            gather(file, table, rows, raw, errors);
            continue;
        }
        if key.get_ref() == exports::TABLE {
            raw.exports = exports::gather(file, source, value.get_ref(), errors);
            continue;
        }
        let of_no_table = |setting: &&Setting| setting.table().is_none();
        let Some(setting) = Setting::find(key.get_ref()).filter(of_no_table) else {
            let hint = match value.get_ref() {
                _ if Setting::find(key.get_ref()).is_some() => in_table(key.get_ref()),
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

/// Reads the settings of one table.
fn gather(
    file: &FileText<'_>,
    table: &str,
    rows: &DeTable<'_>,
    raw: &mut Raw,
    errors: &mut Vec<ConfigError>,
) {
    for (key, value) in rows {
        let source = file.place(key.span());
        let whole = format!("{table}_{}", key.get_ref());
        let Some(setting) = Setting::find(&whole).filter(|found| found.table() == Some(table))
        else {
            let in_table = SETTINGS.iter().filter(|own| own.table() == Some(table));
            let own: Vec<_> = in_table
                .filter_map(|own| own.key.split_once('_'))
                .map(|(_, own)| own.to_owned())
                .collect();
            let hint = match nearest_of(key.get_ref(), own.iter().cloned()) {
                Some(right) => format!("; did you mean `{right}`?"),
                None => format!("; [{table}] takes {}", own.join(", ")),
            };
            errors.push(ConfigError::UnknownKey {
                place: source,
                key: format!("{table}.{}", key.get_ref()),
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

/// The end of a sentence about a setting of a table that stands outside of it.
fn in_table(key: &str) -> String {
    let found = Setting::find(key).map(Setting::file_key);
    format!("; write it as `{}`", found.unwrap_or_default())
}

/// Whether a key was written as the header of a table.
fn is_table_or_tables(value: &DeValue<'_>) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    let items = value.as_array();
    is_table(value) || items.is_some_and(|items| items.iter().any(|item| is_table(item.get_ref())))
}
