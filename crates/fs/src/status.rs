//! The status of a volume: what is not in the bucket yet, and how full the limits are.

use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_meta::CacheStatus;
use forebay_pack_store::{DiskCache, DiskCacheStatus};
use forebay_reduction::dedup::DedupStatus;
use forebay_types::{CheckpointId, Epoch, Lsn, VolumeId};

use crate::CompressionStatus;
use crate::collector::CollectorStatus;
use crate::publisher::Stage;
use crate::rooms::Rooms;
use crate::state::{State, Stopped};

/// State of a volume at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The volume.
    pub volume: VolumeId,
    /// The epoch that this gateway holds.
    pub epoch: Epoch,
    /// The checkpoint that collects changes.
    pub checkpoint: CheckpointId,
    /// What happens to the checkpoint before it.
    pub stage: Stage,
    /// Packs in flight to the bucket.
    pub uploads: usize,
    /// The bucket holds exactly the state at this LSN.
    pub published: Lsn,
    /// End of the log.
    pub end: Lsn,
    /// Everything before it is on stable storage on this machine (in the bucket, for a volume
    /// without a log).
    pub durable: Lsn,
    /// Age of the oldest change that the bucket does not have.
    pub oldest_unpublished: Option<Duration>,
    /// Bytes of the log a second that the bucket takes, while it lacks some; 0 if it has taken none so far.
    pub publication_rate: Option<u64>,
    /// How long a checkpoint collects changes.
    pub checkpoint_interval: Duration,
    /// Bytes of file data that the bucket does not have.
    pub dirty_bytes: u64,
    /// Those of them that are in the log alone, and not in memory.
    pub spilled_bytes: u64,
    /// Closed checkpoints that wait until an older one is published.
    pub waiting_checkpoints: usize,
    /// Bytes for which writes in progress were admitted and that are not in block buffers yet.
    pub admitted_bytes: u64,
    /// Memory that block buffers take, in bytes.
    pub memory_bytes: u64,
    /// Memory of packs in flight and of frames being fetched, which count for the same limit, in bytes.
    pub leased_bytes: u64,
    /// Limit of all that, in bytes.
    pub memory_limit: u64,
    /// Memory of unpublished names and attributes, with the memory that their publication will take, in bytes.
    pub names_bytes: u64,
    /// Limit of that, in bytes.
    pub names_limit: u64,
    /// Bytes of the log in use, and their limit; none for a volume without a log.
    pub log: Option<(u64, u64)>,
    /// How packs are compressed.
    pub compression: CompressionStatus,
    /// The memory for metadata that were read from the bucket; none if there is none.
    pub metadata_cache: Option<CacheStatus>,
    /// The local disk cache; none if there is none.
    pub disk_cache: Option<DiskCacheStatus>,
    /// Damaged frames with lost bytes that readers and the scrub have found since the start.
    pub damaged_frames: u64,
    /// The savings of deduplication; none while it is off.
    pub dedup: Option<DedupStatus>,
    /// Bytes that published files use.
    pub used_bytes: u64,
    /// Number of snapshots, those that are not in the bucket yet or are being deleted among them.
    pub snapshots: usize,
    /// Those of them that are not in the bucket yet: the log has them.
    pub unpublished_snapshots: usize,
    /// Bytes of packs in the bucket to which snapshots refer, and no live file.
    pub held_bytes: u64,
    /// Objects in the trash: files, and directories that were removed.
    pub trash_entries: u64,
    /// Bytes of files in the trash.
    pub trash_bytes: u64,
    /// Objects that were deleted from the trash since the start because their time was over.
    pub trash_expired: u64,
    /// The same, because room was needed.
    pub trash_displaced: u64,
    /// The content of the packs, and the work of the collector.
    pub collector: CollectorStatus,
    /// Objects in the volume.
    pub inodes: u64,
    /// Objects in memory.
    pub nodes: usize,
    /// The trouble with the bucket, and its age.
    pub store_trouble: Option<(String, Duration)>,
    /// Objects of the volume that are missing in the bucket, so that nothing is published, and for how long that is
    /// known.
    pub gone: Option<(String, Duration)>,
    /// What is wrong with the log: why writes are refused (a flush has failed) or may have to wait (no
    /// further segment can be made), and since when for the former.
    pub log_trouble: Option<(String, Option<Duration>)>,
    /// Why the volume takes no more changes.
    pub stopped: Option<Stopped>,
}

