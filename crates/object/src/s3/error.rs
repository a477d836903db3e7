//! Translates the SDK's errors into the trait's.

use std::error::Error as StdError;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{BuildError, ProvideErrorMetadata, SdkError};
use object_store::Error;
use object_store::path::Path;

use super::advice::{self, Advice, Kind, Stage};
use crate::Fault;
use crate::chain::{causes, chain};

const STORE: &str = "S3";

/// An error that an S3 server, or the connection to it, reported.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct S3Error {
    row: &'static Advice,
    words: String,
    /// The region that the server names.
    region: Option<String>,
    /// The pause that the server asks for.
    pub(crate) after: Option<Duration>,
    /// Whether the answer had neither code nor body, so that the credentials may be the reason as well.
    is_bare: bool,
}

impl S3Error {
    /// The class of the problem.
    pub(crate) fn fault(&self) -> Fault {
        self.row.fault
    }

    /// The program's own reaction.
    pub(crate) fn kind(&self) -> Kind {
        self.row.kind
    }

    /// Whether the server has answered with an error.
    pub(crate) fn is_answer(&self) -> bool {
        self.row.status > 0
    }

    /// Whether there was no answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        self.row.code == advice::SILENT.code
    }

    /// The pause that the server asks for (Retry-After), if any.
    pub(crate) fn after(&self) -> Option<Duration> {
        self.after
    }

    /// The remedy.
    pub(crate) fn advice(&self) -> String {
        match (&self.region, self.row.fault) {
            (Some(region), Fault::WrongRegion) => format!(
                "the bucket is in another region: set AWS_REGION={region}, and AWS_ENDPOINT_URL to the address of that \
                 region if it is set"
            ),
            _ => format!("{}: {}", self.row.means, self.row.advice),
        }
    }

    /// Whether other credentials may help.
    fn concerns_credentials(&self) -> bool {
        let bare = self.is_bare && matches!(self.row.status, 400 | 401 | 403);
        self.row.kind == Kind::Credentials || bare
    }
}

/// Whether the credentials of the request may be the reason for an error of this store.
pub(super) fn concerns_credentials(error: &Error) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<S3Error>())
        .any(S3Error::concerns_credentials)
}

/// Sorts an error of the SDK about the object at `location`.
pub(super) fn from_sdk<E>(location: &Path, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    sorted_sdk(location, error, Asked::Object)
}

/// The same for a listing, which exists even if it is empty.
pub(super) fn from_list<E>(prefix: &Path, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    sorted_sdk(prefix, error, Asked::Listing)
}

/// The same for a request whose answer has no body.
pub(super) fn from_head<E>(location: &Path, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    sorted_sdk(location, error, Asked::Head)
}

fn sorted_sdk<E>(location: &Path, error: SdkError<E, HttpResponse>, asked: Asked) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    let stage = match &error {
        _ if has_cause::<CredentialsError>(&error) => Stage::Credentials,
        SdkError::ServiceError(service) => {
            let raw = service.raw();
            let (status, code) = (raw.status().as_u16(), service.err().code());
            if code.is_some() || status >= 300 {
                let header = |name| raw.headers().get(name);
                let body = raw.body().bytes().unwrap_or_default();
                let named = element(body, "Region").or(header("x-amz-bucket-region"));
                let after = header("retry-after").and_then(|seconds| seconds.parse().ok());
                let words = Words {
                    status,
                    code,
                    message: service.err().message(),
                    after: after.map(Duration::from_secs),
                    region: named,
                    asked,
                    is_page: header("content-type").is_some_and(|kind| kind.contains("html")),
                };
                return sorted(location.as_ref(), words);
            }
            reading(raw)
        }
        SdkError::ResponseError(answer) => reading(answer.raw()),
        SdkError::ConstructionFailure(_) => Stage::Building,
        SdkError::TimeoutError(_) => Stage::TooLate,
        _ => Stage::OnItsWay,
    };
    // The SDK's own text is "dispatch failure"; the reason is in the causes.
    let failed = S3Error {
        row: advice::failure(stage, &error),
        words: chain(&error),
        region: None,
        after: None,
        is_bare: false,
    };
    with_fault(location.as_ref(), failed)
}

/// The stage of an answer of success that cannot be read.
fn reading(answer: &HttpResponse) -> Stage {
    let mut headers = answer.headers().iter();
    let is_s3 = headers.any(|(name, value)| {
        name.starts_with("x-amz-") || (name == "content-type" && value.contains("xml"))
    });
    Stage::Reading { is_s3 }
}

/// The content of an element of a small XML document; the element contains only text.
fn element<'a>(xml: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(xml).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once('<')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (!inner.is_empty() && inner.chars().all(is_name)).then_some(inner)
}

/// The kind of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A request for an object or an upload.
    Object,
    /// A HEAD: its answers have no body, so an S3 server sends no code.
    #[default]
    Head,
    /// A listing, which every S3 server supports.
    Listing,
}

/// The details of a refusal.
#[derive(Clone, Copy, Default)]
pub(crate) struct Words<'a> {
    /// HTTP status; 0 if there is none.
    pub(crate) status: u16,
    pub(crate) code: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
    /// The header `Retry-After`, if it is a number.
    pub(crate) after: Option<Duration>,
    /// The region that the answer names.
    pub(crate) region: Option<&'a str>,
    pub(crate) asked: Asked,
    /// Whether the body is HTML.
    pub(crate) is_page: bool,
}

