//! The configuration as text: for people, as a file, and for other programs.

use std::fmt::Write;

use super::raw::without_credentials;
use super::{Config, Export, SETTINGS, Setting, Source, Written};

/// One setting with its effective value.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value.
    pub value: Written,
    /// The source of the value.
    pub source: Source,
}

impl Config {
    /// All settings with their values, in the order of the table.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |setting: &'static Setting| {
            Some(Shown {
                setting,
                value: self.written(setting.key)?,
                source: self.source(setting.key),
            })
        };
        SETTINGS.iter().filter_map(shown).collect()
    }

    /// As a configuration file that yields this configuration, with the source of each value as a comment.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for shown in self.shown() {
            if shown.setting.section != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                section = shown.setting.section;
                let _ = writeln!(text, "{gap}# {section}");
            }
            let key = shown.setting.file_key();
            let line = format!("{key} = {}", toml_value(&shown.value));
            let _ = writeln!(text, "{line:<44} # {}", one_line(&shown.source.to_string()));
        }
        // Exports that are derived from the settings above are left out, so that they follow changes of these.
        let general = [Export::general(self)];
        for export in self.exports.iter().filter(|_| self.exports != general) {
            let _ = writeln!(text, "\n[[export]]\npath = {}", toml_string(&export.path));
            for (key, value) in export.written() {
                let _ = writeln!(text, "{key} = {}", toml_value(&value));
            }
        }
        text
    }

    /// The configuration in force, as [`to_json`](Self::to_json) has it, after SIGHUP has read `again`: settings that
    /// take effect at the next start have the value and the source of this one. Credentials in URLs are left out.
    pub fn in_force(&self, again: &Config) -> serde_json::Value {
        let (mut all, mut newer) = (self.to_json(), again.to_json());
        let at_once = SETTINGS.iter().filter(|one| one.takes_effect_at_once());
        for key in at_once.map(|one| one.key).chain([super::exports::TABLE]) {
            all[key] = newer[key].take();
        }
        mask(&mut all);
        all
    }

    /// As JSON: an object with an object for each setting, which has `value` and `source`, and the list
    /// `export`.
    pub fn to_json(&self) -> serde_json::Value {
        let entry = |shown: Shown| {
            let (value, source) = (json_value(shown.value), shown.source.to_string());
            let entry = serde_json::json!({ "value": value, "source": source });
            (shown.setting.key.to_owned(), entry)
        };
        let export = |export: &Export| {
            let own = export
                .written()
                .map(|(key, value)| (key, json_value(value)));
            let path = ("path", export.path.clone().into());
            let all = std::iter::once(path).chain(own);
            all.map(|(key, value)| (key.to_owned(), value)).collect()
        };
        let exports: Vec<serde_json::Value> = self.exports.iter().map(export).collect();
        let exports = (super::exports::TABLE.to_owned(), exports.into());
        let settings = self.shown().into_iter().map(entry);
        serde_json::Value::Object(settings.chain([exports]).collect())
    }
}

/// Leaves out credentials in URLs.
fn mask(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = without_credentials(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(mask),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(mask),
        _ => {}
    }
}

fn json_value(value: Written) -> serde_json::Value {
    match value {
        Written::Text(text) => text.into(),
        Written::Number(number) => number.into(),
        // All of them are finite.
        Written::Decimal(number) => number.parse::<f64>().ok().into(),
        Written::List(items) => items.into(),
    }
}

fn toml_value(value: &Written) -> String {
    match value {
        Written::Text(text) => toml_string(text),
        Written::Number(number) => number.to_string(),
        Written::Decimal(number) => number.clone(),
        Written::List(items) => {
            let items: Vec<_> = items.iter().map(|item| toml_string(item)).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// A basic string of TOML. TOML reads the escapes of JSON, and requires one more (DEL), which is added.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

/// A comment ends at the end of its line, so control characters in a path are replaced.
fn one_line(text: &str) -> String {
    text.replace(|character: char| character.is_control(), "?")
}

/// The table of all settings as in `docs/settings.md`.
pub fn markdown_table() -> String {
    let mut text = String::from(
        "| key | type | default | meaning |\n\
         |---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            setting.file_key(),
            setting.type_text(),
            code(setting.default_text()),
            setting.meaning(),
        );
    }
    text
}

/// A default as code, if it is a value and not a sentence.
fn code(text: &str) -> String {
    if text.contains(' ') {
        text.to_owned()
    } else {
        format!("`{text}`")
    }
}
