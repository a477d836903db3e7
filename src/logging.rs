//! The program's messages: one line each, on standard error, with a limited rate of each kind; and the latest of them
//! in memory, as [`Events`].
//!
//! * `filter`: which messages are logged, by level and module.
//! * `limit`: suppresses messages that a client, or a mistake, repeats without end. A message that a client can cause
//!   names it in the field `client`: the limits distinguish messages by this field and by their place in the code.
//! * `form`, `json`: text or JSON, for people or for systemd's journal.
//! * `line`: keeps a message to one line.
//! * `events`: the latest messages.

mod events;
mod filter;
mod form;
mod json;
mod limit;
mod line;
mod record;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tracing::callsite::Identifier;
use tracing::{Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt as lines;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

pub use events::{Event, Events, Severity};

use crate::config::{Config, LogFormat, LogLevels};
use events::EventLayer;
use filter::Filter;
use form::Form;
pub(crate) use limit::Limiter;
#[cfg(test)]
pub(crate) use limit::{OF_CLIENT, OF_KIND};
use line::Lines;
pub(crate) use line::escaped;
use record::{client_of, message_of};

/// The target of messages about messages, which are not limited themselves.
const ABOUT_MESSAGES: &str = "forebay::messages";

/// What [`start`] has set up.
static STARTED: OnceLock<Started> = OnceLock::new();

struct Started {
    limit: Arc<Limit>,
    levels: Levels,
    format: LogFormat,
}

/// The latest messages of this process: the last 1,000 of the level `warn` and above, and of our own crates also of the
/// level `info`, whatever `log_level` is, after the limits. Empty before [`start`].
pub fn events() -> &'static Events {
    static EVENTS: OnceLock<Events> = OnceLock::new();
    EVENTS.get_or_init(Events::default)
}

/// Logs messages to standard error from now on, for the whole process, as `log_level` and `log_format` say.
///
/// Messages of the level `info` and above are limited; [`say_what_was_held`] has to be called from time to time.
///
/// # Errors
/// Logging was already set up in this process.
pub fn start(config: &Config) -> Result<(), String> {
    let started = Instant::now();
    let limit = Arc::new(Limit::new(move || started.elapsed()));
    let form = Form::of_stderr(config.log_format);
    let (subscriber, levels) = subscriber(
        &config.log_level,
        form,
        limit.clone(),
        events().clone(),
        std::io::stderr,
    );
    subscriber.try_init().map_err(|error| error.to_string())?;
    // Only the first caller gets here.
    let _ = STARTED.set(Started {
        limit,
        levels,
        format: config.log_format,
    });
    Ok(())
}

/// Logs these levels from now on. Returns whether they differ from those before; never before [`start`].
pub fn set_levels(levels: &LogLevels) -> bool {
    STARTED
        .get()
        .is_some_and(|started| started.levels.set(levels))
}

/// Logs the number of messages that were held within the last minute, once for each kind; of all held messages if
/// `all`.
pub fn say_what_was_held(all: bool) {
    if let Some(started) = STARTED.get() {
        started.limit.say_what_was_held(all);
    }
}

/// Prints the reason for which the program ends: `forebay: ` and the reason, or in the form of all messages if that is
/// not text. Standard error, and before [`start`] as well.
pub fn say_failure(problem: &str) {
    if STARTED
        .get()
        .is_some_and(|started| started.format == LogFormat::Json)
    {
        tracing::error!("{problem}");
    } else if form::is_journal_stderr() {
        for line in problem.lines() {
            eprintln!("{}forebay: {line}", form::priority(Level::ERROR));
        }
    } else {
        eprintln!("forebay: {problem}");
    }
}

/// A subscriber whose messages become these events, and go nowhere else.
#[cfg(test)]
pub(crate) fn into_events() -> (impl Subscriber + Send + Sync, Events) {
    let events = Events::default();
    let limit = Arc::new(Limit::new(|| Duration::ZERO));
    let (levels, form) = (
        LogLevels::of(crate::config::LogLevel::Info),
        Form::of_stderr(LogFormat::Text),
    );
    let (subscriber, _) = subscriber(&levels, form, limit, events.clone(), std::io::sink);
    (subscriber, events)
}

fn subscriber<W, M>(
    levels: &LogLevels,
    form: Form,
    limit: Arc<Limit>,
    events: Events,
    output: M,
) -> (impl Subscriber + Send + Sync + use<W, M>, Levels)
where
    W: std::io::Write + 'static,
    M: Fn() -> W + Send + Sync + 'static,
{
    let filter = Filter::of(levels);
    let kept = Filter::of_events();
    let printed = Arc::new(RwLock::new(filter.targets()));
    let (enabled, handle) = reload::Layer::new(filter.or(&kept).targets());
    let output = lines::layer()
        .event_format(form)
        .with_writer(Lines {
            output,
            printed: printed.clone(),
        })
        .with_ansi(false);
    let subscriber = tracing_subscriber::registry()
        .with(enabled)
        .with(LimitLayer(limit))
        .with(EventLayer {
            kept: kept.targets(),
            events,
        })
        .with(output);
    let levels = Levels {
        current: Mutex::new(levels.clone()),
        printed,
        enabled: handle,
    };
    (subscriber, levels)
}

/// The levels in force.
struct Levels {
    current: Mutex<LogLevels>,
    /// The messages that are printed.
    printed: Arc<RwLock<Targets>>,
    /// Those, and the ones that are kept as events; all others cost a place in the code next to nothing.
    enabled: reload::Handle<Targets, Registry>,
}

impl Levels {
    /// Puts these in force; returns whether they differ from those before.
    fn set(&self, levels: &LogLevels) -> bool {
        let mut current = self.current.lock();
        if *current == *levels {
            return false;
        }
        let filter = Filter::of(levels);
        *self.printed.write() = filter.targets();
        let enabled = filter.or(&Filter::of_events()).targets();
        // The subscriber is gone only in tests.
        if self.enabled.reload(enabled).is_err() {
            return false;
        }
        *current = levels.clone();
        true
    }
}

/// A place in the code, and the level of its messages.
type Kind = (Identifier, Level);

/// The suppressed messages.
struct Limit {
    /// Time since an arbitrary moment.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    limiter: Mutex<Limiter<Kind>>,
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
            let (count, client, sample) = (held.count, held.client, held.sample);
            // An absent client is no field.
            match held.kind {
                // Not more severe than the messages that it counts, which may not be printed at all.
                (_, Level::INFO) => tracing::info!(
                    target: ABOUT_MESSAGES,
                    client,
                    "{count} more like this within a minute: {sample}"
                ),
                _ => tracing::warn!(
                    target: ABOUT_MESSAGES,
                    client,
                    "{count} more like this within a minute: {sample}"
                ),
            }
        }
    }
}

struct LimitLayer(Arc<Limit>);

impl<S: Subscriber> Layer<S> for LimitLayer {
    fn event_enabled(&self, event: &tracing::Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // An operator that enables debug or trace gets all messages.
        if *metadata.level() > Level::INFO || metadata.target() == ABOUT_MESSAGES {
            return true;
        }
        let client = client_of(event);
        let (kind, now) = ((metadata.callsite(), *metadata.level()), (self.0.now)());
        let mut limiter = self.0.limiter.lock();
        limiter.admit(&kind, client.as_deref(), now, || message_of(event))
    }
}

#[cfg(test)]
mod tests;
