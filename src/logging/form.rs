//! The forms of a message: text or JSON, for people or for systemd's journal.
//!
//! ```text
//! 2026-11-26T23:42:42.153574Z  INFO forebay::serve: SIGTERM: stopping ...
//! {"time":"2026-11-26T23:42:42.153574Z","level":"info","module":"forebay::serve","message":"SIGTERM: stopping ...","fields":{}}
//! <6> INFO forebay::serve: SIGTERM: stopping ...                                                           in the journal
//! ```

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::AsFd;
use std::time::SystemTime;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::time::SystemTime as TextTime;
use tracing_subscriber::fmt::{self as lines, FmtContext};
use tracing_subscriber::registry::LookupSpan;

use super::json;
use super::record::Record;
use crate::config::LogFormat;

/// The variable in which systemd names the stream that leads to its journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// The form of all messages of a process.
pub(super) struct Form {
    format: LogFormat,
    /// The journal keeps the time of each line, and reads its priority from the line's beginning.
    is_journal: bool,
    dated: Format<Full, TextTime>,
    undated: Format<Full, ()>,
}

impl Form {
    pub(super) fn new(format: LogFormat, is_journal: bool) -> Form {
        Form {
            format,
            is_journal,
            dated: lines::format(),
            undated: lines::format().without_time(),
        }
    }

    /// The form for standard error.
    pub(super) fn of_stderr(format: LogFormat) -> Form {
        Form::new(format, is_journal_stderr())
    }
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut output: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if self.is_journal {
            output.write_str(priority(*metadata.level()))?;
        }
        match (self.format, self.is_journal) {
            (LogFormat::Json, is_journal) => {
                let time = (!is_journal).then(SystemTime::now);
                let line = json::line(
                    time,
                    *metadata.level(),
                    metadata.target(),
                    &Record::of(event),
                );
                writeln!(output, "{line}")
            }
            (LogFormat::Text, false) => self.dated.format_event(context, output, event),
            (LogFormat::Text, true) => self.undated.format_event(context, output, event),
        }
    }
}

/// The priority of syslog, as sd-daemon(3) has it at the beginning of a line.
pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}

/// Whether standard error leads to systemd's journal.
pub(super) fn is_journal_stderr() -> bool {
    std::env::var_os(JOURNAL_STREAM).is_some_and(|stream| is_stream(&stream, std::io::stderr()))
}

/// Whether `stream`, a device and an inode with a colon between, is this file. A process whose standard error was
/// redirected has the variable too.
fn is_stream(stream: &OsStr, file: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return false;
    };
    stream.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let stat = file.metadata().unwrap();
        let named =
            |device: u64, inode: u64| is_stream(format!("{device}:{inode}").as_ref(), &file);
        assert!(named(stat.dev(), stat.ino()));
        assert!(!named(stat.dev(), stat.ino() + 1));
        assert!(!named(stat.dev() + 1, stat.ino()));
        for wrong in ["", ":", "journal", "1"] {
            assert!(!is_stream(wrong.as_ref(), &file), "{wrong}");
        }
    }
}
