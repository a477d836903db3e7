//! The keys and the source of salts of a sealed volume, as one value.

use std::fmt;
use std::sync::Arc;

use crate::{DataKeys, Entropy};

/// The keys and the source of salts for the objects of a sealed volume.
#[derive(Clone)]
pub struct Sealing {
    /// The data keys of the volume: the newest one seals, and each opens.
    pub keys: Arc<DataKeys>,
    /// The source of the salt of each object.
    pub entropy: Arc<dyn Entropy>,
}

impl fmt::Debug for Sealing {
    /// Shows the volume and the numbers of its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
