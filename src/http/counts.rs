//! Metrics of admin HTTP itself.

use axum::http::StatusCode;
use forebay_metrics::{Counter, Samples, Source, table};

/// See the module's documentation; the [table] says what each means.
#[derive(Debug, Default)]
pub(super) struct Counts {
    answered: Counter,
    refused: Counter,
    failed: Counter,
    pub(super) delayed: Counter,
    pub(super) connections_refused: Counter,
}

impl Counts {
    /// Counts an answer with this status.
    pub(super) fn answered(&self, status: StatusCode) {
        let counter = match status {
            status if status.is_client_error() => &self.refused,
            status if status.is_server_error() => &self.failed,
            _ => &self.answered,
        };
        counter.add(1);
    }
}

impl Source for Counts {
    fn collect(&self, samples: &mut Samples) {
        let outcomes = [
            ("ok", &self.answered),
            ("refused", &self.refused),
            ("failed", &self.failed),
        ];
        for (outcome, counter) in outcomes {
            samples.counter_of(&table::ADMIN_REQUESTS, outcome, counter);
        }
        samples.counter(&table::ADMIN_DELAYED, &self.delayed);
        samples.counter(&table::ADMIN_CONNECTIONS_REFUSED, &self.connections_refused);
    }
}
