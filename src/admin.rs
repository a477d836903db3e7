//! The control socket: connects `forebay flush`, `status`, `exports`, `events`, `trace`, `top`, `quota`, `snapshot`, `restore`, `undelete`, `scrub` and `gc` with a
//! running gateway.
//!
//! A gateway listens on a Unix socket in its `data_dir`. A connection carries one request and one
//! reply, each one line of JSON; to a client that follows events, or traces calls, a line for each of them:
//!
//! ```text
//! {"command":"status"}\n      ->      {"status":{"volume":"...", ...}}\n
//! {"command":"exports"}\n     ->      {"exports":[{"path":"/", ...}]}\n
//! {"command":"flush"}\n       ->      {"flush":{"published_lsn":4096, ...}}\n
//! {"command":{"flushpath":"/a"}}\n -> the same, for a file or tree
//! {"command":{"where":"/a"}}\n     -> {"seen":4711}\n ... {"where":{"in_bucket":true, ...}}\n
//! {"command":{"quota":"list"}}\n  ->      {"quota":[{"path":"/home", ...}]}\n
//! {"command":{"scrub":"status"}}\n -> {"scrub":{"packs":12, ...}}\n
//! {"command":{"gc":"rewrite"}}\n   -> {"gc":{"running":true, ...}}\n
//! {"command":{"live":{"after":0}}}\n -> {"live":{"interval_seconds":2.0, ...}}\n
//! {"command":{"events":{"after":0}}}\n -> {"events":[{"number":1, ...}]}\n
//! {"command":{"events":{"after":0,"follow":true}}}\n -> {"event":{"number":1, ...}}\n{"lost":12}\n{"event": ...
//! {"command":{"trace":{}}}\n      -> "tracing"\n{"call":{"procedure":"READ", ...}}\n{"lost":12}\n{"call": ...
//! anything else               ->      {"error":"..."}\n
//! ```
//!
//! Only the user that runs the gateway, and root, may send requests. Lines, waiting times and the number of
//! connections are bounded, so that a client that sends nonsense, or nothing, or never reads, costs the gateway only
//! a socket for some seconds.
//!
//! A lock file lies next to the socket. The process that holds its lock runs the gateway of this folder, so two
//! gateways never share one, and a socket that a killed gateway has left behind is recognised.

mod client;
mod events;
mod exports;
mod folder_lock;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gc;
mod live;
mod message;
mod metadata_cache;
mod path;
mod quota;
mod restore;
mod scrub;
mod server;
mod snapshot;
mod space;
mod status;
mod trace;
mod trash;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_nfs::CallWatch;

use tokio::sync::mpsc;

use crate::live::Live;
use crate::metrics::Metrics;
use crate::trace::Paths;

pub use client::{
    ClientError, events, exports, flush, follow_events, gc, live, quota, restore, scrub, snapshot,
    status, trace, trash, whereabouts,
};
pub use events::{EventsRequest, Followed};
pub use exports::ExportStatus;
pub use folder_lock::FolderError;
pub use gc::{GcOrder, GcReport};
pub use live::LiveRequest;
pub use metadata_cache::MetadataCache;
pub use path::{PathRefusal, UnknownPart, VolumePath, WhereReport};
pub use quota::{QuotaLimit, QuotaReport, QuotaRequest, QuotaTable};
pub use restore::{RestoreOrder, RestoreReport};
pub use scrub::{
    DamageState, DamagedFrame, LastScrub, ScrubReport, ScrubRequest, ScrubRound, ScrubbedPack,
};
pub use server::Server;
pub(crate) use snapshot::utc;
pub use snapshot::{SnapshotReport, SnapshotRequest, SnapshotTable};
pub(crate) use space::percent_in_use;
pub use space::{KnownSpace, Space};
pub use status::{
    ArchivedLogs, CheckpointState, Compression, Deduplication, DiskCache, FlushReport, LogError,
    RequestTotal, Status, StoreError,
};
pub use trace::Traced;
pub use trash::{TRASH_HEAD, TrashReport, TrashRequest, TrashRow, TrashTable};

/// The operations of a gateway that the control socket and admin HTTP need.
pub trait Control: Paths + 'static {
    /// Publishes everything that has been written so far; returns when the bucket has it. Waits without a limit.
    /// Dropping the future ends the waiting, not the publishing.
    fn flush(&self) -> impl Future<Output = Result<FlushReport, String>> + Send;

    /// The same for the file or tree at a path of the volume; at once if the bucket has it.
    fn flush_path(
        &self,
        path: VolumePath,
    ) -> impl Future<Output = Result<FlushReport, PathRefusal>> + Send;

    /// Where the file or tree at a path of the volume is. Adds each object to `seen` that it has come to. Dropping the
    /// future ends the walk.
    fn whereabouts(
        &self,
        path: VolumePath,
        seen: Arc<AtomicU64>,
    ) -> impl Future<Output = Result<WhereReport, PathRefusal>> + Send;

    /// The status of the gateway. Answers at once, whatever state bucket and log are in.
    fn status(&self) -> impl Future<Output = Status> + Send;

    /// Executes a request about quotas; returns the quotas that it concerned. A change is stable when this returns.
    fn quota(
        &self,
        request: QuotaRequest,
    ) -> impl Future<Output = Result<Vec<QuotaReport>, String>> + Send;

    /// Puts a file or directory of a snapshot back.
    fn restore(
        &self,
        order: RestoreOrder,
    ) -> impl Future<Output = Result<RestoreReport, String>> + Send;

    /// Number of objects that the restore that runs has made so far.
    fn restored_so_far(&self) -> u64;

    /// Executes a request about snapshots; returns those that it concerned. A snapshot is stable when this returns.
    fn snapshot(
        &self,
        request: SnapshotRequest,
    ) -> impl Future<Output = Result<Vec<SnapshotReport>, String>> + Send;

    /// Executes a request about the trash; sends the objects that it concerns, as far as they are many, and returns the rest. What is brought
    /// back is stable when this returns.
    fn trash(
        &self,
        request: TrashRequest,
        some: mpsc::Sender<Vec<TrashRow>>,
    ) -> impl Future<Output = Result<TrashReport, String>> + Send;

    /// Executes a request about the scrub; returns the state of the scrub after it.
    fn scrub(
        &self,
        request: ScrubRequest,
    ) -> impl Future<Output = Result<ScrubReport, String>> + Send;

    /// Executes a request about packs that are mostly dead; returns the progress. Answers at once.
    fn gc(&self, order: GcOrder) -> impl Future<Output = Result<GcReport, String>> + Send;

    /// The rules for the next call of each client. Answers at once.
    fn exports(&self) -> impl Future<Output = Vec<ExportStatus>> + Send;

    /// The last ten minutes: the points with a sequence number above `after`, and tables of now. Answers at once.
    fn live(&self, after: u64) -> impl Future<Output = Live> + Send;

    /// Handle for watching the calls of its clients.
    fn calls(&self) -> CallWatch;

    /// The registry of its metrics.
    fn metrics(&self) -> Metrics;
}
