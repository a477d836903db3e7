//! The types of settings. Each is parsed and written in one way.

mod admin;
mod choice;
mod clients;
mod duration;
mod file;
mod kms;
mod levels;
mod link;
mod log_levels;
mod otlp;
mod price;
mod s3;
mod schedule;
mod security;
mod size;
mod store;
mod transports;

pub use admin::{HostNames, MaybeAddress};
pub use choice::{
    Access, Auto, Checksum, CommitMode, Compression, Dedup, Encryption, LogFormat, LogLevel,
    LogMode, Restore, Sealing, SourcePort, Squash, Switch, Takeover, VirtualDirectory,
};
pub use clients::Clients;
pub use duration::MaybeDuration;
pub use file::MaybeFile;
pub use kms::{Endpoint, Region};
pub use log_levels::{LOG_MODULES, LogLevels, LogModule};
pub use otlp::OtlpEndpoint;
pub use price::{Currency, Price};
pub use s3::{KmsKey, StorageClass, Tags};
pub use schedule::Schedules;
pub use security::Security;
pub use size::Size;
pub use store::StoreUrl;
pub use transports::Xprtsec;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The type of a setting. [`Value::read`] parses the output of [`Value::write`] to the same value.
pub trait Value: Sized {
    /// The kind of value in one word, for tables and help texts.
    const KIND: &'static str;
    /// The form of a correct value, for errors.
    const EXAMPLE: &'static str;
    /// All correct values, if they are words to choose from.
    const CHOICES: &'static [&'static str] = &[];
    /// Whether there are several values, separated by commas.
    const IS_LIST: bool = false;

    /// Parses a value as people write it.
    ///
    /// # Errors
    /// What is wrong with the text, without repeating it.
    fn read(text: &str) -> Result<Self, String>;

    /// The value in the form of a file.
    fn write(&self) -> Written;
}

/// A value in the form that it has in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A string.
    Text(String),
    /// A whole number.
    Number(u32),
    /// A decimal number.
    Decimal(String),
    /// Several strings.
    List(Vec<String>),
}

impl fmt::Display for Written {
    /// In the form of a flag or variable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Written::Text(text) => f.write_str(text),
            Written::Number(number) => write!(f, "{number}"),
            Written::Decimal(number) => f.write_str(number),
            Written::List(items) => f.write_str(&items.join(",")),
        }
    }
}

impl Value for u32 {
    const KIND: &'static str = "number";
    const EXAMPLE: &'static str = "a whole number";

    fn read(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .map_err(|_| "not a whole number in range".to_owned())
    }

    fn write(&self) -> Written {
        Written::Number(*self)
    }
}

impl Value for SocketAddr {
    const KIND: &'static str = "address:port";
    const EXAMPLE: &'static str = "an IP address and a port such as 127.0.0.1:2049 or [::1]:2049";

    fn read(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .map_err(|_| "not an IP address with a port".to_owned())
    }

    fn write(&self) -> Written {
        Written::Text(self.to_string())
    }
}

/// A path is made absolute when it is parsed, relative to the current directory of the program.
impl Value for PathBuf {
    const KIND: &'static str = "path";
    const EXAMPLE: &'static str = "the path of a folder";

    fn read(text: &str) -> Result<Self, String> {
        if text == "~" || text.starts_with("~/") {
            return Err("only a shell expands ~".to_owned());
        }
        std::path::absolute(Path::new(text)).map_err(|error| error.to_string())
    }

    fn write(&self) -> Written {
        Written::Text(self.display().to_string())
    }
}
