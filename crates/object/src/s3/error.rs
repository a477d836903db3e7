//! From the SDK's errors to the trait's.

use std::error::Error as StdError;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{BuildError, ProvideErrorMetadata, SdkError};
use object_store::Error;
use object_store::path::Path;

use crate::Fault;
use crate::error::{causes, chain};

const STORE: &str = "S3";

/// What an S3 server, or the way to it, had to say.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct S3Error {
    /// What it means.
    pub(crate) fault: Fault,
    message: String,
    /// The server refused the request and did nothing, so that it may be repeated.
    pub(crate) did_nothing: bool,
    /// The server does not like the request, and will not like it better later.
    pub(crate) refused: bool,
    /// The server has too much to do; for how long it wants to be left alone, if it says so.
    pub(crate) slow_down: Option<Option<Duration>>,
}

/// Sorts an error of the SDK about the object at `location`.
pub(super) fn from_sdk<E>(location: &Path, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = &error {
        let status = service.raw().status().as_u16();
        let code = service.err().code();
        let after = service.raw().headers().get("retry-after");
        let after = after.and_then(|seconds| seconds.parse().ok());
        let answer = Words {
            status,
            code,
            message: service.err().message(),
            after: after.map(Duration::from_secs),
        };
        return sorted(location.as_ref(), answer);
    }
    let fault = match &error {
        _ if has_cause::<CredentialsError>(&error) => Fault::NoCredentials,
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => Fault::Unreachable,
        _ => Fault::Transient,
    };
    // The SDK's own text says "dispatch failure" and keeps the reason in the causes.
    with_fault(
        location.as_ref(),
        S3Error {
            fault,
            message: chain(&error),
            did_nothing: false,
            refused: false,
            slow_down: None,
        },
    )
}

/// What a server says beside "no".
#[derive(Clone, Copy, Default)]
pub(crate) struct Words<'a> {
    /// HTTP status; 0 where there is none.
    pub(crate) status: u16,
    pub(crate) code: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
    /// The header `Retry-After`, where it is a number.
    pub(crate) after: Option<Duration>,
}

/// Sorts what the answer to a batch says about one object in it.
pub(super) fn from_code(location: &str, code: Option<&str>, message: Option<&str>) -> Error {
    let words = Words {
        code,
        message,
        ..Words::default()
    };
    sorted(location, words)
}

/// A request that the SDK could not even build.
pub(super) fn from_build(error: BuildError) -> Error {
    other(error)
}

/// An error without any meaning but its text.
pub(super) fn other(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::Generic {
        store: STORE,
        source: source.into(),
    }
}

/// Sorts an answer by its code, and by its status where it has none (answers to HEAD have no body).
pub(crate) fn sorted(location: &str, words: Words<'_>) -> Error {
    let Words {
        status,
        code,
        message,
        after,
    } = words;
    let fault = match (code.unwrap_or_default(), status) {
        ("NoSuchBucket", _) => Fault::BucketMissing,
        ("NoSuchKey" | "NotFound" | "NoSuchUpload" | "NoSuchVersion", _) => Fault::NotFound,
        ("PreconditionFailed", _) => Fault::Precondition,
        ("NotModified", _) => Fault::NotModified,
        (
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "AuthorizationHeaderMalformed",
            _,
        ) => Fault::BadCredentials,
        ("PermanentRedirect" | "IllegalLocationConstraintException", _) => Fault::WrongRegion,
        ("AccessDenied" | "AllAccessDisabled" | "AccountProblem", _) => Fault::Denied,
        ("NotImplemented", _) => Fault::Unsupported,
        ("InvalidRange", _) | (_, 416) => Fault::OutOfRange,
        (_, 301 | 307) => Fault::WrongRegion,
        (_, 304) => Fault::NotModified,
        (_, 401) => Fault::BadCredentials,
        (_, 403) => Fault::Denied,
        (_, 404) => Fault::NotFound,
        (_, 412) => Fault::Precondition,
        (_, 501) => Fault::Unsupported,
        _ => Fault::Transient,
    };
    let did_nothing = matches!(
        code,
        Some("ConditionalRequestConflict" | "OperationAborted" | "SlowDown" | "SlowDownWrite")
    );
    let slow_down = matches!(
        code,
        Some(
            "SlowDown"
                | "SlowDownRead"
                | "SlowDownWrite"
                | "TooManyRequests"
                | "RequestLimitExceeded"
        )
    );
    let slow_down = slow_down || matches!(status, 429 | 503);
    // What broke on its way is answered with 400 as well.
    let broken = matches!(
        code,
        Some(
            "RequestTimeout"
                | "IncompleteBody"
                | "BadDigest"
                | "XAmzContentSHA256Mismatch"
                | "XAmzContentChecksumMismatch"
                | "RequestTimeTooSkewed"
        )
    );
    let refused = matches!(status, 400..=499) && !broken && !did_nothing && status != 408;
    let text = match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => format!("HTTP status {status}"),
    };
    with_fault(
        location,
        S3Error {
            fault,
            message: text,
            did_nothing,
            refused,
            slow_down: slow_down.then_some(after),
        },
    )
}

