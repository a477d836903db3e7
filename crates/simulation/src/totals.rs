//! Counts of everything that was tested.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use crate::ledger::Ledger;

/// Counts of everything that one run, or many, have tested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Plans that were run.
    pub runs: u64,
    /// Lives of gateways in them.
    pub lives: u64,
    /// Operations that clients began.
    pub operations: u64,
    /// Of these, operations that were answered with an error.
    pub failed_operations: u64,
    /// Records that they made.
    pub records: u64,
    /// Moments at which the world could have stopped, and whose states were recovered.
    pub stops: u64,
    /// Crash states (an image, the kind of crash, the seed of the tearing) that were recovered and compared, by kind of
    /// crash.
    pub states: BTreeMap<&'static str, u64>,
    /// Of these, stops within a recovery.
    pub within_recovery: u64,
    /// Buckets that were audited without the product.
    pub audits: u64,
    /// Second gateways that opened the volume.
    pub takeovers: u64,
    /// Volumes that were closed in order.
    pub closes: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Changes that were made although they were answered with an error.
    pub ghost_requests: u64,
    /// Flushes of the disk that failed.
    pub failed_flushes: u64,
    /// Files that could not be made because the disk was full.
    pub full_disks: u64,
    /// Reads of the log that failed while it was open.
    pub failed_reads: u64,
    /// Failed flushes after which the kernel dropped pages with bytes that the disk does not have.
    pub dropped_pages: u64,
    /// Dirty bytes that left memory because the log has them.
    pub spilled_bytes: u64,
    /// Reads of the log for calls of clients.
    pub log_reads: u64,
    /// Reads of the log for uploads.
    pub log_loads: u64,
    /// Most closed checkpoints that waited for the publisher.
    pub most_waiting: u64,
    /// Packs that were rewritten in the lives because they were mostly dead.
    pub rewritten_packs: u64,
    /// Fragmented blocks that were copied into one place in the lives.
    pub defragmented_blocks: u64,
    /// Packs that no metadata named and that were deleted in the lives.
    pub orphans_deleted: u64,
    /// Bytes that were not uploaded in the lives because the volume had them already.
    pub shared_bytes: u64,
    /// Packs that were rewritten or deleted as orphans after recoveries.
    pub collected_packs: u64,
    /// Recoveries after which everything dead had to be deleted in the end.
    pub collections: u64,
    /// Snapshots that were read and deleted after recoveries.
    pub snapshots: u64,
    /// Recoveries in which a clone outlived the deletion of all else.
    pub held: u64,
    /// Clones that were made.
    pub clones: u64,
    /// Clones that were made while a gateway deleted their snapshot.
    pub raced: u64,
    /// Clones that were detached.
    pub detached: u64,
    /// Volumes that went back to a snapshot.
    pub taken_back: u64,
    /// Objects that left the trash at the end of recoveries.
    pub emptied: u64,
    /// Objects that restores put back in the lives.
    pub restored: u64,
    /// Objects that came back from the trash in the lives.
    pub undeleted: u64,
    /// Objects that the trash lost in the lives, by age or because room was needed.
    pub trash_deleted: u64,
    /// Most packs that a crash between upload and publication left in one bucket.
    pub most_unknown_packs: u64,
}

impl Totals {
    /// Crash states of all kinds.
    pub fn crash_states(&self) -> u64 {
        self.states.values().sum()
    }

    pub(crate) fn count(&mut self, left: &'static str) {
        *self.states.entry(left).or_default() += 1;
    }

    /// Without disk faults, the verifier of a running gateway does not change.
    pub(crate) fn expect_verifier(
        &self,
        ledger: &mut Ledger,
        found: [u8; 8],
    ) -> Result<(), String> {
        match ledger.verifier {
            Some(known) if known != found => {
                Err("the write verifier changed for no reason".to_owned())
            }
            _ => {
                ledger.verifier = Some(found);
                Ok(())
            }
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.runs += other.runs;
        self.lives += other.lives;
        self.operations += other.operations;
        self.failed_operations += other.failed_operations;
        self.records += other.records;
        self.stops += other.stops;
        for (left, count) in other.states {
            *self.states.entry(left).or_default() += count;
        }
        self.within_recovery += other.within_recovery;
        self.audits += other.audits;
        self.takeovers += other.takeovers;
        self.closes += other.closes;
        self.failed_requests += other.failed_requests;
        self.ghost_requests += other.ghost_requests;
        self.failed_flushes += other.failed_flushes;
        self.full_disks += other.full_disks;
        self.failed_reads += other.failed_reads;
        self.dropped_pages += other.dropped_pages;
        self.spilled_bytes += other.spilled_bytes;
        self.log_reads += other.log_reads;
        self.log_loads += other.log_loads;
        self.most_waiting = self.most_waiting.max(other.most_waiting);
        self.rewritten_packs += other.rewritten_packs;
        self.defragmented_blocks += other.defragmented_blocks;
        self.orphans_deleted += other.orphans_deleted;
        self.shared_bytes += other.shared_bytes;
        self.collected_packs += other.collected_packs;
        self.collections += other.collections;
        self.snapshots += other.snapshots;
        self.held += other.held;
        self.clones += other.clones;
        self.raced += other.raced;
        self.detached += other.detached;
        self.taken_back += other.taken_back;
        self.emptied += other.emptied;
        self.restored += other.restored;
        self.undeleted += other.undeleted;
        self.trash_deleted += other.trash_deleted;
        self.most_unknown_packs = self.most_unknown_packs.max(other.most_unknown_packs);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "crash states              {:>10}", self.crash_states())?;
        for (left, count) in &self.states {
            writeln!(f, "  {left:<24}{count:>10}")?;
        }
        for (what, count) in [
            ("of these within a recovery", self.within_recovery),
            ("distinct stops", self.stops),
            ("runs", self.runs),
            ("lives", self.lives),
            ("operations", self.operations),
            ("  answered with an error", self.failed_operations),
            ("records", self.records),
            ("buckets audited", self.audits),
            ("takeovers", self.takeovers),
            ("orderly closes", self.closes),
            ("requests failed", self.failed_requests),
            ("requests done, yet failed", self.ghost_requests),
            ("flushes failed", self.failed_flushes),
            ("files refused, disk full", self.full_disks),
            ("reads of the log failed", self.failed_reads),
            ("failed pages dropped", self.dropped_pages),
            ("bytes in the log alone", self.spilled_bytes),
            ("  log read for clients", self.log_reads),
            ("  log read for uploads", self.log_loads),
            ("checkpoints that waited", self.most_waiting),
            ("packs rewritten", self.rewritten_packs),
            ("fragmented blocks copied", self.defragmented_blocks),
            ("orphans deleted", self.orphans_deleted),
            ("bytes found, not uploaded", self.shared_bytes),
            ("objects restored", self.restored),
            ("objects undeleted", self.undeleted),
            ("objects that left trash", self.trash_deleted),
            ("clones made", self.clones),
            ("  detached", self.detached),
            ("made beside a deletion", self.raced),
            ("volumes taken back", self.taken_back),
            ("everything collected", self.collections),
            ("  packs that were", self.collected_packs),
            ("  snapshots deleted", self.snapshots),
            ("  beside a clone", self.held),
            ("  objects out of trash", self.emptied),
        ] {
            writeln!(f, "{what:<26}{count:>10}")?;
        }
        Ok(())
    }
}
