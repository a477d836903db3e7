//! Calls of clients as operators see them: in `forebay trace`, and those that are slow in the log.
//!
//! ```text
//!   nfs: CallWatch -> a bounded channel for each watcher -> paths -> the client of the control socket
//!                                                   `----> SlowCalls -> one line in the log, at a bounded rate
//!                                                                  `-> spans
//! ```
//!
//! * `call`: a call with its paths, as JSON and as a line of text.
//! * `filter`: which calls a trace shows.
//! * `slow`: the log of slow calls.
//! * `spans`: slow calls as spans for a collector of OpenTelemetry, with the feature `otlp`.

mod call;
mod filter;
mod slow;
#[cfg(feature = "otlp")]
mod spans;

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

pub use call::{TracedCall, TracedName, TracedRequests, TracedWait};
pub use filter::{TraceRequest, is_below};
pub(crate) use slow::SlowCalls;

/// Calls that are kept for a watcher that does not take them, at most: some 400 KiB with names of usual lengths.
pub(crate) const ROOM: usize = 1024;

/// How long the path of one object may be looked for. It is in memory, unless nobody has used its directory for long.
const PATH_LIMIT: Duration = Duration::from_millis(200);

/// Finds paths of files and directories by their numbers.
pub trait Paths: Send + Sync {
    /// A path of the file or directory from the root of the volume, which is empty itself; `None` if it has none, or if it
    /// is not found.
    fn path_of(&self, fileid: u64) -> impl Future<Output = Option<Vec<u8>>> + Send;
}

/// A path, unless that takes too long: the bucket may be away.
async fn soon(paths: &impl Paths, fileid: u64) -> Option<Vec<u8>> {
    timeout(PATH_LIMIT, paths.path_of(fileid)).await.ok()?
}
