//! The errors that this crate makes itself: of opening a store, and of requests that it aborts or does not send.
//!
//! Answers of S3 are errors of [`s3`](crate::s3). [`sort`](crate::sort) determines for any error what can be done about
//! it.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use object_store::Error;
use object_store::path::Path;

use crate::Fault;

/// A range begins behind the end of its object.
#[derive(Debug, thiserror::Error)]
#[error("{location} has {size} bytes, but a read starts at byte {start}")]
pub(crate) struct OutOfRange {
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

/// The store has not answered lately, and it is too early to try again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no request is sent while the store does not answer; the last answer was: {why}")]
pub(crate) struct Outage {
    why: String,
}

/// The error for a request that is not sent; `why` is the last answer.
pub(crate) fn outage(why: String) -> Error {
    generic(Outage { why })
}

/// A request, or its body, has made no progress for the allowed time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", limit.as_secs_f32())]
pub(crate) struct Hung {
    limit: Duration,
}

/// The error for a request that was aborted after `limit`.
pub(crate) fn hung(limit: Duration) -> Error {
    generic(Hung { limit })
}

/// The error for a body that was shorter or longer than promised.
pub(crate) fn short(location: &Path, got: u64, promised: u64) -> Error {
    generic(io::Error::other(format!(
        "{location}: the answer has {got} bytes instead of {promised}"
    )))
}

/// The error for a range without a byte in it; such a range is never requested.
pub(crate) fn empty(location: &Path) -> Error {
    let why = format!("{location}: the range is empty");
    generic(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// A generic error.
pub(crate) fn generic(source: impl StdError + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "store",
        source: Box::new(source),
    }
}

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL does not name a known kind of store.
    #[error(
        "{url:?} is not the URL of a store: use file:///folder for a local folder, \
         s3://bucket/prefix for S3, or memory:// for a volume in memory that is lost at the end"
    )]
    UnknownScheme {
        /// The URL that was given.
        url: String,
    },
    /// The URL names a known kind of store, but is not valid.
    #[error("{url:?} cannot be used as a store: {why}")]
    InvalidUrl {
        /// The URL that was given, without secrets.
        url: String,
        /// The defect.
        why: String,
    },
    /// The folder of a `file://` store does not exist, and was not to be created.
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
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file with certificate authorities for servers cannot be used.
    #[error(
        "s3_ca = {}: {why}; name a PEM file with the certificates of the authorities", path.display()
    )]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The defect.
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
    /// The proxy to the server cannot be used.
    #[error(
        "the proxy that {named_by} names cannot be used: {why}; write http://HOST:PORT, or set s3_proxy = \"none\" to \
         go without one"
    )]
    Proxy {
        /// The setting or the environment variable.
        named_by: String,
        /// The defect, without secrets.
        why: String,
    },
    /// The store did not answer as expected.
    #[error("{url}: {advice} ({detail})")]
    Store {
        /// The store, without secrets.
        url: String,
        /// The class of the problem.
        fault: Fault,
        /// The remedy.
        advice: String,
        /// The store's own message.
        detail: String,
    },
}
