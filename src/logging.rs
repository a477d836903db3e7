//! The program's messages: one line each, on standard error, with a limited rate of each kind.
//!
//! `line` keeps a message to one line; `limit` suppresses messages that a client, or a mistake, repeats without end. A
//! message that a client can cause names it in the field `client`: the limits distinguish messages by this field and by
//! their place in the code.

mod limit;
mod line;

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt as lines;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;
use limit::Limiter;
use line::Lines;

/// Name of the field with a client's address, with or without its port.
const CLIENT: &str = "client";

/// The target of messages about messages, which are not limited themselves.
const ABOUT_MESSAGES: &str = "forebay::messages";

/// The limit that [`start`] has created.
static LIMIT: OnceLock<Arc<Limit>> = OnceLock::new();

/// Logs messages of this level and above to standard error from now on, for the whole process.
///
/// Libraries of third parties log less: up to `info` only their warnings and errors are shown, and messages that are
/// only of use to their developers not before `debug`. The AWS SDK never logs more than `debug`: at `trace` it would
/// print whole requests, and a request to KMS contains the volume key.
///
/// Messages of the level `info` and above are limited; [`say_what_was_held`] has to be called from time to time.
///
/// # Errors
/// Logging was already set up in this process.
pub fn start(level: LogLevel) -> Result<(), String> {
    let started = Instant::now();
    let limit = Arc::new(Limit::new(move || started.elapsed()));
    subscriber(level, limit.clone(), std::io::stderr)
        .try_init()
        .map_err(|error| error.to_string())?;
    // Only the first caller gets here.
    let _ = LIMIT.set(limit);
    Ok(())
}

/// Logs the number of messages that were held within the last minute, once for each kind; of all held messages if
/// `all`.
pub fn say_what_was_held(all: bool) {
    if let Some(limit) = LIMIT.get() {
        limit.say_what_was_held(all);
    }
}

fn subscriber<W: std::io::Write + 'static>(
    level: LogLevel,
    limit: Arc<Limit>,
    output: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    let output = lines::layer()
        .with_writer(Lines(output))
        .with_ansi(false)
        .with_target(true);
    tracing_subscriber::registry()
        .with(filter(level))
        .with(LimitLayer(limit))
        .with(output)
}

/// The suppressed messages.
struct Limit {
    /// Time since an arbitrary moment.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    limiter: Mutex<Limiter<Identifier>>,
}

impl Limit {
    fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Limit {
        Limit {
            now: Box::new(now),
            limiter: Mutex::new(Limiter::new()),
        }
    }

    fn say_what_was_held(&self, all: bool) {
        // The lock is released before a message is logged, which takes it again.
        let due = self.limiter.lock().due((self.now)(), all);
        for held in due {
            let (count, sample) = (held.count, held.sample);
            match held.client {
                Some(client) => tracing::warn!(
                    target: ABOUT_MESSAGES,
                    client,
                    "{count} more like this within a minute: {sample}"
                ),
                None => tracing::warn!(
                    target: ABOUT_MESSAGES,
                    "{count} more like this within a minute: {sample}"
                ),
            }
        }
    }
}

struct LimitLayer(Arc<Limit>);

impl<S: Subscriber> Layer<S> for LimitLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // An operator that enables debug or trace gets all messages.
        if *metadata.level() > Level::INFO || metadata.target() == ABOUT_MESSAGES {
            return true;
        }
        let client = client_of(event);
        let (kind, now) = (metadata.callsite(), (self.0.now)());
        let mut limiter = self.0.limiter.lock();
        limiter.admit(&kind, client.as_deref(), now, || message_of(event))
    }
}

/// The address in the field `client`; another text is used unchanged.
fn client_of(event: &Event<'_>) -> Option<String> {
    // Found without formatting anything.
    event.metadata().fields().field(CLIENT)?;
    let text = text_of(event, CLIENT);
    let address = text.parse().map(|address: SocketAddr| address.ip());
    let address = address.or_else(|_| text.parse::<IpAddr>());
    Some(address.map_or(text, |ip| ip.to_canonical().to_string()))
}

fn message_of(event: &Event<'_>) -> String {
    text_of(event, "message")
}

/// The value of one field as text.
fn text_of(event: &Event<'_>, name: &str) -> String {
    struct One<'a> {
        name: &'a str,
        text: String,
    }
    impl Visit for One<'_> {
        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == self.name {
                self.text = value.to_owned();
            }
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == self.name {
                // Writing to a string fails only if the value does.
                let _ = write!(self.text, "{value:?}");
            }
        }
    }
    let mut one = One {
        name,
        text: String::new(),
    };
    event.record(&mut one);
    one.text
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
        // The cache of the metadata store: its warnings are about its own settings, which an operator cannot change.
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
    use std::io;

    use tracing::Level;

    use super::*;

    /// Memory to which messages go.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that `work` prints, the reports of suppressed messages last.
    fn printed(work: impl FnOnce()) -> Vec<String> {
        let (memory, limit) = (Memory::default(), Arc::new(Limit::new(|| Duration::ZERO)));
        let output = memory.clone();
        let subscriber = subscriber(LogLevel::Info, limit.clone(), move || output.clone());
        tracing::subscriber::with_default(subscriber, || {
            work();
            limit.say_what_was_held(true);
        });
        let text = String::from_utf8(memory.0.lock().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_client_is_held_by_its_address_whatever_its_port_and_the_rest_is_said() {
        let lines = printed(|| {
            for port in 0..5000_u16 {
                let peer = SocketAddr::from(([10, 0, 0, 1], port));
                tracing::warn!(client = %peer, port, "says something");
            }
            tracing::warn!(client = %IpAddr::from([10, 0, 0, 2]), "says something else");
        });
        // The first messages of the first client, the one of the other client, and the number of held ones.
        assert_eq!(lines.len(), limit::OF_CLIENT as usize + 2);
        let other = lines.iter().filter(|line| line.contains("10.0.0.2"));
        assert_eq!(other.count(), 1);
        let last = lines.last().unwrap();
        assert!(
            last.contains("more like this within a minute: says something"),
            "{last}"
        );
        assert!(last.contains("client=\"10.0.0.1\""), "{last}");
    }

    #[test]
    fn what_names_no_client_is_held_by_its_kind() {
        let lines = printed(|| {
            for number in 0..5000 {
                tracing::error!("inode {number} cannot be read");
            }
            tracing::error!("the log has failed");
        });
        assert_eq!(lines.len(), limit::OF_KIND as usize + 2);
        assert!(
            lines
                .iter()
                .any(|line| line.ends_with("the log has failed"))
        );
        assert!(
            lines
                .last()
                .unwrap()
                .contains("more like this within a minute: inode ")
        );
    }

    #[test]
    fn a_message_with_a_name_of_several_lines_is_one_line() {
        let name = "x\n2026-01-01T00:00:00Z ERROR forebay: forged";
        let lines = printed(|| tracing::warn!(client = %"10.0.0.1", name = %name, "{name}"));
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

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
