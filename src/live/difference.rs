//! Points and tables from two states. Time is in the states; nothing here reads a clock.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use forebay_metrics::Observed;
use forebay_nfs::BusyFile;

use super::answer::{
    BucketFlow, ClientRow, FileRow, Flow, Live, Point, ProcedureRow, RequestRow, WaitRow,
};
use super::state::{Client, State, Times};

/// Clients in an answer.
const CLIENTS: usize = 100;

/// Files in an answer.
const FILES: usize = 20;

/// The label of all clients that are not counted apart.
const OTHER: &str = "other";

/// The shortest interval that rates are computed over, in seconds.
const SHORTEST: f64 = 0.001;

/// The difference between two states of one process.
pub(super) struct Difference<'a> {
    before: &'a State,
    after: &'a State,
    seconds: f64,
}

impl<'a> Difference<'a> {
    pub(super) fn new(before: &'a State, after: &'a State) -> Difference<'a> {
        let time = after.at.saturating_sub(before.at);
        Difference {
            before,
            after,
            seconds: time.as_secs_f64().max(SHORTEST),
        }
    }

    /// The point of this interval.
    pub(super) fn point(&self, sequence: u64) -> Point {
        let flow = |is_of_it: fn(&str) -> bool, bytes: Option<f64>| {
            let of_it = self.procedures().filter(|(name, _)| is_of_it(name));
            let observed = joined(of_it.map(|(_, times)| times.observed));
            let calls = observed.as_ref().map_or(0, Observed::count) as f64;
            Flow {
                calls_per_second: self.rate(calls),
                bytes_per_second: bytes.map(|bytes| self.rate(bytes)),
                median_seconds: quantile(observed.as_ref(), 0.5),
                p99_seconds: quantile(observed.as_ref(), 0.99),
            }
        };
        let (before, after) = (self.before, self.after);
        let levels = after.levels;
        Point {
            sequence,
            time: after.time,
            reads: flow(is_read, Some(grown(before.read, after.read))),
            writes: flow(is_write, Some(grown(before.written, after.written))),
            names: flow(is_name, None),
            errors_per_second: self.rate(grown(before.errors, after.errors)),
            bucket: self.bucket(),
            log_bytes: levels.log,
            memory_bytes: levels.memory,
            names_bytes: levels.names,
            disk_cache_bytes: levels.disk_cache,
            dirty_bytes: levels.dirty,
            unpublished_bytes: levels.unpublished,
            unpublished_age_seconds: rounded(levels.unpublished_age, 1e3),
            health: levels.health(),
        }
    }

    /// Fills in the tables.
    pub(super) fn tables(&self, live: &mut Live) {
        live.clients = self.clients();
        let procedures = self.procedures().map(|(name, times)| ProcedureRow {
            procedure: name.to_owned(),
            calls_per_second: self.rate(times.observed.count() as f64),
            errors_per_second: self.rate(times.errors),
            median_seconds: quantile(Some(&times.observed), 0.5),
            p99_seconds: quantile(Some(&times.observed), 0.99),
        });
        live.procedures = procedures.collect();
        live.procedures
            .sort_by(|one, other| descending(one.calls_per_second, other.calls_per_second));
        live.waits = self.waits();
        live.requests = self.requests();
        live.files = self.files();
    }

    /// The procedures that were called.
    fn procedures(&self) -> impl Iterator<Item = (&'a str, Times)> {
        let called = between(&self.before.procedures, &self.after.procedures);
        called.map(|(name, times)| (&**name, times))
    }

    fn bucket(&self) -> BucketFlow {
        let requests = between(&self.before.requests, &self.after.requests);
        let (mut all, mut errors) = (Vec::new(), 0.0);
        for (_, times) in requests {
            errors += times.errors;
            all.push(times.observed);
        }
        let all = joined(all);
        let (mut sent, mut received) = (0.0, 0.0);
        for (key, after) in &self.after.bodies {
            let before = self.before.bodies.get(key).copied().unwrap_or_default();
            sent += grown(before.sent, after.sent);
            received += grown(before.received, after.received);
        }
        BucketFlow {
            requests_per_second: self.rate(all.as_ref().map_or(0, Observed::count) as f64),
            errors_per_second: self.rate(errors),
            get_bytes_per_second: self.rate(received),
            put_bytes_per_second: self.rate(sent),
            p99_seconds: quantile(all.as_ref(), 0.99),
        }
    }

    fn waits(&self) -> Vec<WaitRow> {
        let waits = between(&self.before.waits, &self.after.waits);
        let mut rows: Vec<_> = waits
            .map(|(what, times)| WaitRow {
                what: what.to_string(),
                calls_per_second: self.rate(times.observed.count() as f64),
                waited_seconds_per_second: rounded(times.observed.sum() / self.seconds, 1e7),
                median_seconds: quantile(Some(&times.observed), 0.5),
                p99_seconds: quantile(Some(&times.observed), 0.99),
            })
            .collect();
        rows.sort_by(|one, other| {
            descending(
                one.waited_seconds_per_second,
                other.waited_seconds_per_second,
            )
        });
        rows
    }

    fn requests(&self) -> Vec<RequestRow> {
        let requests = between(&self.before.requests, &self.after.requests);
        let mut rows: Vec<_> = requests
            .map(|(key, times)| {
                let before = self.before.bodies.get(key).copied().unwrap_or_default();
                let after = self.after.bodies.get(key).copied().unwrap_or_default();
                let bytes = grown(before.sent, after.sent) + grown(before.received, after.received);
                RequestRow {
                    method: key.0.to_string(),
                    cause: key.1.to_string(),
                    requests_per_second: self.rate(times.observed.count() as f64),
                    errors_per_second: self.rate(times.errors),
                    bytes_per_second: self.rate(bytes),
                    median_seconds: quantile(Some(&times.observed), 0.5),
                    p99_seconds: quantile(Some(&times.observed), 0.99),
                }
            })
            .collect();
        rows.sort_by(|one, other| descending(one.requests_per_second, other.requests_per_second));
        rows
    }

    fn clients(&self) -> Vec<ClientRow> {
        // The counts of a client that is not counted apart any more have become those of the others.
        let mut given_up = Client::default();
        for (client, counts) in &self.before.clients {
            if !self.after.clients.contains_key(client) {
                given_up.calls += counts.calls;
                given_up.seconds += counts.seconds;
                given_up.received += counts.received;
                given_up.sent += counts.sent;
            }
        }
        let mut rows = Vec::new();
        for (client, after) in &self.after.clients {
            let mut before = self.before.clients.get(client).copied().unwrap_or_default();
            if client == OTHER {
                before.calls = after.calls.min(before.calls + given_up.calls);
                before.seconds = after.seconds.min(before.seconds + given_up.seconds);
                before.received = after.received.min(before.received + given_up.received);
                before.sent = after.sent.min(before.sent + given_up.sent);
            }
            let calls = grown(before.calls, after.calls);
            let (sent, received) = (
                grown(before.sent, after.sent),
                grown(before.received, after.received),
            );
            if calls + sent + received == 0.0 {
                continue;
            }
            let seconds = grown(before.seconds, after.seconds);
            rows.push(ClientRow {
                address: client.to_string(),
                calls_per_second: self.rate(calls),
                read_bytes_per_second: self.rate(sent),
                written_bytes_per_second: self.rate(received),
                mean_seconds: (calls > 0.0).then(|| rounded(seconds / calls, 1e7)),
            });
        }
        rows.sort_by(|one, other| descending(one.calls_per_second, other.calls_per_second));
        rows.truncate(CLIENTS);
        rows
    }

    /// The busiest files, without their paths.
    fn files(&self) -> Vec<FileRow> {
        let mut rows = Vec::new();
        for (key, after) in &self.after.files {
            let before = self.before.files.get(key);
            let rate = |count: fn(&BusyFile) -> u64| {
                self.rate(grown(before.map_or(0, count) as f64, count(after) as f64))
            };
            let row = FileRow {
                path: None,
                fileid: after.inode.0,
                calls_per_second: rate(|file| file.calls),
                read_bytes_per_second: rate(|file| file.read_bytes),
                written_bytes_per_second: rate(|file| file.written_bytes),
            };
            if row.calls_per_second > 0.0 {
                rows.push(row);
            }
        }
        let busy = |row: &FileRow| {
            let bytes = row.read_bytes_per_second + row.written_bytes_per_second;
            bytes + row.calls_per_second
        };
        rows.sort_by(|one, other| descending(busy(one), busy(other)));
        rows.truncate(FILES);
        rows
    }

    fn rate(&self, amount: f64) -> f64 {
        rounded(amount / self.seconds, 1e3)
    }
}

