//! Errors of stores, sorted by what the caller can do.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use object_store::Error;
use object_store::path::Path;

use crate::pace::Away;
use crate::s3::{Kind, S3Error};

/// What stands in the way of a request, and so what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such object.
    NotFound,
    /// A create met an object that is there already.
    AlreadyExists,
    /// An update met another version than the one it was meant for.
    Precondition,
    /// A conditional get found nothing new.
    NotModified,
    /// There is no such bucket.
    BucketMissing,
    /// No credentials were found, or those who hand them out did not answer.
    NoCredentials,
    /// The server does not know the credentials, or they have expired.
    BadCredentials,
    /// The credentials, or the user that this process runs as, may not do this.
    Denied,
    /// The bucket is in another region.
    WrongRegion,
    /// The disk is full, or a quota is used up.
    Full,
    /// The file system takes no writes.
    ReadOnly,
    /// The server refuses the request as it is, and would refuse it again.
    Refused,
    /// Something answers that is no S3 server.
    NotS3,
    /// The clocks of this machine and of the server differ.
    Clock,
    /// TLS found no server that it may trust.
    Untrusted,
    /// The object is in an archive, from which it has to be restored first.
    Archived,
    /// A range was asked for that begins behind the object's end.
    OutOfRange,
    /// The store cannot do this at all.
    Unsupported,
    /// The server cannot be reached, or did not answer in time.
    Unreachable,
    /// Anything else: the same request may succeed later.
    Transient,
}

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

    /// What the causes of an error tell: the S3 store's own, or the operating system's.
    fn of_source(error: &(dyn StdError + 'static)) -> Option<Fault> {
        causes(error).find_map(|cause| {
            if let Some(cause) = cause.downcast_ref::<S3Error>() {
                return Some(cause.fault());
            }
            if cause.is::<Away>() || cause.is::<Hung>() {
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

    /// Whether the same request may succeed later without anybody doing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Fault::Unreachable | Fault::Transient)
    }

    /// Whether it is permanent for each request: it stays until somebody acts.
    pub fn is_lasting(self) -> bool {
        match self {
            Fault::BucketMissing
            | Fault::NoCredentials
            | Fault::BadCredentials
            | Fault::Denied
            | Fault::WrongRegion
            | Fault::Full
            | Fault::ReadOnly
            | Fault::Refused
            | Fault::NotS3
            | Fault::Clock
            | Fault::Untrusted => true,
            Fault::NotFound
            | Fault::AlreadyExists
            | Fault::Precondition
            | Fault::NotModified
            | Fault::OutOfRange
            | Fault::Unsupported
            | Fault::Archived
            | Fault::Unreachable
            | Fault::Transient => false,
        }
    }

    /// Whether it is an answer like another one, by which a request learns something.
    pub fn is_expected(self) -> bool {
        matches!(
            self,
            Fault::NotFound | Fault::AlreadyExists | Fault::Precondition | Fault::NotModified
        )
    }

    /// What to do about it, in words for people.
    pub fn way_out(self) -> &'static str {
        match self {
            Fault::NotFound => "the object is not there",
            Fault::AlreadyExists => "the object is there already",
            Fault::Precondition => "the object was changed by someone else",
            Fault::NotModified => "the object has not changed",
            Fault::BucketMissing => {
                "the bucket does not exist: create it, or correct its name or the endpoint"
            }
            Fault::NoCredentials => {
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 AWS_PROFILE"
            }
            Fault::BadCredentials => {
                "the server does not accept the credentials: check the access key, its secret and \
                 whether it has expired"
            }
            Fault::Denied => {
                "permission denied: allow reading, writing, listing and deleting below the \
                 volume's prefix or folder"
            }
            Fault::WrongRegion => "the bucket is in another region: set AWS_REGION to it",
            Fault::Full => "the disk is full: free some space",
            Fault::ReadOnly => {
                "the file system takes no writes: mount it for writing; one that was writable has met a fault of its disk: \
                 look into the kernel's log"
            }
            Fault::Refused => "the server refuses the request",
            Fault::NotS3 => {
                "the answer does not come from an S3 server: correct the endpoint (AWS_ENDPOINT_URL)"
            }
            Fault::Clock => "set this machine's clock, or the server's",
            Fault::Untrusted => {
                "the server's certificate is not trusted: name its authority in s3_ca"
            }
            Fault::Archived => {
                "the object is in an archive class: have it restored, and remove the lifecycle rule that archives objects \
                 below the volume's prefix"
            }
            Fault::OutOfRange => "the object is shorter than it should be: it was damaged or cut",
            Fault::Unsupported => "the store cannot do this",
            Fault::Unreachable => {
                "the server cannot be reached: check the endpoint (AWS_ENDPOINT_URL), the network \
                 and whether the server runs"
            }
            Fault::Transient => "the store failed: try again, and look into its log",
        }
    }
}

/// A range begins behind the end of its object.
#[derive(Debug, thiserror::Error)]
#[error("{location} has {size} bytes, and some from byte {start} on were asked for")]
struct OutOfRange {
    location: Path,
    size: u64,
    start: u64,
}

/// The error for a range that begins behind the end of an object.
pub(crate) fn out_of_range(location: &Path, size: u64, start: u64) -> Error {
    let location = location.clone();
    generic(OutOfRange {
        location,
        size,
        start,
    })
}

/// What an error says about the store, and about asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The store has answered, and would answer the same again.
    Final,
    /// It has too much to do; it wants to be left alone for so long, if it says so.
    SlowDown {
        /// What it asks for.
        after: Option<Duration>,
    },
    /// There was no answer that says anything.
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

/// Whether a request was not sent, because the store did not answer those before it.
pub(crate) fn is_away(error: &Error) -> bool {
    causes(error).any(|cause| cause.is::<Away>())
}

/// The reason why a store refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{advice} ({detail})")]
pub struct Refusal {
    /// The class of the problem.
    pub fault: Fault,
    /// The remedy.
    pub advice: String,
    /// The store's own words.
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

/// The store's own words, without those of the libraries between.
pub(crate) fn words(error: &Error) -> String {
    match s3_error(error) {
        Some(error) => error.to_string(),
        None => chain(error),
    }
}

/// A request, or its body, has not moved for as long as it may.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", limit.as_secs_f32())]
struct Hung {
    limit: Duration,
}

/// The error for what was cut off after `limit`.
pub(crate) fn hung(limit: Duration) -> Error {
    generic(Hung { limit })
}

/// The error for a body that ended before or after its end.
pub(crate) fn short(location: &Path, got: u64, promised: u64) -> Error {
    generic(io::Error::other(format!(
        "{location}: {got} bytes came instead of {promised}"
    )))
}

/// The error for a range without a byte in it, which no store is asked for.
pub(crate) fn empty(location: &Path) -> Error {
    let why = format!("{location}: the range is empty");
    generic(io::Error::new(io::ErrorKind::InvalidInput, why))
}

pub(crate) fn generic(source: impl StdError + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "store",
        source: Box::new(source),
    }
}

/// An error and what caused it, the last cause last.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        (*error).source()
    })
}

