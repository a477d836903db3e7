//! Sorts errors of stores: their [fault](Fault), whether the request is repeated, and the message for people.
//!
//! It looks for known causes: those of [`s3`](crate::s3), of [`error`](crate::error) and of the operating system.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use object_store::Error;

use crate::chain::{causes, chain};
use crate::error::{Hung, OpenError, OutOfRange, Outage};
use crate::fault::Fault;
use crate::s3::{Kind, S3Error};

impl Fault {
    /// Sorts an error of any store that this crate opens.
    pub fn of(error: &Error) -> Fault {
        match error {
            Error::NotFound { .. } => Fault::NotFound,
            Error::AlreadyExists { .. } => Fault::AlreadyExists,
            Error::Precondition { .. } => Fault::Precondition,
            Error::NotModified { .. } => Fault::NotModified,
            Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. } => Fault::Unsupported,
            other => Fault::of_source(other).unwrap_or(match other {
                Error::PermissionDenied { .. } => Fault::Denied,
                Error::Unauthenticated { .. } => Fault::BadCredentials,
                _ => Fault::Transient,
            }),
        }
    }

    /// The fault according to the causes of an error: the S3 store's own, or the operating system's.
    fn of_source(error: &(dyn StdError + 'static)) -> Option<Fault> {
        causes(error).find_map(|cause| {
            if let Some(cause) = cause.downcast_ref::<S3Error>() {
                return Some(cause.fault());
            }
            if cause.is::<Outage>() || cause.is::<Hung>() {
                return Some(Fault::Unreachable);
            }
            if cause.is::<OutOfRange>() {
                return Some(Fault::OutOfRange);
            }
            match cause.downcast_ref::<io::Error>()?.kind() {
                io::ErrorKind::PermissionDenied => Some(Fault::Denied),
                io::ErrorKind::ReadOnlyFilesystem => Some(Fault::ReadOnly),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Fault::Full),
                _ => None,
            }
        })
    }
}

/// The meaning of an error for the state of the store, and for a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The store has answered, and would give the same answer again.
    Final,
    /// The store is overloaded and asks for a pause.
    SlowDown {
        /// Length of the pause, if the store gives one.
        after: Option<Duration>,
    },
    /// There was no answer with any information.
    Failed {
        /// The request has certainly had no effect.
        did_nothing: bool,
    },
}

impl Answer {
    /// Sorts an error.
    pub(crate) fn of(error: &Error) -> Answer {
        if let Some(s3) = s3_error(error) {
            return match s3.kind() {
                Kind::SlowDown => Answer::SlowDown { after: s3.after() },
                Kind::Again => Answer::Failed { did_nothing: false },
                Kind::Untouched => Answer::Failed { did_nothing: true },
                // A refusal, for any reason, is no sign of an outage.
                Kind::Expected
                | Kind::Credentials
                | Kind::Configuration
                | Kind::Permanent
                | Kind::Object => Answer::Final,
            };
        }
        match Fault::of(error).is_transient() {
            true => Answer::Failed { did_nothing: false },
            false => Answer::Final,
        }
    }
}

/// Whether a request was not sent, because the store did not answer earlier ones.
pub(crate) fn is_outage(error: &Error) -> bool {
    causes(error).any(|cause| cause.is::<Outage>())
}

/// The reason why a store refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{advice} ({detail})")]
pub struct Refusal {
    /// The class of the problem.
    pub fault: Fault,
    /// The remedy.
    pub advice: String,
    /// The store's own message.
    pub detail: String,
}

impl Refusal {
    /// An error for people, with the store's message and the remedy, unless the error has them already.
    pub fn added_to(&self, why: &str) -> String {
        let Refusal { advice, detail, .. } = self;
        match (why.contains(advice), why.contains(detail)) {
            (true, _) => why.to_owned(),
            (false, true) => format!("{why}; {advice}"),
            (false, false) => format!("{why}; the last answer was: {detail} ({advice})"),
        }
    }

    pub(crate) fn of(error: &Error) -> Refusal {
        Refusal {
            fault: Fault::of(error),
            advice: way_out(error),
            detail: words(error),
        }
    }
}

fn s3_error(error: &Error) -> Option<&S3Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The remedy for an error, as a text for people.
pub(crate) fn way_out(error: &Error) -> String {
    match s3_error(error) {
        Some(error) => error.advice(),
        None => Fault::of(error).way_out().to_owned(),
    }
}

/// The store's own message, without those of the libraries in between.
pub(crate) fn words(error: &Error) -> String {
    match s3_error(error) {
        Some(error) => error.to_string(),
        None => chain(error),
    }
}

impl OpenError {
    pub(crate) fn store(url: &str, source: &Error) -> OpenError {
        OpenError::Store {
            url: url.to_owned(),
            fault: Fault::of(source),
            advice: way_out(source),
            detail: words(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::generic;

    #[test]
    fn causes_decide_where_the_error_itself_says_nothing() {
        let of = |kind| Fault::of(&generic(io::Error::from(kind)));
        assert_eq!(of(io::ErrorKind::PermissionDenied), Fault::Denied);
        assert_eq!(of(io::ErrorKind::StorageFull), Fault::Full);
        assert_eq!(of(io::ErrorKind::BrokenPipe), Fault::Transient);
        assert!(Fault::Transient.is_transient() && !Fault::Denied.is_transient());
    }

    #[test]
    fn what_the_store_said_is_added_once() {
        let said = Refusal {
            fault: Fault::Full,
            advice: "make room".to_owned(),
            detail: "QuotaExceeded: full".to_owned(),
        };
        assert_eq!(
            said.added_to("no answer within 30 s"),
            "no answer within 30 s; the last answer was: QuotaExceeded: full (make room)"
        );
        let known = "S3: QuotaExceeded: full";
        assert_eq!(said.added_to(known), format!("{known}; make room"));
        let all = said.to_string();
        assert_eq!(said.added_to(&all), all);
    }
}
