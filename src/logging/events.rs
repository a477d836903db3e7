//! The latest messages, in memory: for an operator that looks at a gateway without its log.
//!
//! ```text
//!   message --> limits --> printed, if log_level says so
//!                    `---> warn and above, info of our own crates --> ring --> since(number)
//!                                                                       `----> subscribers
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};

use super::line::{LINE_BYTES, escaped};
use super::record::Record;

/// Number of events that are kept.
const KEPT: usize = 1000;

/// Bytes of memory of all kept events.
const KEPT_BYTES: usize = 1 << 20;

/// Number of events that a subscriber may be behind.
const BEHIND: usize = 128;

/// Bytes of an event's message, so that a long one leaves room for fields.
const MESSAGE_BYTES: usize = LINE_BYTES / 2;

/// How severe an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A failure.
    Error,
    /// It may need attention.
    Warn,
    /// For operators.
    Info,
}

/// One message of the program.
///
/// Message and values of fields have no character that affects lines or terminals: these are escaped as in the log.
/// Together they have some 8 KiB at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counted from 1 since the start of the process, without gaps.
    pub number: u64,
    /// When it was logged, in seconds since 1970, by this machine's clock.
    pub unix_seconds: f64,
    /// How severe it is.
    pub level: Severity,
    /// The part of the program that logged it, such as `forebay_nfs::server`.
    pub module: String,
    /// The text.
    pub message: String,
    /// Its fields, such as the address of a `client`.
    pub fields: BTreeMap<String, String>,
}

impl fmt::Display for Event {
    /// As a line of the log, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Severity::Error => "ERROR",
            Severity::Warn => "WARN",
            Severity::Info => "INFO",
        };
        // It may come from a gateway of another version.
        let seconds = Duration::try_from_secs_f64(self.unix_seconds).unwrap_or_default();
        let time = Duration::from_micros(u64::try_from(seconds.as_micros()).unwrap_or_default());
        match SystemTime::UNIX_EPOCH.checked_add(time) {
            // The last second that has a name.
            Some(at) if time.as_secs() < 253_402_300_800 => {
                write!(f, "{}", humantime::format_rfc3339_micros(at))?;
            }
            _ => f.write_str("at an unknown time")?,
        }
        let plain = |text: &str| escaped(text, LINE_BYTES);
        write!(
            f,
            " {level:>5} {}: {}",
            plain(&self.module),
            plain(&self.message)
        )?;
        for (name, value) in &self.fields {
            write!(f, " {}={}", plain(name), plain(value))?;
        }
        Ok(())
    }
}

impl Event {
    /// Bytes of memory that it takes, roughly.
    fn bytes(&self) -> usize {
        let fields = self.fields.iter();
        let fields: usize = fields
            .map(|(name, value)| name.len() + value.len() + 64)
            .sum();
        size_of::<Event>() + self.module.len() + self.message.len() + fields
    }
}

/// The latest events of a process, at most 1,000 and 1 MiB. Clones are the same events.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    fresh: broadcast::Sender<Arc<Event>>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Number of the last event; 0 before the first.
    last: u64,
    bytes: usize,
    events: VecDeque<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Events {
        let (fresh, _) = broadcast::channel(BEHIND);
        let ring = Mutex::default();
        Events(Arc::new(Shared { ring, fresh }))
    }
}

impl Events {
    /// The kept events with numbers above `number`, oldest first; 0 is all of them. If the first one's number is
    /// larger than the next after `number`, those between are no longer kept.
    pub fn since(&self, number: u64) -> Vec<Event> {
        let ring = self.0.ring.lock();
        ring.after(number)
            .map(|event| Event::clone(event))
            .collect()
    }

    /// Receives every event from now on. A receiver that is more than 128 events behind loses the oldest ones, and is
    /// told how many they are ([`broadcast::error::RecvError::Lagged`]).
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.fresh.subscribe()
    }

    /// [`since`](Self::since) and [`subscribe`](Self::subscribe) at one moment: no event is in neither, and none in
    /// both.
    pub fn follow(&self, number: u64) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let ring = self.0.ring.lock();
        (ring.after(number).cloned().collect(), self.subscribe())
    }

    /// Adds an event; its number is replaced by the next one.
    pub(crate) fn push(&self, event: Event) {
        let mut ring = self.0.ring.lock();
        ring.last += 1;
        let event = Arc::new(Event {
            number: ring.last,
            ..event
        });
        ring.bytes += event.bytes();
        ring.events.push_back(event.clone());
        while ring.events.len() > KEPT || ring.bytes > KEPT_BYTES {
            let Some(oldest) = ring.events.pop_front() else {
                break;
            };
            ring.bytes -= oldest.bytes();
        }
        // Under the lock, so that subscribers get events in their order. An error means that there are none.
        let _ = self.0.fresh.send(event);
    }
}

