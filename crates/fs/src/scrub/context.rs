//! What the scrub needs of the rest.

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
    /// How often each pack is read by itself; zero for never.
    pub(crate) interval: Duration,
    /// Bytes a second that are read from the bucket, at most.
    pub(crate) rate: u64,
    pub(crate) environment: Environment,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) packs: Arc<PackStore>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) damages: Arc<Damages>,
    /// For the wish that checks are committed.
    pub(crate) progress: Arc<Progress>,
}
