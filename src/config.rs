//! All settings of the program.
//!
//! There is one table, in [`settings`](self): each setting has a name, a type, a default, bounds and a meaning. Its
//! TOML key (`log_limit`), its flag (`--log-limit`) and its environment variable (`FOREBAY_LOG_LIMIT`) are derived
//! from the name. The help texts, `forebay config`, the typed [`Config`] and the table in `docs/settings.md` are all
//! generated from the table.
//!
//! The sources of a value, the first match wins:
//!
//! 1. a flag,
//! 2. an environment variable,
//! 3. the file named by `--config` or `FOREBAY_CONFIG`, else `/etc/forebay/forebay.toml` if it exists,
//! 4. the default.
//!
//! The keys of prices are in a table of the file: `reads` below `[prices]` is the setting `prices_reads`. Only the file can
//! also list the directories that clients may mount, each with rules of its own: [`Export`].
//!
//! Nothing is guessed and nothing is ignored: an unknown key, variable or flag, a value that cannot be parsed, one
//! out of bounds and two that contradict each other are errors. All of them are reported at once, each with its place
//! and a correct form.

mod check;
mod error;
mod exports;
mod file;
mod inputs;
mod raw;
mod settings;
mod show;
mod source;
mod table;
mod text;
mod value;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, ConfigErrors};
pub use exports::Export;
pub use inputs::{CONFIG_VARIABLE, Inputs, SYSTEM_FILE, VARIABLE_PREFIX};
pub use settings::{Config, SETTINGS};
pub use show::{Shown, markdown_table};
pub use source::Source;
pub use table::{Default, Setting};
pub use value::{
    Access, Auto, Checksum, Clients, CommitMode, Compression, Currency, Dedup, Encryption,
    Endpoint, HostNames, KmsKey, LOG_MODULES, LogFormat, LogLevel, LogLevels, LogMode, LogModule,
    MaybeAddress, MaybeDuration, MaybeFile, OtlpEndpoint, Price, Region, Restore, Schedules,
    Sealing, Security, Size, SourcePort, Squash, StorageClass, StoreUrl, Switch, Tags, Takeover,
    Value, VirtualDirectory, Written, Xprtsec,
};

impl Config {
    /// Reads the configuration from all sources, and checks it.
    ///
    /// # Errors
    /// Every fault that was found, not just the first.
    pub fn load(inputs: &Inputs) -> Result<Config, ConfigErrors> {
        let mut errors = Vec::new();
        let mut raw = inputs.gather(&mut errors);
        raw.add_defaults(inputs.default_data_dir().as_deref());
        let config = Config::read(&raw, &mut errors);
        if let Some(config) = &config {
            config.check(&mut errors);
        }
        match config {
            Some(config) if errors.is_empty() => Ok(config),
            _ => Err(ConfigErrors(errors)),
        }
    }
}