/// The text of an error and of all its causes, none of them twice.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL does not begin like one of a store.
    #[error(
        "{url:?} is not the URL of a store: use file:///folder for a local folder, \
         s3://bucket/prefix for S3, or memory:// for nothing that lasts"
    )]
    UnknownScheme {
        /// The URL that was given.
        url: String,
    },
    /// The URL begins well and goes on badly.
    #[error("{url:?} cannot be used as a store: {why}")]
    InvalidUrl {
        /// The URL that was given, without secrets.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The folder of a `file://` store is not there, and was not to be created.
    #[error("the folder {} does not exist: create it, or correct the store's URL", path.display())]
    FolderMissing {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of a `file://` store cannot be used.
    #[error("the folder {} cannot be used: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file with authorities for certificates of servers is of no use.
    #[error(
        "s3_ca = {}: {why}; name a PEM file with the certificates of the authorities", path.display()
    )]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A variable of the environment, or a setting, cannot be part of a request.
    #[error("{name} {why}")]
    Setting {
        /// Its name.
        name: String,
        /// The problem, as a text that follows the name, and the remedy.
        why: String,
    },
    /// The proxy on the way to the server cannot be used.
    #[error(
        "the proxy that {named_by} names cannot be used: {why}; write http://HOST:PORT, or set s3_proxy = \"none\" to \
         go without one"
    )]
    Proxy {
        /// The setting or the environment variable.
        named_by: String,
        /// What is wrong with it, without secrets.
        why: String,
    },
    /// The store did not answer as it should.
    #[error("{url}: {advice} ({detail})")]
    Store {
        /// The store, without secrets.
        url: String,
        /// What stands in the way.
        fault: Fault,
        /// The remedy.
        advice: String,
        /// The store's own words.
        detail: String,
    },
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

    #[test]
    fn causes_are_told_once_each() {
        let inner = generic(io::Error::other("the cause"));
        assert_eq!(chain(&inner), "Generic store error: the cause");
    }
}
