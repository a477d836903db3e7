//! Requests to a gateway about packs that are mostly dead, and its replies.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::status::size;

/// A request to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GcOrder {
    /// Rewrite all packs that are mostly dead from now on, including those that free little, within its rate.
    Rewrite,
    /// Report the progress.
    Status,
}

/// The progress of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// URL of the store that the gateway's volume lives in.
    pub store: String,
    /// Whether the requested rewriting is under way.
    pub running: bool,
    /// Packs that are mostly dead, as far as their accounts have been read.
    pub packs_to_rewrite: u64,
    /// Approximate number of bytes of the bucket that rewriting them frees.
    pub dead_bytes_to_free: u64,
    /// Packs that were rewritten since the start of the gateway.
    pub packs_rewritten: u64,
    /// Live bytes that were copied by that, before compression.
    pub bytes_copied: u64,
    /// Packs that could not be rewritten, and are left as they are until the next start.
    pub packs_left_alone: u64,
    /// Maximum number of bytes per second that it reads and writes for that.
    pub rate_bytes: u64,
    /// The reason for a pause; null while it is working.
    pub waits_for: Option<String>,
}

impl fmt::Display for GcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packs to rewrite, which frees {}; {} rewritten since the gateway's start; {}/s at most",
            self.packs_to_rewrite,
            size(self.dead_bytes_to_free),
            self.packs_rewritten,
            size(self.rate_bytes),
        )?;
        match &self.waits_for {
            None => Ok(()),
            Some(why) => write!(f, "; waiting: {}", why.escape_debug()),
        }
    }
}
