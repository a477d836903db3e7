//! Slow calls as spans, for a collector of OpenTelemetry: one for each call, with a child for each kind of wait and for each
//! method of its requests to the bucket.
//!
//! A span is made when its call is answered, out of the same record as a line of a trace. So calls cost nothing more, and
//! nothing is lost if the collector is away but spans: they are counted and the number is logged.
//!
//! * `span`: the spans of a call.

mod span;

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use forebay_nfs::{CallFilter, CallWatch, Seen, SeenCalls};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{RandomIdGenerator, SpanData, SpanExporter as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::call::WithPaths;
use super::{Paths, ROOM};
use span::spans_of;

/// Spans that are sent in one request, at most; those of a call stay together.
const BATCH: usize = 512;
/// How long a span may wait for others.
const DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take for a request, with all repetitions.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends the calls that take at least `limit`, from now on, to the collector, until the server ends.
pub(super) fn export(
    endpoint: String,
    calls: CallWatch,
    paths: Arc<impl Paths>,
    mut limit: watch::Receiver<Option<Duration>>,
) -> impl Future<Output = ()> {
    // Here, and not at the first poll: no call is missed.
    let mut slow = slow_calls(&calls, &mut limit);
    async move {
        let exporter = match exporter(&endpoint) {
            Ok(exporter) => exporter,
            Err(problem) => {
                tracing::error!("cannot send spans to {endpoint}: {problem}");
                return;
            }
        };
        let ids = RandomIdGenerator::default();
        let mut batch = Batch::new(exporter, endpoint);
        loop {
            tokio::select! {
                changed = limit.changed() => match changed {
                    Ok(()) => slow = slow_calls(&calls, &mut limit),
                    Err(_) => return,
                },
                () = due(batch.due) => batch.send().await,
                seen = next(&mut slow) => match seen {
                    Some(Seen::Call(call)) => {
                        let (arrived, time) = (call.arrived, call.time);
                        let call = WithPaths::of(*call, &*paths).await.call;
                        batch.add(spans_of(arrived, time, &call, &ids)).await;
                    }
                    Some(Seen::Lost(count)) => batch.lose(count),
                    None => return batch.send().await,
                },
            }
        }
    }
}

/// The calls that take at least the current limit; none without one.
fn slow_calls(
    calls: &CallWatch,
    limit: &mut watch::Receiver<Option<Duration>>,
) -> Option<SeenCalls> {
    let at_least = *limit.borrow_and_update();
    at_least.map(|at_least| {
        let filter = CallFilter {
            at_least,
            ..CallFilter::default()
        };
        calls.watch(filter, ROOM)
    })
}

async fn next(calls: &mut Option<SeenCalls>) -> Option<Seen> {
    match calls {
        Some(calls) => calls.next().await,
        None => pending().await,
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The way to the collector.
///
/// # Errors
/// What is wrong with the endpoint, or with the variables of OpenTelemetry in the environment.
fn exporter(endpoint: &str) -> Result<SpanExporter, String> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .with_timeout(LIMIT)
        .build();
    let mut exporter = exporter.map_err(|error| error.to_string())?;
    let resource = Resource::builder()
        .with_service_name("forebay")
        .with_attribute(span::text("service.version", env!("CARGO_PKG_VERSION")));
    exporter.set_resource(&resource.build());
    Ok(exporter)
}

/// Spans that wait for others.
struct Batch {
    exporter: SpanExporter,
    endpoint: String,
    spans: Vec<SpanData>,
    /// When they are sent at the latest.
    due: Option<Instant>,
    /// Calls that came too fast, since the last report.
    lost: u64,
}

impl Batch {
    fn new(exporter: SpanExporter, endpoint: String) -> Batch {
        Batch {
            exporter,
            endpoint,
            spans: Vec::new(),
            due: None,
            lost: 0,
        }
    }

    async fn add(&mut self, spans: Vec<SpanData>) {
        if self.spans.len() + spans.len() > BATCH {
            self.send().await;
        }
        self.spans.extend(spans);
        self.due.get_or_insert_with(|| Instant::now() + DELAY);
    }

    fn lose(&mut self, count: u64) {
        self.lost += count;
        self.due.get_or_insert_with(|| Instant::now() + DELAY);
    }

    async fn send(&mut self) {
        self.due = None;
        let spans = std::mem::take(&mut self.spans);
        let count = spans.len();
        if count > 0
            && let Err(error) = self.exporter.export(spans).await
        {
            let endpoint = &self.endpoint;
            tracing::warn!("{count} spans are lost, since {endpoint} does not take them: {error}");
        }
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            tracing::warn!("{lost} slow calls have no span: they came too fast");
        }
    }
}
