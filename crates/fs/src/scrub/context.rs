//! The parts of other rooms that the scrub needs.

use std::sync::Arc;
use std::time::Duration;

use forebay_environment::Environment;
use forebay_meta::Catalog;
use forebay_pack_store::PackStore;

use crate::damages::Damages;
use crate::publisher::Progress;
use crate::state::Memory;

/// The rooms that the scrub uses. It changes nothing but the list of damages.
pub(crate) struct Context {
    /// The interval in which each pack is read without an order; zero for never.
    pub(crate) interval: Duration,
    /// The most bytes a second that are read from the bucket.
    pub(crate) rate: u64,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) damages: Arc<Damages>,
    /// Used to ask for a commit of checks.
    pub(crate) progress: Arc<Progress>,
}
