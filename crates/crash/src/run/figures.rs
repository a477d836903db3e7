//! The numbers of a run.

use std::fmt;
use std::time::Duration;

/// Numbers of operations and comparisons in a run.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// SIGKILLs.
    pub kills: u64,
    /// Of these, before the program was ready to serve.
    pub kills_before_ready: u64,
    /// Checks of the whole bucket by `forebay fsck --read-data`, each after a kill.
    pub checks: u64,
    /// Comparisons of the whole state with all acknowledged operations.
    pub comparisons: u64,
    /// Operations answered.
    pub operations: u64,
    /// Of these, said to be on stable storage.
    pub stable: u64,
    /// COMMITs.
    pub commits: u64,
    /// Names compared.
    pub names: u64,
    /// Files compared.
    pub files: u64,
    /// Bytes of files compared.
    pub bytes: u64,
    /// Snapshots that were made, those that were deleted, and restored copies.
    pub snapshots: [u64; 3],
    /// Snapshots and copies that were compared.
    pub trees: u64,
    /// Bytes that writers have read back meanwhile.
    pub read_back: u64,
    /// Calls that were sent to a second server.
    pub repeated: u64,
    /// Of these, calls that the first server had executed, so that the second answered EXIST or NOENT.
    pub known_repeats: u64,
    /// Log segments begun.
    pub segments: u64,
    /// Bytes of the log that were not durable at a power cut.
    pub unsynced_bytes: u64,
    /// Of these, bytes that it lost.
    pub lost_bytes: u64,
    /// Writes that were sent again because of another verifier.
    pub resent: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// The slowest of them.
    pub slowest_flush: Duration,
    /// Greatest age of a bucket's state at a kill.
    pub oldest: Duration,
    /// The longest start.
    pub slowest_start: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        writeln!(
            f,
            "  kills {} (before it was ready: {}), checks of the bucket {}, comparisons {}, slowest start {:.2} s",
            self.kills,
            self.kills_before_ready,
            self.checks,
            self.comparisons,
            self.slowest_start.as_secs_f64()
        )?;
        writeln!(
            f,
            "  operations answered {}, acknowledged as stable {}, COMMITs {}",
            self.operations, self.stable, self.commits
        )?;
        writeln!(
            f,
            "  compared: {} names, {} files, {} MiB; read back under load {} MiB",
            self.names,
            self.files,
            mib(self.bytes),
            mib(self.read_back)
        )?;
        let [made, deleted, restored] = self.snapshots;
        writeln!(
            f,
            "  snapshots made {made}, deleted {deleted}, restored {restored}; compared, with copies: {}",
            self.trees
        )?;
        write!(
            f,
            "  calls repeated {}, of which executed before {}; log segments begun {}",
            self.repeated, self.known_repeats, self.segments
        )?;
        if self.unsynced_bytes > 0 {
            write!(
                f,
                "\n  power cuts took {} of {} MiB that were not durable; writes sent again {}",
                mib(self.lost_bytes),
                mib(self.unsynced_bytes),
                self.resent
            )?;
        }
        if self.flushes > 0 {
            write!(
                f,
                "\n  flushes {}, slowest {:.2} s; oldest bucket {:.2} s before the kill",
                self.flushes,
                self.slowest_flush.as_secs_f64(),
                self.oldest.as_secs_f64()
            )?;
        }
        Ok(())
    }
}
