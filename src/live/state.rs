//! What is needed of the values of one moment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use forebay_metrics::{Observed, Sample, Samples, Value, table};
use forebay_nfs::BusyFile;

use super::answer::Limits;
use crate::health::State as HealthState;

/// The value of a label.
pub(super) type Label = Cow<'static, str>;

/// Times, and how many of them were errors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) observed: Observed,
    pub(super) errors: f64,
}

/// What one client has done since it is counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Client {
    pub(super) calls: f64,
    pub(super) seconds: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
}

/// The body bytes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bodies {
    pub(super) sent: f64,
    pub(super) received: f64,
}

/// Fill levels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Levels {
    pub(super) log: f64,
    pub(super) memory: f64,
    pub(super) names: f64,
    pub(super) disk_cache: f64,
    pub(super) dirty: f64,
    pub(super) unpublished: f64,
    pub(super) unpublished_age: f64,
    pub(super) health: f64,
}

impl Levels {
    pub(super) fn health(&self) -> HealthState {
        let states = [
            HealthState::Healthy,
            HealthState::Degraded,
            HealthState::Failing,
        ];
        let is_it = |state: &HealthState| f64::from(state.code()) == self.health;
        states
            .into_iter()
            .find(is_it)
            .unwrap_or(HealthState::Failing)
    }
}

/// The values of one moment. Counters are sums since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Since some beginning; never goes back.
    pub(super) at: Duration,
    /// The same in seconds since 1970.
    pub(super) time: f64,
    pub(super) procedures: BTreeMap<Label, Times>,
    /// By what calls waited for.
    pub(super) waits: BTreeMap<Label, Times>,
    /// By method and cause.
    pub(super) requests: BTreeMap<(Label, Label), Times>,
    /// By method and cause.
    pub(super) bodies: BTreeMap<(Label, Label), Bodies>,
    pub(super) clients: BTreeMap<Label, Client>,
    pub(super) read: f64,
    pub(super) written: f64,
    /// Calls with an error that an operator may want to know.
    pub(super) errors: f64,
    /// The files with the most reads and writes, by inode number and place.
    pub(super) files: BTreeMap<(u64, u64), BusyFile>,
    pub(super) levels: Levels,
    pub(super) limits: Limits,
}

impl State {
    /// The state with these values.
    pub(super) fn of(
        samples: &Samples,
        files: impl IntoIterator<Item = BusyFile>,
        at: Duration,
        time: f64,
    ) -> State {
        let files = files.into_iter();
        let mut state = State {
            at,
            time,
            files: files
                .map(|file| ((file.inode.0, file.place), file))
                .collect(),
            ..State::default()
        };
        for sample in samples.iter() {
            state.take(sample);
        }
        state
    }

    fn take(&mut self, sample: &Sample) {
        match &sample.value {
            Value::Histogram(observed) => self.take_times(sample, observed),
            Value::Counter(value) => self.take_counter(sample, *value),
            Value::Gauge(value) => self.take_gauge(sample, *value),
        }
    }

    fn take_times(&mut self, sample: &Sample, observed: &Observed) {
        let family = sample.family;
        match &sample.labels[..] {
            [procedure, outcome] if family == &table::NFS_CALL_DURATION => {
                let is_error = matches!(&**outcome, "error" | "refused");
                if outcome == "refused" {
                    self.errors += observed.count() as f64;
                }
                add(&mut self.procedures, procedure.clone(), observed, is_error);
            }
            [what] if family == &table::NFS_CALL_WAIT => {
                add(&mut self.waits, what.clone(), observed, false);
            }
            [method, cause, outcome] if family == &table::STORE_REQUEST_DURATION => {
                let is_error = !matches!(&**outcome, "ok" | "missing" | "condition");
                let key = (method.clone(), cause.clone());
                add(&mut self.requests, key, observed, is_error);
            }
            _ => {}
        }
    }

    fn take_counter(&mut self, sample: &Sample, value: f64) {
        let family = sample.family;
        match &sample.labels[..] {
            [] if family == &table::NFS_READ => self.read = value,
            [] if family == &table::NFS_WRITTEN => self.written = value,
            [status]
                if family == &table::NFS_ERRORS
                    && !matches!(&**status, "NFS3ERR_NOENT" | "NFS3ERR_JUKEBOX") =>
            {
                self.errors += value;
            }
            [method, cause] if family.labels == ["method", "cause"] => {
                let bodies = self
                    .bodies
                    .entry((method.clone(), cause.clone()))
                    .or_default();
                if family == &table::STORE_SENT {
                    bodies.sent = value;
                } else if family == &table::STORE_RECEIVED {
                    bodies.received = value;
                }
            }
            [client] if family.labels == ["client"] => {
                let client = self.clients.entry(client.clone()).or_default();
                for (of, field) in [
                    (&table::CLIENT_CALLS, &mut client.calls),
                    (&table::CLIENT_CALL_SECONDS, &mut client.seconds),
                    (&table::CLIENT_RECEIVED, &mut client.received),
                    (&table::CLIENT_SENT, &mut client.sent),
                ] {
                    if family == of {
                        *field = value;
                    }
                }
            }
            _ => {}
        }
    }

    fn take_gauge(&mut self, sample: &Sample, value: f64) {
        let (family, levels, limits) = (sample.family, &mut self.levels, &mut self.limits);
        match &sample.labels[..] {
            [owner] if family == &table::MEMORY => match &**owner {
                "names" => levels.names = value,
                "blocks" | "packs" | "admitted" => levels.memory += value,
                _ => {}
            },
            [owner] if family == &table::MEMORY_LIMIT => match &**owner {
                "names" => limits.names_bytes = Some(value),
                "blocks" => limits.memory_bytes = Some(value),
                _ => {}
            },
            [] => {
                for (of, field) in [
                    (&table::LOG, &mut levels.log),
                    (&table::DISK_CACHE, &mut levels.disk_cache),
                    (&table::DIRTY, &mut levels.dirty),
                    (&table::UNPUBLISHED, &mut levels.unpublished),
                    (&table::UNPUBLISHED_AGE, &mut levels.unpublished_age),
                    (&table::HEALTH, &mut levels.health),
                ] {
                    if family == of {
                        *field = value;
                    }
                }
                for (of, field) in [
                    (&table::LOG_LIMIT, &mut limits.log_bytes),
                    (&table::DISK_CACHE_LIMIT, &mut limits.disk_cache_bytes),
                ] {
                    if family == of {
                        *field = Some(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Adds the observations of one outcome to those of the others.
fn add<K: Ord>(times: &mut BTreeMap<K, Times>, key: K, observed: &Observed, is_error: bool) {
    let errors = if is_error {
        observed.count() as f64
    } else {
        0.0
    };
    times
        .entry(key)
        .and_modify(|times| {
            times.observed.add(observed);
            times.errors += errors;
        })
        .or_insert_with(|| Times {
            observed: observed.clone(),
            errors,
        });
}