impl Words<'_> {
    fn row(&self) -> &'static Advice {
        let says = |word| {
            self.message
                .is_some_and(|message| message.to_lowercase().contains(word))
        };
        match self.code {
            Some("AccessDenied") if says("expired") => advice::answer(Some("ExpiredToken"), 400),
            // An access key that is not one leads to this code as well.
            Some("AuthorizationHeaderMalformed") if self.region.is_none() && !says("region") => {
                advice::answer(Some("InvalidAccessKeyId"), 403)
            }
            _ if self.is_elsewhere() => {
                advice::failure(Stage::Reading { is_s3: false }, &std::fmt::Error)
            }
            code => advice::answer(code, self.status),
        }
    }

    /// Whether no S3 server would answer like this. No caller may conclude from it that an object is missing.
    fn is_elsewhere(&self) -> bool {
        let is_missing = |code| advice::answer(code, self.status).fault == Fault::NotFound;
        let refusal = matches!(self.status, 400 | 401 | 403 | 405);
        match (self.asked, self.code) {
            (Asked::Listing, code) if is_missing(code) => true,
            (Asked::Listing | Asked::Object, None) => {
                self.status == 404 || (refusal && self.is_page)
            }
            _ => false,
        }
    }
}

/// Sorts the part of a batch's answer that concerns one object.
pub(super) fn from_code(location: &str, code: Option<&str>, message: Option<&str>) -> Error {
    let words = Words {
        code,
        message,
        ..Words::default()
    };
    sorted(location, words)
}

/// The error for an archived object; `what` is its message.
pub(super) fn archived(location: &Path, what: &str) -> Error {
    let words = Words {
        status: 403,
        code: Some("InvalidObjectState"),
        message: Some(what),
        ..Words::default()
    };
    sorted(location.as_ref(), words)
}

/// The error for a request that the SDK could not even build.
pub(super) fn from_build(error: BuildError) -> Error {
    other(error)
}

/// A generic error with only its text.
pub(super) fn other(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::Generic {
        store: STORE,
        source: source.into(),
    }
}

/// Sorts an answer by its code, or by its status if it has none (answers to HEAD have no body).
pub(crate) fn sorted(location: &str, words: Words<'_>) -> Error {
    let text = match (words.code, words.message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) if words.is_page => format!("HTTP status {}, and a page", words.status),
        (None, _) => format!("HTTP status {}", words.status),
    };
    let error = S3Error {
        row: words.row(),
        words: text,
        region: words.region.map(str::to_owned),
        after: words.after,
        is_bare: words.code.is_none() && !words.is_page,
    };
    with_fault(location, error)
}

fn with_fault(location: &str, error: S3Error) -> Error {
    let path = location.to_owned();
    let fault = error.fault();
    let source = Box::new(error);
    match fault {
        Fault::NotFound => Error::NotFound { path, source },
        Fault::Precondition => Error::Precondition { path, source },
        Fault::NotModified => Error::NotModified { path, source },
        Fault::AlreadyExists => Error::AlreadyExists { path, source },
        Fault::Denied => Error::PermissionDenied { path, source },
        Fault::BadCredentials | Fault::NoCredentials => Error::Unauthenticated { path, source },
        Fault::Unsupported => Error::NotSupported { source },
        // A missing bucket is not a missing object: no caller may conclude that the object is missing.
        _ => Error::Generic {
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

    use crate::sort::Answer;

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
            (507, None, Fault::Full),
            (404, Some("NoSuchBucket"), Fault::BucketMissing),
            (403, Some("InvalidObjectState"), Fault::Archived),
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

    #[test]
    fn a_page_and_a_404_without_a_code_are_of_no_s3_server() {
        let of = |status, has_body, is_page| {
            let words = Words {
                status,
                asked: if has_body { Asked::Object } else { Asked::Head },
                is_page,
                ..Words::default()
            };
            Fault::of(&sorted("a", words))
        };
        assert_eq!(of(404, true, false), Fault::NotS3);
        assert_eq!(of(404, false, false), Fault::NotFound);
        assert_eq!(of(403, true, true), Fault::NotS3);
        assert_eq!(of(403, true, false), Fault::Denied);
        assert_eq!(of(502, true, true), Fault::Transient);
    }

    #[test]
    fn the_region_that_the_server_names_is_in_the_advice() {
        let body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>";
        assert_eq!(element(body, "Region"), Some("eu-central-1"));
        assert_eq!(element(b"<Region></Region>", "Region"), None);
        assert_eq!(element(b"<Region>a b</Region>", "Region"), None);
        assert_eq!(element(b"\xff<Region>a</Region>", "Region"), None);
        let words = Words {
            status: 301,
            region: Some("eu-central-1"),
            ..Words::default()
        };
        let error = sorted("a", words);
        assert!(crate::sort::way_out(&error).contains("AWS_REGION=eu-central-1"));
    }

    #[test]
    fn a_denial_that_speaks_of_expiry_is_about_the_credentials() {
        let denied = |message| {
            let words = Words {
                status: 403,
                code: Some("AccessDenied"),
                message: Some(message),
                ..Words::default()
            };
            sorted("a", words)
        };
        assert!(concerns_credentials(&denied("Request has expired")));
        assert!(!concerns_credentials(&denied("Access Denied")));
        // Answers to HEAD have no body.
        assert!(concerns_credentials(&said(403, None)));
        assert!(concerns_credentials(&said(400, None)));
        assert!(!concerns_credentials(&said(404, None)));
    }
}
