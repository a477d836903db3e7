//! The parts of other rooms that the collector needs.

use std::sync::Arc;

use forebay_clones::layers::Sources;
use forebay_environment::Environment;
use forebay_meta::Catalog;
use forebay_pack_store::PackStore;
use forebay_reduction::dedup::Sharing;

use crate::FsConfig;
use crate::fragments::Fragments;
use crate::publisher::{Progress, Stage};
use crate::state::{Foreground, Memory, Signals, SnapshotList, StoreTrouble};

/// The rooms that the collector uses. It changes nothing in them; the publisher commits its changes between checkpoints.
pub(crate) struct Context {
    pub(crate) config: Arc<FsConfig>,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) sharing: Arc<Sharing>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) foreground: Arc<dyn Foreground>,
    pub(crate) fragments: Arc<Fragments>,
    /// Where packs of a clone lie that are not its own.
    pub(crate) sources: Sources,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) trouble: Arc<StoreTrouble>,
    pub(crate) progress: Arc<Progress>,
}

impl Context {
    /// Whether writers, the publisher and the bucket leave room for the collector.
    pub(super) fn may_collect(&self) -> bool {
        let progress = &self.progress;
        let is_busy = progress.uploads() >= self.config.upload_parallel
            || progress.has_garbage()
            || progress.stage() == Stage::Publishing
            || self.memory.writers_wait();
        !is_busy && self.trouble.may_ask() && self.signals.is_stopped().is_none()
    }
}
