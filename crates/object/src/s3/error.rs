//! From the SDK's errors to the trait's.

use std::error::Error as StdError;

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
}

/// Sorts an error of the SDK about the object at `location`.
pub(super) fn from_sdk<E>(location: &Path, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = &error {
        let status = service.raw().status().as_u16();
        let code = service.err().code();
        return sorted(location.as_ref(), status, code, service.err().message());
    }
    let fault = match &error {
        _ if has_cause::<CredentialsError>(&error) => Fault::NoCredentials,
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => Fault::Unreachable,
        _ => Fault::Transient,
    };
    // The SDK's own text says "dispatch failure" and keeps the reason in the causes.
    with_fault(location.as_ref(), fault, chain(&error), false)
}

/// Sorts what the answer to a batch says about one object in it.
pub(super) fn from_code(location: &str, code: Option<&str>, message: Option<&str>) -> Error {
    sorted(location, 0, code, message)
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
fn sorted(location: &str, status: u16, code: Option<&str>, message: Option<&str>) -> Error {
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
        Some("ConditionalRequestConflict" | "OperationAborted" | "SlowDown")
    );
    let text = match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => format!("HTTP status {status}"),
    };
    with_fault(location, fault, text, did_nothing)
}

fn with_fault(location: &str, fault: Fault, message: String, did_nothing: bool) -> Error {
    let path = location.to_owned();
    let source = Box::new(S3Error {
        fault,
        message,
        did_nothing,
    });
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
        | Fault::Unreachable
        | Fault::Transient => Error::Generic {
            store: STORE,
            source,
        },
    }
}

/// Whether the server has said that it did nothing.
pub(super) fn did_nothing(error: &Error) -> bool {
    error
        .source()
        .and_then(|source| source.downcast_ref::<S3Error>())
        .is_some_and(|error| error.did_nothing)
}

fn has_cause<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| error.is::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let error = sorted("a", 404, Some("NoSuchBucket"), None);
        assert!(matches!(error, Error::Generic { .. }));
        assert_eq!(Fault::of(&error), Fault::BucketMissing);
        let error = sorted("a", 404, Some("NoSuchKey"), None);
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
        ] {
            let error = sorted("a", status, code, None);
            assert_eq!(Fault::of(&error), fault, "{status} {code:?}");
        }
    }

    #[test]
    fn only_what_did_nothing_may_be_repeated() {
        let conflict = sorted("a", 409, Some("ConditionalRequestConflict"), None);
        assert!(did_nothing(&conflict));
        assert!(!did_nothing(&sorted("a", 500, Some("InternalError"), None)));
        assert!(!did_nothing(&sorted("a", 412, None, None)));
    }
}
