//! What everything of a volume is sealed and opened with.

use std::fmt;
use std::sync::Arc;

use crate::{DataKeys, Entropy};

/// What the objects of a sealed volume are sealed and opened with.
#[derive(Clone)]
pub struct Sealing {
    /// The data keys of the volume: the newest one seals, each opens.
    pub keys: Arc<DataKeys>,
    /// Where the salt of each object comes from.
    pub entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Sealing {
    /// Names the volume and the numbers of its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
