//! Metrics: as a scrape, and those of clients as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use forebay_metrics::{Samples, Value};
use serde::Serialize;

use super::reply::{self, Refusal};
use super::state::Admin;
use crate::admin::Control;
use crate::metrics::Format;

/// All metrics, in the format that the request accepts.
pub(super) async fn scrape<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let gateway = admin.opened()?;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::accepted(accept);
    let shared = match format {
        Format::Text => &admin.text,
        Format::OpenMetrics => &admin.open_metrics,
    };
    let scrape = shared
        .get(async { gateway.metrics().with(admin.counts.clone()).encode(format) })
        .await;
    let kind = [(CONTENT_TYPE, format.content_type())];
    Ok((kind, (*scrape).clone()).into_response())
}

/// What a client has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ClientCounts {
    /// Its address, or `other`.
    client: String,
    /// NFSv3 calls that were answered.
    calls: f64,
    /// The sum of their times, in seconds.
    call_seconds: f64,
    /// Bytes that came from it.
    received_bytes: f64,
    /// Bytes that went to it.
    sent_bytes: f64,
}

/// The clients with their calls and bytes since the start, those with the most calls first.
pub(super) async fn clients<C: Control>(
    State(admin): State<Arc<Admin<C>>>,
) -> Result<Response, Refusal> {
    let gateway = admin.opened()?;
    let counts = admin
        .clients
        .get(async { counts(&gateway.metrics().samples()) });
    reply::list(&*counts.await, &admin.large)
}

fn counts(samples: &Samples) -> Vec<ClientCounts> {
    let mut clients = BTreeMap::<String, ClientCounts>::new();
    for sample in samples.iter() {
        let (Value::Counter(value), [client]) = (&sample.value, &*sample.labels) else {
            continue;
        };
        if sample.family.labels != ["client"] {
            continue;
        }
        let counts = clients.entry(client.to_string()).or_default();
        match sample.family.name {
            "client_calls" => counts.calls = *value,
            "client_call_seconds" => counts.call_seconds = *value,
            "client_received_bytes" => counts.received_bytes = *value,
            "client_sent_bytes" => counts.sent_bytes = *value,
            _ => {}
        }
    }
    let named = clients
        .into_iter()
        .map(|(client, counts)| ClientCounts { client, ..counts });
    let mut clients: Vec<_> = named.collect();
    clients.sort_by(|one, other| other.calls.total_cmp(&one.calls));
    clients
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::table;

    #[test]
    fn values_of_a_client_are_joined_and_the_busiest_comes_first() {
        let mut samples = Samples::default();
        for (client, calls) in [("10.0.0.1", 3.0), ("10.0.0.2", 5.0)] {
            samples.add(&table::CLIENT_CALLS, [client.into()], Value::Counter(calls));
        }
        let sent = Value::Counter(7.0);
        samples.add(&table::CLIENT_SENT, ["10.0.0.1".into()], sent);
        samples.add(
            &table::NFS_ERRORS,
            ["NFS3ERR_IO".into()],
            Value::Counter(1.0),
        );
        let client = |client: &str, calls, sent_bytes| ClientCounts {
            client: client.to_owned(),
            calls,
            sent_bytes,
            ..ClientCounts::default()
        };
        let expected = [client("10.0.0.2", 5.0, 0.0), client("10.0.0.1", 3.0, 7.0)];
        assert_eq!(counts(&samples), expected);
    }
}
