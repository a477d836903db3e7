//! The progress of publications, and work that other engines leave to the publisher.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_meta::record::VolumeState;
use forebay_types::{CheckpointId, Lsn, PackId};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::publications::Publications;
use crate::state::Signals;

/// What happens to the last closed checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// It is published.
    #[default]
    Idle,
    /// Its packs are being uploaded.
    Uploading,
    /// Its metadata are being committed.
    Publishing,
}

/// The progress of one volume. Only the publisher and its commits change it.
pub(crate) struct Progress {
    published: watch::Sender<Lsn>,
    /// Number of the last published checkpoint; 0 before the first one of this gateway.
    last: AtomicU64,
    /// The volume's published state.
    state: Mutex<VolumeState>,
    stage: Mutex<Stage>,
    uploads: AtomicUsize,
    /// There may be removed files to collect, dead packs to delete, or records of observers to commit.
    garbage: AtomicBool,
    /// Packs could not be deleted: try again after the next publication.
    undeleted: AtomicBool,
    next_pack: AtomicU64,
    publications: Publications,
    signals: Arc<Signals>,
}

impl Progress {
    /// Continues from the published state.
    pub(crate) fn new(state: VolumeState, signals: Arc<Signals>) -> Progress {
        Progress {
            published: watch::Sender::new(state.published),
            last: AtomicU64::new(0),
            state: Mutex::new(state),
            stage: Mutex::default(),
            uploads: AtomicUsize::new(0),
            garbage: AtomicBool::new(true),
            undeleted: AtomicBool::new(false),
            next_pack: AtomicU64::new(PackId::first_of(state.epoch).0.max(state.next_pack)),
            publications: Publications::new(),
            signals,
        }
    }

    pub(crate) fn publications(&self) -> &Publications {
        &self.publications
    }

    /// The bucket holds everything before this.
    pub(crate) fn published(&self) -> Lsn {
        *self.published.borrow()
    }

    pub(crate) fn watch_published(&self) -> watch::Receiver<Lsn> {
        self.published.subscribe()
    }

    /// The last published checkpoint.
    pub(crate) fn last(&self) -> CheckpointId {
        CheckpointId(self.last.load(Ordering::Acquire))
    }

    /// Notes that a checkpoint is published: first its number becomes known, and when everything else is done, its
    /// end.
    pub(super) fn checkpoint_published(&self, id: CheckpointId) {
        self.last.store(id.0, Ordering::Release);
    }

    pub(super) fn published_up_to(&self, end: Lsn) {
        self.published.send_replace(end);
    }

    pub(crate) fn state(&self) -> VolumeState {
        *self.state.lock()
    }

    pub(super) fn set_state(&self, state: VolumeState) {
        *self.state.lock() = state;
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.lock()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// Packs in flight to the bucket.
    pub(crate) fn uploads(&self) -> usize {
        self.uploads.load(Ordering::Relaxed)
    }

    /// Counts a pack in flight, until the result is dropped.
    pub(super) fn begin_upload(&self) -> Upload<'_> {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        Upload(&self.uploads)
    }

    pub(crate) fn new_pack(&self) -> PackId {
        PackId(self.next_pack.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_pack(&self) -> u64 {
        self.next_pack.load(Ordering::Relaxed)
    }

    /// Notes that there is work beside checkpoints, and wakes the publisher.
    pub(crate) fn tidy(&self) {
        self.note_garbage();
        self.signals.wake_publisher();
    }

    pub(super) fn note_garbage(&self) {
        self.garbage.store(true, Ordering::Release);
    }

    /// Notes that the publisher is about to look for garbage.
    pub(super) fn begin_reclaiming(&self) {
        self.garbage.store(false, Ordering::Release);
    }

    /// The state after a step of reclaiming that has found nothing.
    #[cfg(test)]
    pub(crate) fn nothing_to_reclaim(&self) {
        self.begin_reclaiming();
    }

    pub(crate) fn has_garbage(&self) -> bool {
        self.garbage.load(Ordering::Acquire)
    }

    /// Notes that a pack could not be deleted.
    pub(super) fn note_undeleted(&self) {
        self.undeleted.store(true, Ordering::Release);
    }

    /// Makes the publisher try again the deletions that failed.
    pub(super) fn retry_undeleted(&self) {
        if self.undeleted.swap(false, Ordering::AcqRel) {
            self.note_garbage();
        }
    }
}

/// A pack in flight.
pub(super) struct Upload<'a>(&'a AtomicUsize);

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