fn with_fault(location: &str, error: S3Error) -> Error {
    let path = location.to_owned();
    let fault = error.fault;
    let source = Box::new(error);
    match fault {
        Fault::NotFound => Error::NotFound { path, source },
        Fault::Precondition => Error::Precondition { path, source },
        Fault::NotModified => Error::NotModified { path, source },
        Fault::AlreadyExists => Error::AlreadyExists { path, source },
        Fault::Denied => Error::PermissionDenied { path, source },
        Fault::BadCredentials | Fault::NoCredentials => Error::Unauthenticated { path, source },
        Fault::Unsupported => Error::NotSupported { source },
        // A missing bucket is not a missing object: nobody may conclude that the object is gone.
        Fault::BucketMissing
        | Fault::WrongRegion
        | Fault::Full
        | Fault::OutOfRange
        | Fault::Unreachable
        | Fault::Transient => Error::Generic {
            store: STORE,
            source,
        },
    }
}

fn has_cause<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| error.is::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::error::Answer;

    fn said(status: u16, code: Option<&str>) -> Error {
        let words = Words {
            status,
            code,
            ..Words::default()
        };
        sorted("a", words)
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let error = said(404, Some("NoSuchBucket"));
        assert!(matches!(error, Error::Generic { .. }));
        assert_eq!(Fault::of(&error), Fault::BucketMissing);
        let error = said(404, Some("NoSuchKey"));
        assert!(matches!(error, Error::NotFound { .. }));
    }

    #[test]
    fn answers_are_sorted_by_what_can_be_done() {
        for (status, code, fault) in [
            (403, None, Fault::Denied),
            (403, Some("AccessDenied"), Fault::Denied),
            (403, Some("SignatureDoesNotMatch"), Fault::BadCredentials),
            (403, Some("InvalidAccessKeyId"), Fault::BadCredentials),
            (404, None, Fault::NotFound),
            (412, None, Fault::Precondition),
            (304, None, Fault::NotModified),
            (301, Some("PermanentRedirect"), Fault::WrongRegion),
            (500, Some("InternalError"), Fault::Transient),
            (503, Some("SlowDown"), Fault::Transient),
            (501, Some("NotImplemented"), Fault::Unsupported),
            (416, Some("InvalidRange"), Fault::OutOfRange),
            (416, None, Fault::OutOfRange),
        ] {
            let error = said(status, code);
            assert_eq!(Fault::of(&error), fault, "{status} {code:?}");
        }
    }

    #[test]
    fn only_what_did_nothing_may_be_repeated() {
        let conflict = said(409, Some("ConditionalRequestConflict"));
        let nothing = Answer::Failed { did_nothing: true };
        assert_eq!(Answer::of(&conflict), nothing);
        let unknown = Answer::Failed { did_nothing: false };
        assert_eq!(Answer::of(&said(500, Some("InternalError"))), unknown);
        assert_eq!(Answer::of(&said(412, None)), Answer::Final);
        assert_eq!(Answer::of(&said(416, Some("InvalidRange"))), Answer::Final);
        assert_eq!(Answer::of(&said(400, Some("BadDigest"))), unknown);
    }

    #[test]
    fn a_server_that_asks_to_slow_down_says_for_how_long() {
        let slow = Answer::SlowDown { after: None };
        assert_eq!(Answer::of(&said(503, Some("SlowDown"))), slow);
        assert_eq!(Answer::of(&said(429, None)), slow);
        let after = Some(Duration::from_secs(7));
        let words = Words {
            status: 503,
            after,
            ..Words::default()
        };
        assert_eq!(Answer::of(&sorted("a", words)), Answer::SlowDown { after });
    }
}
