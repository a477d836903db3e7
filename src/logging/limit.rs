//! Decides which messages are printed: no client can fill the log.
//!
//! ```text
//!   message --> bucket of its kind and client --> bucket of its kind --> printed
//!                     | empty: held                    | empty: held
//!                     +--------------------------------+--> after a minute: "N more like this"
//! ```
//!
//! A kind is a place in the code. Each kind and client may print [`OF_CLIENT`] messages a minute, all clients of a
//! kind together [`OF_KIND`]; bursts may be as large. Held messages are counted, and their number is printed when the
//! minute is over, so that no kind of message is ever lost. Rare messages are always printed: their bucket is full.
//! Time is passed as an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Messages a minute of one kind about one client.
pub(crate) const OF_CLIENT: u32 = 10;

/// Messages a minute of one kind.
pub(crate) const OF_KIND: u32 = 100;

/// Maximum number of pairs of kind and client. Beyond it, only the limit of the kind applies.
pub(super) const CLIENTS: usize = 256;

/// Bytes of a client's name that distinguish it from others.
const CLIENT_BYTES: usize = 64;

/// Bytes of a held message that are kept as a sample.
const SAMPLE_BYTES: usize = 256;

const MINUTE: Duration = Duration::from_secs(60);

/// Minimum interval between sweeps of the table of clients, because a sweep looks at all entries.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The printed and held messages of all kinds, which are identified by `K`.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    kinds: HashMap<K, Bucket>,
    clients: HashMap<(K, String), Bucket>,
    swept: Option<Duration>,
}

/// Messages that were held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held<K> {
    pub(super) kind: K,
    pub(crate) count: u64,
    /// Their client, if all are about one.
    pub(crate) client: Option<String>,
    /// The beginning of the first of them.
    pub(super) sample: String,
}

/// The messages that one kind, or one kind and client, may still print.
#[derive(Debug)]
struct Bucket {
    /// Maximum number of messages per minute, and in a burst.
    limit: u32,
    /// Messages that may be printed now, in thousandths.
    left: u64,
    filled: Duration,
    held: u64,
    /// When the first held one was held.
    since: Duration,
    sample: String,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    pub(crate) fn new() -> Limiter<K> {
        Limiter {
            kinds: HashMap::new(),
            clients: HashMap::new(),
            swept: None,
        }
    }

    /// Whether a message of this kind, about this client, is printed `now`. Otherwise it is counted; if it is the
    /// first held one, its text is taken from `sample`.
    pub(crate) fn admit(
        &mut self,
        kind: &K,
        client: Option<&str>,
        now: Duration,
        sample: impl Fn() -> String,
    ) -> bool {
        if let Some(client) = client
            && let Some(bucket) = self.of_client(kind, cut(client, CLIENT_BYTES), now)
            && !bucket.take(now)
        {
            bucket.hold(now, sample);
            return false;
        }
        let bucket = match self.kinds.get_mut(kind) {
            Some(bucket) => bucket,
            // There are only as many as places in the code.
            None => self
                .kinds
                .entry(kind.clone())
                .or_insert_with(|| Bucket::full(OF_KIND, now)),
        };
        let taken = bucket.take(now);
        if !taken {
            bucket.hold(now, sample);
        }
        taken
    }

    /// The held messages to be reported `now`: those whose first one was held a minute ago. All of them, if `all`.
    pub(crate) fn due(&mut self, now: Duration, all: bool) -> Vec<Held<K>> {
        let mut due = Vec::new();
        let is_due = |bucket: &Bucket| {
            bucket.held > 0 && (all || now.saturating_sub(bucket.since) >= MINUTE)
        };
        for ((kind, client), bucket) in &mut self.clients {
            if is_due(bucket) {
                due.push(bucket.release(kind.clone(), Some(client.clone())));
            }
        }
        for (kind, bucket) in &mut self.kinds {
            if is_due(bucket) {
                due.push(bucket.release(kind.clone(), None));
            }
        }
        due
    }

    fn of_client(&mut self, kind: &K, client: &str, now: Duration) -> Option<&mut Bucket> {
        let key = (kind.clone(), client.to_owned());
        let is_known = self.clients.contains_key(&key);
        if !is_known && self.clients.len() >= CLIENTS {
            self.sweep(now);
        }
        if !is_known && self.clients.len() >= CLIENTS {
            return None;
        }
        let full = || Bucket::full(OF_CLIENT, now);
        Some(self.clients.entry(key).or_insert_with(full))
    }

    /// Removes clients without held messages whose bucket is full again.
    fn sweep(&mut self, now: Duration) {
        let is_due = |swept: Duration| now.saturating_sub(swept) >= SWEEP_EVERY;
        if !self.swept.is_none_or(is_due) {
            return;
        }
        self.swept = Some(now);
        self.clients.retain(|_, bucket| {
            bucket.fill(now);
            bucket.held > 0 || bucket.left < bucket.most()
        });
    }

