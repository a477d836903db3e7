//! The settings with which a volume is opened.

use std::path::PathBuf;
use std::time::Duration;

use forebay_meta::volume::keys::Expected;
use forebay_reduction::dedup::Dedup;
use forebay_types::{BLOCK_SIZE, to_usize};

use crate::Compression;
use crate::opening::Opening;
use crate::state::NODE_BYTES;

/// The most bytes for unpublished names and attributes: enough for a checkpoint of a few tens of thousands of files.
const MOST_FOR_NAMES: u64 = 64 << 20;
/// The least bytes for them: a few thousand files.
const LEAST_FOR_NAMES: u64 = 8 << 20;
/// The most nodes that are kept.
const MOST_NODES: u64 = 100_000;

/// How long a change waits for room by default. A store that keeps up makes room several times a second, so a burst
/// is slowed down and no client has to repeat a call. One that does not keep up will not have caught up after another
/// second either: a longer wait would only keep other calls from the memory and buffers of this one, and its client
/// repeats it (Linux after 5 s).
pub const ROOM_WAIT: Duration = Duration::from_secs(1);

/// Settings of one gateway on one volume. Sizes are in bytes unless stated otherwise.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Local folder for the log and the gateway's state; created if it is missing.
    pub data_dir: PathBuf,
    /// Whether the volume must be sealed, and with what it is opened then.
    pub expected: Expected,
    /// Whether there is a log, and how it behaves.
    pub log: LogConfig,
    /// Whether the log must be sealed: then the gateway seals it, and does not replay an unsealed log. Only for a
    /// sealed volume. If false, a sealed log of that volume is replayed all the same.
    pub seal_log: bool,
    /// Memory for block buffers; writers wait while it is full of bytes that cannot be spilled. At least 16 MiB.
    pub memory_limit: u64,
    /// How long a change waits for room in memory, and once more for room in the log, before it is answered
    /// [`Error::Delay`](forebay_vfs::Error::Delay) ([`ROOM_WAIT`] by default).
    pub room_wait: Duration,
    /// The pause before an upload reads a record of the log once more that the disk did not return. It doubles each time,
    /// and after the sixth time the bytes are lost.
    pub log_read_pause: Duration,
    /// Clients are busy until they changed nothing for this time. Uploads and other background work use what busy clients
    /// leave.
    pub busy_time: Duration,
    /// A block that a reader could only get with many GETs is copied into one place when it was not published for this
    /// time; zero is never.
    pub defragment_after: Duration,
    /// How long changes may stay unpublished while the bucket answers.
    pub checkpoint_interval: Duration,
    /// Dirty bytes at which a checkpoint closes before its interval is over. Dirty bytes may leave memory if the log has room
    /// for eight times as much.
    pub checkpoint_bytes: u64,
    /// The compression of files that were not written through an export with a compression of its own.
    pub compression: Compression,
    /// Whether content that the volume already holds is uploaded again.
    pub dedup: Dedup,
    /// Packs that are uploaded at the same time, 1 or more.
    pub upload_parallel: usize,
    /// Raw bytes at which a pack is complete.
    pub pack_bytes: u64,
    /// Bytes that are written to a file in a row before its blocks, these included, are uploaded as soon as they are
    /// full, instead of with their checkpoint: the memory that a stream holds. The blocks of a file with fewer bytes
    /// are never uploaded eagerly: it may be deleted again soon.
    pub early_bytes: u64,
    /// Bytes that all files together may use; beyond it writes fail with ENOSPC.
    pub volume_limit: u64,
    /// Whether bytes that only snapshots refer to count against that as well.
    pub snapshots_count: bool,
    /// Bytes that the trash may take, with 4 KiB for each object in it.
    pub trash_limit: u64,
    /// The most objects of the volume.
    pub inode_limit: u64,
    /// Nodes that are kept in memory though nothing of them is unpublished.
    pub node_limit: usize,
    /// Bytes of unpublished names and attributes in memory, with the memory of their publication; changes of names wait
    /// at this limit.
    pub overlay_limit: u64,
    /// Memory for the cache of published metadata.
    pub metadata_cache: u64,
    /// The most frames that are fetched from the bucket at the same time: fewer if frames of whole blocks would take
    /// more than an eighth of `memory_limit`.
    pub fetch_parallel: usize,
    /// How far ahead of a sequential reader blocks are fetched, at most: less if that would be more than a quarter of
    /// `memory_limit`. 0 turns it off.
    pub prefetch_bytes: u64,
    /// Bytes of disk in `data_dir` for frames that were fetched from the bucket; 0 for none, otherwise from
    /// [`crate::MIN_DISK_CACHE`] to [`crate::MAX_DISK_CACHE`].
    pub disk_cache_limit: u64,
    /// A pack is rewritten when less than this percentage of it is in use; 0 for never.
    pub rewrite_below: u32,
    /// Bytes per second that background work (rewriting packs) may read and write.
    pub background_rate: u64,
    /// Requests per second that background work may send.
    pub background_requests: u64,
    /// The age in the bucket that an orphaned pack must have before it is deleted.
    pub orphan_grace: Duration,
    /// The most block maps that a publication takes from truncated files, and that one step of their collection deletes; 1 or
    /// more.
    pub maps_at_once: usize,
    /// The interval between checks for the descriptor or a pack while checkpoints are published.
    pub presence_interval: Duration,
    /// The most bytes a second that the scrub reads from the bucket; 1 or more.
    pub scrub_rate: u64,
    /// The interval in which the scrub reads each pack back without an order; zero for never.
    pub scrub_interval: Duration,
    /// Shows the current step of the volume's opening.
    pub opening: Opening,
    /// Whether to open a volume that another gateway holds.
    pub takeover: Takeover,
    /// The description of this gateway for the note in the bucket.
    pub introduction: Introduction,
}

