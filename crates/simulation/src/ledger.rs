//! The promises made to clients, which must hold after a crash.

use crate::plan::Journal;

/// The promises made up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// End of the log.
    pub(crate) end: u64,
    /// An operation is being polled: the log may have one record behind `end`.
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
    /// The write verifier that clients have received, if it is certain.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Number of writes in [`Unstable`] that were answered.
    pub(crate) unstable: usize,
    /// The volume was closed in order.
    pub(crate) closed: bool,
    /// The gateway is open: its epoch is in the bucket.
    pub(crate) opened: bool,
    /// Another gateway is about to open the volume, or has done so.
    pub(crate) contested: bool,
    /// Another gateway has the volume.
    pub(crate) fenced: bool,
    /// Position at which that gateway began.
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
    /// The position before which a power cut must lose nothing.
    pub(crate) fn survives_power_cut(&self, journal: Journal) -> u64 {
        let promised = match journal {
            _ if self.closed => self.end,
            Journal::Commit | Journal::Bucket => self.stable,
            // In the log but not flushed, or without a log.
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
