//! The program's messages: one line each, on standard error.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;

/// Sends messages of this level and above to standard error from now on, for the whole process.
///
/// Other people's libraries may not say what only their developers want to know before the level
/// is `debug`; up to `info` their warnings and errors are shown. The AWS SDK never says more than that, at `trace` it would
/// print whole requests, and one to KMS has the volume key in it.
///
/// # Errors
/// Somebody has set this up in this process before.
pub fn start(level: LogLevel) -> Result<(), String> {
    let output = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(true);
    tracing_subscriber::registry()
        .with(filter(level))
        .with(output)
        .try_init()
        .map_err(|error| error.to_string())
}

fn filter(level: LogLevel) -> Targets {
    let (ours, others) = match level {
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::WARN),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::WARN),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    // Targets are module paths and match by prefix: all crates of the project begin with this.
    Targets::new()
        .with_default(others)
        .with_target("aws", others.min(LevelFilter::DEBUG))
        // The cache of the metadata store: its warnings are about its own settings, which nobody can change.
        .with_target(
            "foyer",
            if others > LevelFilter::WARN {
                others
            } else {
                LevelFilter::ERROR
            },
        )
        .with_target("forebay", ours)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_say_less_than_the_program() {
        let filter = filter(LogLevel::Info);
        assert!(filter.would_enable("forebay::serve", &Level::INFO));
        assert!(filter.would_enable("forebay_nfs::connection", &Level::INFO));
        assert!(!filter.would_enable("forebay_nfs::connection", &Level::DEBUG));
        assert!(filter.would_enable("slatedb::db", &Level::WARN));
        assert!(!filter.would_enable("slatedb::db", &Level::INFO));
        assert!(!filter.would_enable("foyer_memory::cache", &Level::WARN));
        assert!(filter.would_enable("foyer_memory::cache", &Level::ERROR));
    }

    #[test]
    fn requests_are_never_printed_since_one_has_the_volume_key() {
        let filter = filter(LogLevel::Trace);
        assert!(filter.would_enable("slatedb::db", &Level::TRACE));
        for target in [
            "aws_sdk_kms::operation::encrypt",
            "aws_smithy_runtime::client::orchestrator",
        ] {
            assert!(filter.would_enable(target, &Level::DEBUG), "{target}");
            assert!(!filter.would_enable(target, &Level::TRACE), "{target}");
        }
    }
}
