//! The registry of metrics: what a scrape shows.
//!
//! Crates keep their instruments ([`forebay_metrics`]) and report them as a [`Source`]. This module joins the sources,
//! in the order of the table of metrics, and encodes them.

use std::fmt;
use std::sync::Arc;

use forebay_metrics::{Family, Kind, Sample, Samples, Source, Unit, Value, table};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Registry};

/// Formats of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// The text format of OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that a request with this header `Accept` gets: OpenMetrics if the header names it.
    pub fn accepted(accept: Option<&str>) -> Format {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            Some(_) | None => Format::Text,
        }
    }

    /// The header `Content-Type` of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The registry. Clones share it.
#[derive(Clone)]
pub struct Metrics {
    sources: Sources,
    registry: Arc<Registry>,
}

impl Metrics {
    /// The metrics of these sources.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Metrics {
        let sources = Sources(sources.into());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(sources.clone()));
        Metrics {
            sources,
            registry: Arc::new(registry),
        }
    }

    /// The metrics of these sources and of another one.
    pub fn with(&self, source: Arc<dyn Source>) -> Metrics {
        let sources = self.sources.0.iter().cloned().chain([source]);
        Metrics::new(sources.collect())
    }

    /// All values of now.
    pub fn samples(&self) -> Samples {
        self.sources.samples()
    }

    /// All values of now, as a scrape gets them.
    pub fn encode(&self, format: Format) -> String {
        let mut scrape = String::new();
        let encoded = match format {
            Format::Text => prometheus_text::encode(&mut scrape, &self.registry),
            Format::OpenMetrics => text::encode(&mut scrape, &self.registry),
        };
        // Writing to a string does not fail.
        let _ = encoded;
        scrape
    }
}

#[derive(Clone)]
struct Sources(Arc<[Arc<dyn Source>]>);

impl Sources {
    fn samples(&self) -> Samples {
        Samples::of(self.0.iter().map(|source| &**source))
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sources", self.0.len())
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let samples = self.samples();
        for family in table::FAMILIES {
            let is_of_it = |sample: &&Sample| sample.family.name == family.name;
            let mut values = samples.iter().filter(is_of_it).peekable();
            if values.peek().is_none() {
                continue;
            }
            let (name, unit) = (family.base_name(), unit(family));
            let kind = metric_type(family.kind);
            let mut metric =
                encoder.encode_descriptor(&name, family.meaning, unit.as_ref(), kind)?;
            for value in values {
                encode_sample(&mut metric, value)?;
            }
        }
        Ok(())
    }
}

fn unit(family: &Family) -> Option<registry::Unit> {
    match family.unit {
        Unit::None => None,
        Unit::Seconds => Some(registry::Unit::Seconds),
        Unit::Bytes => Some(registry::Unit::Bytes),
    }
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    }
}

fn encode_sample(metric: &mut MetricEncoder<'_>, sample: &Sample) -> fmt::Result {
    if sample.labels.is_empty() {
        return encode_value(metric, &sample.value);
    }
    let names = sample.family.labels.iter().copied();
    let labels: Vec<_> = names.zip(sample.labels.iter().cloned()).collect();
    encode_value(&mut metric.encode_family(&labels)?, &sample.value)
}

fn encode_value(metric: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Counter(value) => metric.encode_counter::<NoLabelSet, f64, f64>(value, None),
        Value::Gauge(value) => metric.encode_gauge(value),
        Value::Histogram(observed) => {
            let buckets: Vec<_> = observed.buckets().collect();
            let (sum, count) = (observed.sum(), observed.count());
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_metrics::{Counter, Histogram};
    use std::time::Duration;

    #[derive(Default)]
    struct Fake {
        sent: Counter,
    }

    impl Source for Fake {
        fn collect(&self, samples: &mut Samples) {
            samples.counter(&table::NFS_SENT, &self.sent);
            let times = Histogram::of_times();
            times.observe_time(Duration::from_millis(3));
            let labels = ["READ".into(), "ok".into()];
            let value = Value::Histogram(times.observed());
            samples.add(&table::NFS_CALL_DURATION, labels, value);
            let client = ["a\"b\\c\nd".into()];
            samples.add(&table::CLIENT_CALLS, client, Value::Counter(7.0));
        }
    }

    fn encoded(format: Format) -> String {
        let fake = Fake::default();
        fake.sent.add(1 << 40);
        Metrics::new(vec![Arc::new(fake)]).encode(format)
    }

    #[test]
    fn golden_text() {
        let text = encoded(Format::Text);
        for line in [
            "# TYPE forebay_nfs_sent_bytes_total counter\nforebay_nfs_sent_bytes_total 1099511627776",
            "# TYPE forebay_nfs_call_duration_seconds histogram",
            "forebay_nfs_call_duration_seconds_bucket{procedure=\"READ\",outcome=\"ok\",le=\"0.002\"} 0",
            "forebay_nfs_call_duration_seconds_bucket{procedure=\"READ\",outcome=\"ok\",le=\"0.005\"} 1",
            "forebay_nfs_call_duration_seconds_bucket{procedure=\"READ\",outcome=\"ok\",le=\"+Inf\"} 1",
            "forebay_nfs_call_duration_seconds_sum{procedure=\"READ\",outcome=\"ok\"} 0.003",
            "forebay_nfs_call_duration_seconds_count{procedure=\"READ\",outcome=\"ok\"} 1",
            "forebay_client_calls_total{client=\"a\\\"b\\\\c\\nd\"} 7",
        ] {
            assert!(
                text.contains(&format!("{line}\n")) || text.contains(&format!("{line}.0\n")),
                "{line} is not in\n{text}"
            );
        }
        let names = |prefix| text.lines().filter(|line| line.starts_with(prefix)).count();
        assert_eq!(names("# TYPE forebay_nfs_sent_bytes_total "), 1);
    }

    #[test]
    fn golden_open_metrics() {
        let text = encoded(Format::OpenMetrics);
        for line in [
            "# TYPE forebay_nfs_sent_bytes counter",
            "# UNIT forebay_nfs_sent_bytes bytes",
            "# UNIT forebay_nfs_call_duration_seconds seconds",
            "forebay_nfs_call_duration_seconds_bucket{le=\"+Inf\",procedure=\"READ\",outcome=\"ok\"} 1",
        ] {
            assert!(
                text.contains(&format!("{line}\n")),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_header_accept_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("*/*")), Format::Text);
        assert_eq!(Format::accepted(None), Format::Text);
    }
}