impl Ring {
    fn after(&self, number: u64) -> impl Iterator<Item = &Arc<Event>> {
        let begin = self.events.partition_point(|event| event.number <= number);
        self.events.range(begin..)
    }
}

/// Keeps the messages that `kept` lets through.
pub(super) struct EventLayer {
    pub(super) kept: Targets,
    pub(super) events: Events,
}

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warn,
            Level::INFO => Severity::Info,
            _ => return,
        };
        if !self.kept.would_enable(metadata.target(), metadata.level()) {
            return;
        }
        let record = Record::of(event);
        let message = escaped(&record.message, MESSAGE_BYTES);
        let mut room = LINE_BYTES.saturating_sub(message.len());
        let mut fields = BTreeMap::new();
        for (name, value) in record.fields {
            let text = match value {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            let text = escaped(&text, room);
            room = room.saturating_sub(text.len());
            fields.insert(name.to_owned(), text);
        }
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.events.push(Event {
            number: 0,
            unix_seconds: since_1970.unwrap_or_default().as_secs_f64(),
            level,
            module: metadata.target().to_owned(),
            message,
            fields,
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    fn event(message: &str) -> Event {
        Event {
            number: 0,
            unix_seconds: 1_790_000_000.25,
            level: Severity::Warn,
            module: "forebay::test".to_owned(),
            message: message.to_owned(),
            fields: [("client".to_owned(), "10.0.0.1".to_owned())].into(),
        }
    }

    fn numbers(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn the_latest_are_kept_in_order_and_asked_for_by_number() {
        let events = Events::default();
        assert_eq!(events.since(0), []);
        for _ in 0..KEPT as u64 + 5 {
            events.push(event("text"));
        }
        let kept = numbers(&events.since(0));
        assert_eq!(kept, (6..=KEPT as u64 + 5).collect::<Vec<_>>());
        assert_eq!(
            numbers(&events.since(KEPT as u64 + 3)),
            [KEPT as u64 + 4, KEPT as u64 + 5]
        );
        assert_eq!(events.since(KEPT as u64 + 5), []);
        assert_eq!(events.since(u64::MAX), []);
    }

    #[test]
    fn large_events_take_bounded_memory() {
        let events = Events::default();
        for _ in 0..2 * KEPT {
            events.push(event(&"x".repeat(LINE_BYTES)));
        }
        let kept = events.since(0);
        let bytes: usize = kept.iter().map(Event::bytes).sum();
        assert!(bytes <= KEPT_BYTES, "{bytes}");
        assert!(bytes > KEPT_BYTES - 2 * LINE_BYTES, "{bytes}");
        assert_eq!(kept.last().unwrap().number, 2 * KEPT as u64);
    }

    #[test]
    fn a_subscriber_that_is_slow_loses_the_oldest_and_learns_how_many() {
        let events = Events::default();
        events.push(event("before"));
        let (kept, mut fresh) = events.follow(0);
        assert_eq!(kept.len(), 1);
        assert_eq!(fresh.try_recv(), Err(TryRecvError::Empty));
        for _ in 0..BEHIND + 3 {
            events.push(event("after"));
        }
        assert_eq!(fresh.try_recv(), Err(TryRecvError::Lagged(3)));
        assert_eq!(fresh.try_recv().unwrap().number, 5);
    }

    #[test]
    fn an_event_is_shown_as_a_line_of_the_log() {
        let shown = event("a message").to_string();
        assert_eq!(
            shown,
            "2026-09-21T14:13:20.250000Z  WARN forebay::test: a message client=10.0.0.1"
        );
        let mut forged = event("a\nb");
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300, 253_402_300_799.999_9] {
            forged.unix_seconds = seconds;
            assert_eq!(forged.to_string().lines().count(), 1);
        }
    }
}
