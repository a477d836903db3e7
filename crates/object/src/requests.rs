//! Requests to the store, as they are sent: how many, for which cause, how they end, how long the first byte of the
//! answer takes, and the bytes of bodies.
//!
//! * [`cause`]: the work that a request is made for. It travels with the task that makes the request.
//! * [`http`]: observes the HTTP requests of an S3 server: one observation for each, with all repeats, pages and parts.
//! * [`local`]: observes the calls of the trait, for stores without HTTP.
//!
//! All of this stands below the retry policy, so that each try is counted.

mod cause;
mod http;
mod local;

use std::sync::Arc;
use std::time::Duration;

use forebay_metrics::{Counter, Histogram, Samples, Source, Value, table};
use forebay_waits::Call;

pub use cause::{Cause, CausedStore, caused, current};
pub(crate) use http::ObservedClient;
pub(crate) use local::ObservedStore;

/// Kinds of requests, as the operations of S3 have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GetObject.
    Get,
    /// HeadObject and HeadBucket.
    Head,
    /// PutObject.
    Put,
    /// ListObjectsV2: one page.
    List,
    /// DeleteObject, or DeleteObjects with up to 1,000 names.
    Delete,
    /// CopyObject.
    Copy,
    /// CreateMultipartUpload.
    CreateUpload,
    /// UploadPart.
    PutPart,
    /// CompleteMultipartUpload.
    CompleteUpload,
    /// AbortMultipartUpload.
    AbortUpload,
    /// Any other: RestoreObject, for example.
    Other,
}

impl Method {
    /// All kinds, with their names in metrics.
    pub const ALL: [(Method, &str); 11] = [
        (Method::Get, "get"),
        (Method::Head, "head"),
        (Method::Put, "put"),
        (Method::List, "list"),
        (Method::Delete, "delete"),
        (Method::Copy, "copy"),
        (Method::CreateUpload, "create_upload"),
        (Method::PutPart, "put_part"),
        (Method::CompleteUpload, "complete_upload"),
        (Method::AbortUpload, "abort_upload"),
        (Method::Other, "other"),
    ];

    /// Its name in metrics.
    fn name(self) -> &'static str {
        // They are numbered in order.
        Method::ALL[self as usize].1
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did what it should.
    Ok,
    /// There is no such object.
    Missing,
    /// A condition of the request did not hold: the object exists already, or is another version.
    Condition,
    /// The server refused it for another reason (any other 4xx).
    Refused,
    /// The server asks for fewer requests (429, 503).
    Throttled,
    /// The server failed (any other 5xx).
    Failed,
    /// There was no answer: the server was not reached, closed the connection, did not answer in time, or its caller gave the
    /// request up.
    Unanswered,
}

impl Ended {
    /// All ends, with their names in metrics.
    pub const ALL: [(Ended, &str); 7] = [
        (Ended::Ok, "ok"),
        (Ended::Missing, "missing"),
        (Ended::Condition, "condition"),
        (Ended::Refused, "refused"),
        (Ended::Throttled, "throttled"),
        (Ended::Failed, "failed"),
        (Ended::Unanswered, "unanswered"),
    ];
}

/// Number of causes.
const CAUSES: usize = Cause::ALL.len();

/// One kind of requests for one cause.
#[derive(Debug)]
struct Kind {
    /// In the order of [`Ended::ALL`].
    times: [Histogram; Ended::ALL.len()],
    sent: Counter,
    received: Counter,
}

/// The requests to one store since the start. See the module's documentation.
#[derive(Debug)]
pub struct Requests {
    /// For each method, for each cause.
    kinds: Box<[Kind]>,
}

impl Default for Kind {
    fn default() -> Kind {
        Kind {
            times: [const { Histogram::of_times() }; Ended::ALL.len()],
            sent: Counter::default(),
            received: Counter::default(),
        }
    }
}

impl Default for Requests {
    fn default() -> Requests {
        // One after another: all of them, 150 KiB, are too much for a stack.
        let kinds = std::iter::repeat_with(Kind::default);
        Requests {
            kinds: kinds.take(Method::ALL.len() * CAUSES).collect(),
        }
    }
}