impl Status {
    pub(crate) fn of(rooms: &Rooms, volume: VolumeId) -> Status {
        let (state, progress) = (&*rooms.state, rooms.publisher.progress());
        let published = progress.published();
        let trash = state.accounts.trash().used();
        // As a part of the expression below, the guard would be held until its end, and `oldest_unpublished` locks
        // again: that would never be granted while a checkpoint waits between the two to close.
        let checkpoint = state.checkpoint_lock.read().id;
        Status {
            volume,
            epoch: progress.state().epoch,
            checkpoint,
            stage: progress.stage(),
            uploads: progress.uploads(),
            published,
            end: state.position(),
            durable: state.log().map_or(published, |log| log.durable_lsn()),
            oldest_unpublished: state.oldest_unpublished().map(|since| since.elapsed()),
            publication_rate: state.publication_rate(),
            checkpoint_interval: state.config.checkpoint_interval,
            dirty_bytes: state.memory.cache.dirty_bytes(),
            spilled_bytes: state.memory.cache.spilled_bytes(),
            waiting_checkpoints: state.waiting_checkpoints(),
            admitted_bytes: state.memory.admitted_bytes(),
            memory_bytes: state.memory.cache.allocated_bytes(),
            leased_bytes: state.memory.cache.leased_bytes(),
            memory_limit: state.memory.cache.limit_bytes(),
            names_bytes: state.unpublished_names_bytes(),
            names_limit: state.config.overlay_limit,
            log: state.log().map(|log| (log.used_bytes(), log.limit_bytes())),
            compression: rooms.publisher.compression_status(),
            metadata_cache: state.catalog.store().cache(),
            disk_cache: rooms.packs.disk().map(DiskCache::status),
            damaged_frames: rooms.damages.lost(),
            dedup: rooms.sharing.status(),
            used_bytes: progress.state().used_bytes,
            snapshots: state.snapshots.len(),
            unpublished_snapshots: state.snapshots.unpublished(),
            held_bytes: progress.state().history.held_bytes,
            trash_entries: trash.files,
            trash_bytes: trash.bytes,
            trash_expired: state.trash.expired.load(Ordering::Relaxed),
            trash_displaced: state.trash.displaced.load(Ordering::Relaxed),
            collector: rooms.collector.current_status(),
            inodes: state.accounts.volume().used().files,
            nodes: state.nodes.len(),
            store_trouble: state.trouble.current(),
            gone: state
                .trouble
                .gone()
                .map(|gone| (gone.what, gone.since.elapsed())),
            log_trouble: log_trouble(state),
            stopped: state.signals.is_stopped(),
        }
    }

    /// Bytes of the log that the bucket does not have: data and names, headers included. Zero exactly if everything
    /// is published.
    pub fn unpublished_bytes(&self) -> u64 {
        if self.oldest_unpublished.is_none() {
            0
        } else {
            self.end.0.saturating_sub(self.published.0)
        }
    }

    /// The time that the bucket takes for [these bytes](Self::unpublished_bytes) at its rate of late, whole seconds; `None` if it
    /// has everything, or takes nothing.
    pub fn time_to_publish(&self) -> Option<Duration> {
        let seconds = self
            .unpublished_bytes()
            .checked_div(self.publication_rate?)?;
        Some(Duration::from_secs(seconds))
    }
}

fn log_trouble(state: &State) -> Option<(String, Option<Duration>)> {
    if let Some((why, since)) = state.log_health.trouble() {
        return Some((why, Some(since)));
    }
    state.log()?.shortage().map(|why| (why, None))
}