fn is_read(procedure: &str) -> bool {
    procedure == "READ"
}

fn is_write(procedure: &str) -> bool {
    matches!(procedure, "WRITE" | "COMMIT")
}

fn is_name(procedure: &str) -> bool {
    !is_read(procedure) && !is_write(procedure) && procedure != "NULL"
}

/// What was observed between two states, where anything was.
fn between<'a, K: Ord>(
    before: &'a BTreeMap<K, Times>,
    after: &'a BTreeMap<K, Times>,
) -> impl Iterator<Item = (&'a K, Times)> {
    after.iter().filter_map(|(key, after)| {
        let times = match before.get(key) {
            None => after.clone(),
            Some(before) => Times {
                observed: after.observed.since(&before.observed),
                errors: grown(before.errors, after.errors),
            },
        };
        (times.observed.count() > 0).then_some((key, times))
    })
}

/// By how much a counter has grown; all of it if it was reset.
pub(super) fn grown(before: f64, after: f64) -> f64 {
    if after < before {
        after
    } else {
        after - before
    }
}

fn joined(all: impl IntoIterator<Item = Observed>) -> Option<Observed> {
    all.into_iter().reduce(|mut joined, other| {
        joined.add(&other);
        joined
    })
}

fn quantile(observed: Option<&Observed>, part: f64) -> Option<f64> {
    Some(rounded(observed?.quantile(part)?, 1e7))
}

/// Rounded to one part in `parts`, so that answers stay short.
pub(super) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

pub(super) fn descending(one: f64, other: f64) -> Ordering {
    other.total_cmp(&one)
}