impl Requests {
    /// Counts a request whose answer began, or that was given up, `time` after it was sent. `sent` and `received` are
    /// the bytes of the bodies.
    pub(crate) fn ended(
        &self,
        (method, cause): (Method, Cause),
        ended: Ended,
        time: Duration,
        (sent, received): (u64, u64),
    ) {
        if let Some(kind) = self.kind(method, cause) {
            kind.times[ended as usize].observe_time(time);
            kind.sent.add(sent);
            kind.received.add(received);
        }
    }

    fn kind(&self, method: Method, cause: Cause) -> Option<&Kind> {
        self.kinds.get(method as usize * CAUSES + cause as usize)
    }

    /// The number of requests that ended like this, of all methods and causes.
    pub fn ended_total(&self, ended: Ended) -> u64 {
        let kinds = self.kinds.iter();
        let times = kinds.map(|kind| kind.times[ended as usize].observed().count());
        times.sum()
    }

    /// The requests of each method and cause that there were, with the bytes sent and received in their bodies.
    pub fn totals(&self) -> impl Iterator<Item = Total> {
        let methods = Method::ALL.into_iter().zip(self.kinds.chunks(CAUSES));
        methods.flat_map(|((method, _), causes)| {
            let causes = Cause::ALL.into_iter().zip(causes);
            causes.filter_map(move |((cause, _), kind)| {
                let requests = kind.times.iter().map(|times| times.observed().count());
                let total = Total {
                    method,
                    cause,
                    requests: requests.sum(),
                    sent_bytes: kind.sent.get(),
                    received_bytes: kind.received.get(),
                };
                (total.requests > 0).then_some(total)
            })
        })
    }
}

/// The requests of one method for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Their method.
    pub method: Method,
    /// Their cause.
    pub cause: Cause,
    /// Their number.
    pub requests: u64,
    /// Bytes of their bodies.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
}

impl Source for Requests {
    fn collect(&self, samples: &mut Samples) {
        for ((_, method), causes) in Method::ALL.into_iter().zip(self.kinds.chunks(CAUSES)) {
            for ((_, cause), kind) in Cause::ALL.into_iter().zip(causes) {
                for ((_, ended), times) in Ended::ALL.into_iter().zip(&kind.times) {
                    let observed = times.observed();
                    if observed.count() > 0 {
                        let labels = [method.into(), cause.into(), ended.into()];
                        let value = Value::Histogram(observed);
                        samples.add(&table::STORE_REQUEST_DURATION, labels, value);
                    }
                }
                for (family, bytes) in [
                    (&table::STORE_SENT, kind.sent.get()),
                    (&table::STORE_RECEIVED, kind.received.get()),
                ] {
                    if bytes > 0 {
                        let value = Value::Counter(bytes as f64);
                        samples.add(family, [method.into(), cause.into()], value);
                    }
                }
            }
        }
    }
}

/// What to do with an observation: where to count it, and its kind. Made when the request is sent, in the task that
/// sends it.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    requests: Arc<Requests>,
    kind: (Method, Cause),
    /// The call that causes the request.
    call: Option<Call>,
}

impl Observer {
    /// Observes a request that the current task sends.
    pub(crate) fn new(requests: &Arc<Requests>, method: Method) -> Observer {
        Observer {
            requests: requests.clone(),
            kind: (method, current().unwrap_or(Cause::Other)),
            call: forebay_waits::current(),
        }
    }

    pub(crate) fn ended(&self, ended: Ended, time: Duration, bytes: (u64, u64)) {
        self.requests.ended(self.kind, ended, time, bytes);
        if let Some(call) = &self.call {
            call.requested(self.kind.0.name(), bytes, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_at_the_place_of_its_number() {
        for (place, (method, _)) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, place);
        }
        for (place, (cause, _)) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
        }
        for (place, (ended, _)) in Ended::ALL.into_iter().enumerate() {
            assert_eq!(ended as usize, place);
        }
    }
}
