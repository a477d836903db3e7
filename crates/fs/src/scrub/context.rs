//! The parts of other rooms that the scrub needs.

use std::sync::Arc;
use std::time::Duration;

use forebay_clones::layers::Sources;
use forebay_environment::Environment;
use forebay_meta::Catalog;
use forebay_pack_store::PackStore;

use crate::collector::LatePacks;
use crate::damages::Damages;
use crate::publisher::Progress;
use crate::state::{Foreground, Memory, SnapshotList};

/// The rooms that the scrub uses. It changes the list of damages, and packs of snapshots that it puts back.
pub(crate) struct Context {
    /// The interval in which each pack is read without an order; zero for never.
    pub(crate) interval: Duration,
    /// The most bytes a second that are read from the bucket.
    pub(crate) rate: u64,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) foreground: Arc<dyn Foreground>,
    /// Where packs of a clone lie that its sources scrub.
    pub(crate) sources: Sources,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) damages: Arc<Damages>,
    /// Notes packs that it puts again while they may be deleted.
    pub(crate) late: Arc<LatePacks>,
    /// Used to ask for a commit of checks.
    pub(crate) progress: Arc<Progress>,
}
