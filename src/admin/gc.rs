//! What is asked of a gateway about packs that are mostly dead, and how it answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::status::size;

/// What a gateway is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GcOrder {
    /// To rewrite all packs that are mostly dead from now on, also those from which little comes, within its rate.
    Rewrite,
    /// How far it is.
    Status,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// URL of the store that the gateway's volume lives in.
    pub store: String,
    /// Whether what was asked for is being done.
    pub running: bool,
    /// Packs that are mostly dead, as far as accounts are read.
    pub packs_to_rewrite: u64,
    /// About what rewriting them frees, in bytes of the bucket.
    pub dead_bytes_to_free: u64,
    /// Packs that were rewritten since the start of the gateway.
    pub packs_rewritten: u64,
    /// Live bytes that were copied for that, before compression.
    pub bytes_copied: u64,
    /// Packs that could not be rewritten, and are left as they are until the next start.
    pub packs_left_alone: u64,
    /// Bytes that it reads and writes for that in a second, at most.
    pub rate_bytes: u64,
    /// What it waits for; null while it goes on.
    pub waits_for: Option<String>,
}

impl fmt::Display for GcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packs to rewrite, {} free then; {} rewritten since the gateway's start; {}/s at most",
            self.packs_to_rewrite,
            size(self.dead_bytes_to_free),
            self.packs_rewritten,
            size(self.rate_bytes),
        )?;
        match &self.waits_for {
            None => Ok(()),
            Some(why) => write!(f, "; it waits: {}", why.escape_debug()),
        }
    }
}