    #[cfg(test)]
    fn clients(&self) -> usize {
        self.clients.len()
    }
}

impl Bucket {
    fn full(limit: u32, now: Duration) -> Bucket {
        Bucket {
            limit,
            left: u64::from(limit) * 1000,
            filled: now,
            held: 0,
            since: now,
            sample: String::new(),
        }
    }

    fn most(&self) -> u64 {
        u64::from(self.limit) * 1000
    }

    fn fill(&mut self, now: Duration) {
        // Whole thousandths only; a fraction is added later.
        let passed = now.saturating_sub(self.filled);
        let passed_ms = passed.as_secs() * 1000 + u64::from(passed.subsec_millis());
        let comes = passed_ms.saturating_mul(u64::from(self.limit)) / MINUTE.as_secs();
        if comes > 0 {
            self.left = (self.left + comes).min(self.most());
            self.filled = now;
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        match self.left.checked_sub(1000) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn hold(&mut self, now: Duration, sample: impl Fn() -> String) {
        if self.held == 0 {
            self.since = now;
            self.sample = cut(&sample(), SAMPLE_BYTES).to_owned();
        }
        self.held += 1;
    }

    fn release<K>(&mut self, kind: K, client: Option<String>) -> Held<K> {
        Held {
            kind,
            count: std::mem::take(&mut self.held),
            client,
            sample: std::mem::take(&mut self.sample),
        }
    }
}

/// The beginning of a text: whole characters, at most `bytes` bytes.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    // The beginning is a boundary.
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    fn text() -> String {
        "a message".to_owned()
    }

    #[test]
    fn a_client_that_floods_prints_a_few_and_the_rest_is_counted() {
        let mut limiter = Limiter::new();
        let printed = (0..50_000).filter(|_| limiter.admit(&1, Some("10.0.0.1"), AT(5), text));
        assert_eq!(printed.count(), OF_CLIENT as usize);
        assert_eq!(limiter.due(AT(64), false), []);
        let held = Held {
            kind: 1,
            count: 50_000 - u64::from(OF_CLIENT),
            client: Some("10.0.0.1".to_owned()),
            sample: text(),
        };
        assert_eq!(limiter.due(AT(65), false), [held]);
        assert_eq!(limiter.due(AT(500), true), []);
    }

    #[test]
    fn a_client_that_floods_silences_no_other_and_no_other_kind() {
        let mut limiter = Limiter::new();
        while limiter.admit(&1, Some("10.0.0.1"), AT(0), text) {}
        assert!(limiter.admit(&1, Some("10.0.0.2"), AT(0), text));
        assert!(limiter.admit(&2, Some("10.0.0.1"), AT(0), text));
        assert!(limiter.admit(&1, None, AT(0), text));
    }

    #[test]
    fn what_is_rare_is_always_printed() {
        let mut limiter = Limiter::new();
        for minute in 0..10_000 {
            for _ in 0..OF_CLIENT {
                assert!(limiter.admit(&1, Some("10.0.0.1"), AT(60 * minute), text));
            }
        }
        for second in 0..10_000 {
            assert!(limiter.admit(&2, None, AT(second), text), "{second}");
        }
        assert_eq!(limiter.due(AT(1_000_000), true), []);
    }

    #[test]
    fn the_bucket_fills_evenly_however_small_the_steps_are() {
        let mut limiter = Limiter::new();
        let at = Duration::from_micros;
        while limiter.admit(&1, Some("10.0.0.1"), at(0), text) {}
        let printed =
            (0..600_000).filter(|step| limiter.admit(&1, Some("10.0.0.1"), at(100 * step), text));
        // A minute in steps of 100 microseconds.
        assert_eq!(printed.count(), OF_CLIENT as usize - 1);
    }

    #[test]
    fn many_addresses_share_the_limit_of_the_kind_and_take_bounded_memory() {
        let mut limiter = Limiter::new();
        let mut printed = 0;
        for address in 0..100_000_u32 {
            let client = address.to_string();
            printed += u32::from(limiter.admit(&1, Some(&client), AT(0), text));
            assert!(limiter.clients() <= CLIENTS);
        }
        assert_eq!(printed, OF_KIND);
        let held: u64 = limiter
            .due(AT(60), false)
            .iter()
            .map(|held| held.count)
            .sum();
        assert_eq!(held, 100_000 - u64::from(OF_KIND));
        // Clients without recent messages make room for others.
        assert!(limiter.admit(&1, Some("another"), AT(120), text));
        assert_eq!(limiter.clients(), 1);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 5), "abc");
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("aéb", 3), "aé");
        assert_eq!(cut("é", 0), "");
    }
}
