//! The control socket: how `forebay flush`, `status`, `exports`, `quota`, `scrub` and `gc` reach a running gateway.
//!
//! A gateway listens on a Unix socket in its `data_dir`. A connection carries one request and one
//! reply, each one line of JSON:
//!
//! ```text
//! {"command":"status"}\n      ->      {"status":{"volume":"...", ...}}\n
//! {"command":"exports"}\n     ->      {"exports":[{"path":"/", ...}]}\n
//! {"command":"flush"}\n       ->      {"flush":{"published_lsn":4096, ...}}\n
//! {"command":{"quota":"list"}}\n  ->      {"quota":[{"path":"/home", ...}]}\n
//! {"command":{"scrub":"status"}}\n -> {"scrub":{"packs":12, ...}}\n
//! {"command":{"gc":"rewrite"}}\n   -> {"gc":{"running":true, ...}}\n
//! anything else               ->      {"error":"..."}\n
//! ```
//!
//! Only the user who runs the gateway, and root, may ask. Lines, waiting times and the number of
//! connections are bounded, so that a client that sends nonsense, or nothing, or never reads,
//! costs the gateway a socket for some seconds and nothing else.
//!
//! Next to the socket lies a lock file. Who holds its lock runs the gateway of this folder, so two
//! gateways never share one, and a socket that a killed gateway has left behind is recognised.

mod client;
mod exports;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gc;
mod message;
mod place;
mod quota;
mod scrub;
mod server;
mod space;
mod status;

#[cfg(test)]
mod tests;

pub use client::{ClientError, exports, flush, gc, quota, scrub, status};
pub use exports::ExportStatus;
pub use gc::{GcOrder, GcReport};
pub use place::PlaceError;
pub use quota::{QuotaLimit, QuotaReport, QuotaRequest, QuotaTable};
pub use scrub::{
    DamageState, DamagedFrame, LastScrub, ScrubReport, ScrubRequest, ScrubRound, ScrubbedPack,
};
pub use server::Server;
pub(crate) use space::percent_in_use;
pub use space::{KnownSpace, Space};
pub use status::{
    ArchivedLogs, CheckpointState, Compression, Deduplication, DiskCache, FlushReport, LogError,
    Status, StoreError,
};

/// What a gateway must be able to do for those who ask at its control socket.
pub trait Control: Send + Sync + 'static {
    /// Publishes everything that has been written so far; returns when the bucket has it. Waits
    /// as long as that takes. Dropping the future gives up the waiting, not the publishing.
    fn flush(&self) -> impl Future<Output = Result<FlushReport, String>> + Send;

    /// How the gateway is. Answers at once, whatever state bucket and log are in.
    fn status(&self) -> impl Future<Output = Status> + Send;

    /// Does what is asked about quotas; gives those that it was about. A change is stable when this
    /// returns.
    fn quota(
        &self,
        request: QuotaRequest,
    ) -> impl Future<Output = Result<Vec<QuotaReport>, String>> + Send;

    /// Does what is asked about the scrub; says how it is then.
    fn scrub(
        &self,
        request: ScrubRequest,
    ) -> impl Future<Output = Result<ScrubReport, String>> + Send;

    /// Does what is asked about packs that are mostly dead; says how far that is. Answers at once.
    fn gc(&self, order: GcOrder) -> impl Future<Output = Result<GcReport, String>> + Send;

    /// The rules that count for the next call of each client. Answers at once.
    fn exports(&self) -> impl Future<Output = Vec<ExportStatus>> + Send;
}
