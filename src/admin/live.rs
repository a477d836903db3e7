//! Requests for the last ten minutes.

use serde::{Deserialize, Serialize};

/// A request for the last ten minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRequest {
    /// Only points with a sequence number above this.
    #[serde(default)]
    pub after: u64,
}
