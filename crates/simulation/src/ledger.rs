//! What clients were told, and what therefore must hold after a crash.

use crate::plan::Journal;

/// What was promised up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// End of the log.
    pub(crate) end: u64,
    /// An operation is being polled: a record more than those up to `end` may be in the log.
    pub(crate) polling: bool,
    /// Everything before it was acknowledged as stable.
    pub(crate) stable: u64,
    /// Everything before it was acknowledged as stable in this life.
    pub(crate) acknowledged: u64,
    /// Everything before it was on the disk or in the bucket when this life began.
    pub(crate) settled: u64,
    /// Everything before it was acknowledged as being in the bucket.
    pub(crate) bucket: u64,
    /// Everything before it was answered, stable or not.
    pub(crate) answered: u64,
    /// The write verifier that clients know, if it is certain.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Number of writes in [`Unstable`] that were answered.
    pub(crate) unstable: usize,
    /// The volume was closed in good order.
    pub(crate) closed: bool,
    /// The gateway is open: its epoch is in the bucket.
    pub(crate) opened: bool,
    /// Another gateway is about to open the volume, or has done so.
    pub(crate) contested: bool,
    /// Another gateway has the volume.
    pub(crate) fenced: bool,
    /// Where that one began.
    pub(crate) taken_at: u64,
}

/// A write that was answered UNSTABLE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unstable {
    pub(crate) inode: u64,
    pub(crate) end: u64,
    pub(crate) verifier: [u8; 8],
}

impl Ledger {
    /// Up to where a power cut must lose nothing.
    pub(crate) fn survives_power_cut(&self, journal: Journal) -> u64 {
        let promised = match journal {
            _ if self.closed => self.end,
            Journal::Commit | Journal::Bucket => self.stable,
            // In the log, but not flushed; or not in a log at all.
            Journal::Async | Journal::None => self.bucket,
        };
        promised.max(self.settled)
    }

    pub(crate) fn promise_stable(&mut self, end: u64) {
        self.stable = self.stable.max(end);
        self.acknowledged = self.acknowledged.max(end);
        self.answered = self.answered.max(end);
    }

    pub(crate) fn promise_bucket(&mut self, end: u64) {
        self.bucket = self.bucket.max(end);
        self.promise_stable(end);
    }

    pub(crate) fn answer(&mut self, end: u64) {
        self.answered = self.answered.max(end);
    }
}
