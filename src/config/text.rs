//! The text of the configuration file: the place of each part, and TOML values in the form of flags.
//!
//! [`file`](super::file) extracts the settings from it, and [`exports`](super::exports) the exports.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::{ConfigError, Price, Setting, Source, Value};

/// The text of a file that is being read.
pub(super) struct FileText<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl FileText<'_> {
    /// The place of a span of the text.
    pub(super) fn place(&self, span: Range<usize>) -> Source {
        Source::File {
            path: self.path.to_owned(),
            line: line_of(self.text, span.start),
        }
    }

    /// The error for a value of a TOML type that the setting does not accept.
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
}

/// The text of a value in the form of a flag; nothing for types that no setting has.
pub(super) fn scalar_or_list(value: &DeValue<'_>, setting: &Setting) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) if setting.kind == Price::KIND => Some(number.as_str().to_owned()),
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

/// Line number of an offset in the text, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
