//! The spans of one call. Names of attributes are those of OpenTelemetry where it has one, and begin with `forebay.` otherwise.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanEvents, SpanLinks};

use crate::trace::TracedCall;

/// The results that are the fault of this server or of what is behind it.
const FAILED: [&str; 3] = ["NFS3ERR_IO", "NFS3ERR_SERVERFAULT", "NFS3ERR_JUKEBOX"];

pub(super) fn text(key: &'static str, value: impl Into<String>) -> KeyValue {
    KeyValue::new(key, value.into())
}

fn number(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}

/// The span of a call, and after it those of its waits and requests.
///
/// The record of a call has sums, and not the moments of each wait: these spans begin with the call, and are as long
/// as the sum, but not longer than the call.
pub(super) fn spans_of(
    arrived: SystemTime,
    time: Duration,
    call: &TracedCall,
    ids: &impl IdGenerator,
) -> Vec<SpanData> {
    let trace = ids.new_trace_id();
    let span = |parent, name: String, kind, took: Duration, attributes| SpanData {
        span_context: SpanContext::new(
            trace,
            ids.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: kind,
        name: name.into(),
        start_time: arrived,
        end_time: arrived.checked_add(took.min(time)).unwrap_or(arrived),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("forebay").build(),
    };
    let name = format!("nfs/{}", call.procedure);
    let mut own = span(
        SpanId::INVALID,
        name,
        SpanKind::Server,
        time,
        attributes(call),
    );
    if FAILED.contains(&call.result.as_str()) {
        own.status = Status::error(call.result.clone());
    }
    let parent = own.span_context.span_id();
    let took = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(time);
    let waits = call.waits.iter().map(|wait| {
        let attributes = vec![
            text("forebay.wait", &wait.what),
            KeyValue::new("forebay.seconds", wait.seconds),
        ];
        let name = format!("wait for {}", wait.what);
        span(
            parent,
            name,
            SpanKind::Internal,
            took(wait.seconds),
            attributes,
        )
    });
    let requests = call.requests.iter().map(|own| {
        let attributes = vec![
            text("forebay.method", &own.method),
            number("forebay.requests", own.requests),
            number("forebay.sent_bytes", own.sent_bytes),
            number("forebay.received_bytes", own.received_bytes),
            KeyValue::new("forebay.seconds", own.seconds),
        ];
        let name = format!("bucket {}", own.method);
        span(
            parent,
            name,
            SpanKind::Client,
            took(own.seconds),
            attributes,
        )
    });
    let children: Vec<_> = waits.chain(requests).collect();
    std::iter::once(own).chain(children).collect()
}

/// What the span of a call says about it.
fn attributes(call: &TracedCall) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("rpc.system", "onc_rpc"),
        text("onc_rpc.program.name", "nfs"),
        number("onc_rpc.version", 3),
        text("onc_rpc.procedure.name", &call.procedure),
        text("client.address", &call.client),
        text("forebay.result", &call.result),
    ];
    let to = call.to.as_ref();
    let texts = [
        ("forebay.path", &call.object.path),
        ("forebay.name", &call.object.name),
        ("forebay.to.path", to.map_or(&None, |to| &to.path)),
        ("forebay.to.name", to.map_or(&None, |to| &to.name)),
    ];
    let numbers = [
        ("forebay.uid", call.uid.map(u64::from)),
        ("forebay.fileid", call.object.fileid),
        ("forebay.to.fileid", to.and_then(|to| to.fileid)),
        ("forebay.offset", call.offset),
        ("forebay.size", call.size),
    ];
    let texts = texts.into_iter();
    attributes.extend(texts.filter_map(|(key, value)| Some(text(key, value.as_ref()?))));
    let numbers = numbers.into_iter();
    attributes.extend(numbers.filter_map(|(key, value)| Some(number(key, value?))));
    attributes
}

#[cfg(test)]
mod tests {
    use forebay_nfs::SeenCall;
    use forebay_waits::{For, Requested, Summary};
    use opentelemetry::Value;
    use opentelemetry_sdk::trace::RandomIdGenerator;

    use super::*;
    use crate::trace::call::WithPaths;
    use crate::trace::call::tests::{OneDirectory, seen};

    const MILLISECOND: Duration = Duration::from_millis(1);

    async fn spans(seen: SeenCall) -> Vec<SpanData> {
        let (arrived, time) = (seen.arrived, seen.time);
        let call = WithPaths::of(seen, &OneDirectory).await.call;
        spans_of(arrived, time, &call, &RandomIdGenerator::default())
    }

    fn attribute(span: &SpanData, key: &str) -> Option<Value> {
        let mut own = span.attributes.iter();
        let found = own.find(|own| own.key.as_str() == key);
        found.map(|own| own.value.clone())
    }

    #[tokio::test]
    async fn waits_and_requests_are_children_within_their_call() {
        let call = SeenCall {
            offset: Some(4096),
            time: 100 * MILLISECOND,
            summary: Summary {
                waits: vec![(For::Bucket, 60 * MILLISECOND)],
                // Two at a time: together longer than the call.
                requests: vec![Requested {
                    method: "get",
                    requests: 2,
                    sent_bytes: 0,
                    received_bytes: 1000,
                    time: 120 * MILLISECOND,
                }],
            },
            ..seen("READ")
        };
        let arrived = call.arrived;
        let spans = spans(call).await;
        let [own, wait, get] = spans.as_slice() else {
            panic!("{spans:?}");
        };
        assert_eq!(own.name, "nfs/READ");
        assert_eq!(own.parent_span_id, SpanId::INVALID);
        assert_eq!(attribute(own, "forebay.path"), Some("/dir".into()));
        assert_eq!(attribute(own, "client.address"), Some("192.0.2.7".into()));
        assert_eq!(attribute(own, "forebay.offset"), Some(4096.into()));
        assert_eq!(attribute(own, "forebay.to.path"), None);
        assert_eq!((&*wait.name, &*get.name), ("wait for bucket", "bucket get"));
        assert_eq!(attribute(get, "forebay.requests"), Some(2.into()));
        assert_eq!(attribute(get, "forebay.seconds"), Some(0.12.into()));
        for child in [wait, get] {
            assert_eq!(child.parent_span_id, own.span_context.span_id());
            assert_eq!(child.span_context.trace_id(), own.span_context.trace_id());
            assert_ne!(child.span_context.span_id(), own.span_context.span_id());
        }
        for (span, milliseconds) in [(own, 100), (wait, 60), (get, 100)] {
            assert_eq!(span.start_time, arrived);
            assert_eq!(span.end_time, arrived + milliseconds * MILLISECOND);
        }
    }

    #[tokio::test]
    async fn only_faults_of_the_server_are_errors() {
        for (result, is_error) in [
            ("ok", false),
            ("NFS3ERR_NOENT", false),
            ("NFS3ERR_IO", true),
        ] {
            let call = SeenCall {
                result,
                ..seen("LOOKUP")
            };
            let is = matches!(spans(call).await[0].status, Status::Error { .. });
            assert_eq!(is, is_error, "{result}");
        }
    }
}