/// How an opening treats a volume that another gateway holds, or did not close in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// The opening fails, and changes nothing.
    #[default]
    Refuse,
    /// The opening takes the volume: the other gateway stops at its next publication, and its unpublished changes
    /// stay in its log.
    Allow,
}

/// The description of a gateway, for people, in the note that it leaves in the bucket. Nothing depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// Name of the machine.
    pub host: String,
    /// The address where it serves NFS.
    pub address: String,
}

/// Where changes are recorded before they reach the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogConfig {
    /// In a log in the local folder.
    Disk {
        /// Size of all log segments together.
        limit: u64,
        /// Size of one segment.
        segment: u64,
    },
    /// No log: COMMIT and the operations that are stable before their reply wait for the bucket.
    None,
}

impl FsConfig {
    /// Frames that are fetched at the same time: at least 4.
    pub(crate) fn fetches(&self) -> usize {
        let fit = self.memory_limit / 8 / BLOCK_SIZE;
        self.fetch_parallel.min(fit as usize).max(4)
    }

    /// `defragment_after`, if blocks are copied at all.
    pub(crate) fn copies_fragments_after(&self) -> Option<Duration> {
        Some(self.defragment_after).filter(|after| !after.is_zero())
    }

    /// Whether dirty bytes may leave memory while the log has them: if it has room for several checkpoints.
    pub(crate) fn spills(&self) -> bool {
        match self.log {
            LogConfig::Disk { limit, .. } => limit / 8 >= self.checkpoint_bytes,
            LogConfig::None => false,
        }
    }

    /// Bytes of the log of a checkpoint that closes while the publisher is busy: a part of the log that makes room in small
    /// steps. `None` if it never does.
    pub(crate) fn grown_checkpoint(&self) -> Option<u64> {
        match self.log {
            LogConfig::Disk { limit, .. } if self.spills() => {
                Some((limit / 32).max(self.checkpoint_bytes))
            }
            _ => None,
        }
    }

    /// The part of `memory_limit` that neither writers nor readers ahead may take: it is for frames that a read waits
    /// for and for packs in flight, so that those are within the limit too.
    pub(crate) fn memory_reserve(&self) -> u64 {
        self.memory_limit / 8
    }

    /// How far ahead of a reader blocks are fetched.
    pub(crate) fn prefetch_window(&self) -> u64 {
        self.prefetch_bytes.min(self.memory_limit / 4)
    }

    /// With `memory_limit` bytes for block buffers, and in proportion for names and attributes: an eighth of it for
    /// unpublished ones, and about as much for nodes that are kept.
    pub fn with_memory(self, memory_limit: u64) -> FsConfig {
        let share = (memory_limit / 8).clamp(LEAST_FOR_NAMES, MOST_FOR_NAMES);
        FsConfig {
            memory_limit,
            overlay_limit: share,
            node_limit: (share * MOST_NODES / MOST_FOR_NAMES) as usize,
            ..self
        }
    }

    /// Bytes of memory that names and attributes may take beside `memory_limit`: unpublished ones, with their publication,
    /// and nodes that are kept.
    pub fn names_memory(&self) -> u64 {
        self.overlay_limit + self.node_limit as u64 * NODE_BYTES
    }

    /// Defaults, with everything local in `data_dir`.
    pub fn new(data_dir: PathBuf) -> FsConfig {
        FsConfig {
            data_dir,
            expected: Expected::NotSealed,
            log: LogConfig::Disk {
                limit: 4 << 30,
                segment: 32 << 20,
            },
            seal_log: false,
            memory_limit: 1 << 30,
            room_wait: ROOM_WAIT,
            log_read_pause: Duration::from_millis(500),
            busy_time: Duration::from_millis(250),
            defragment_after: Duration::from_secs(60),
            checkpoint_interval: Duration::from_secs(5),
            checkpoint_bytes: 64 << 20,
            compression: Compression::default(),
            dedup: Dedup::Off,
            upload_parallel: 4,
            pack_bytes: 8 << 20,
            early_bytes: 2 * BLOCK_SIZE,
            volume_limit: 1 << 50,
            snapshots_count: false,
            trash_limit: u64::MAX,
            inode_limit: u64::from(u32::MAX),
            node_limit: to_usize(MOST_NODES),
            overlay_limit: MOST_FOR_NAMES,
            metadata_cache: 64 << 20,
            fetch_parallel: 32,
            prefetch_bytes: 256 << 20,
            disk_cache_limit: 0,
            rewrite_below: 50,
            background_rate: 16 << 20,
            background_requests: 10,
            orphan_grace: Duration::from_secs(3600),
            maps_at_once: 1024,
            presence_interval: Duration::from_secs(30),
            scrub_rate: 8 << 20,
            scrub_interval: Duration::ZERO,
            opening: Opening::default(),
            takeover: Takeover::Refuse,
            introduction: Introduction::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_what_the_documentation_says() {
        for mib in [64, 100, 256, 511, 512, 1024, 1 << 20] {
            let limit = mib << 20;
            let config = FsConfig::new(PathBuf::new()).with_memory(limit);
            assert_eq!(config.memory_limit, limit);
            let most = (limit / 3).min(176 << 20);
            let taken = config.names_memory();
            assert!(taken <= most, "{taken} bytes beside {mib} MiB");
            assert!(taken > most / 2, "{taken} bytes beside {mib} MiB");
        }
    }
}
