//! Reading the configuration file.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::nearest;
use super::inputs::Raw;
use super::{ConfigError, Setting, Source};

/// Reads the file into `raw`; what is wrong with it goes to `errors`.
pub(super) fn read(path: &Path, named_by: &str, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text, raw, errors),
        Err(error) => errors.push(ConfigError::Unreadable {
            path: path.to_owned(),
            named_by: named_by.to_owned(),
            error,
        }),
    }
}

fn parse(path: &Path, text: &str, raw: &mut Raw, errors: &mut Vec<ConfigError>) {
    let place = |span: Range<usize>| Source::File {
        path: path.to_owned(),
        line: line_of(text, span.start),
    };
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            errors.push(ConfigError::Syntax {
                place: place(error.span().unwrap_or(0..0)),
                problem: error.message().to_owned(),
            });
            return;
        }
    };
    for (key, value) in &table {
        let source = place(key.span());
        let Some(setting) = Setting::find(key.get_ref()) else {
            let hint = match value.get_ref() {
                DeValue::Table(_) => "; the file has no sections".to_owned(),
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
            None => errors.push(ConfigError::BadValue {
                key: setting.key,
                place: source,
                value: text.get(value.span()).unwrap_or_default().to_owned(),
                reason: format!("a TOML {} does not fit", value.get_ref().type_str()),
                expected: setting.expected(),
            }),
        }
    }
}

/// The text of a value as a flag would give it; nothing for types that no setting has.
fn scalar_or_list(value: &DeValue<'_>, setting: &Setting) -> Option<String> {
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
