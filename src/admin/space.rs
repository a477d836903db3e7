//! The part of a gateway's status about the content of the bucket and its use.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// The content of packs, and the collector's work on dead bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All packs together; missing before the first commit since the start, after which they are counted.
    #[serde(flatten)]
    pub known: Option<KnownSpace>,
    /// Packs that are mostly dead.
    pub packs_to_rewrite: u64,
    /// Approximate number of bytes that rewriting them frees.
    pub dead_bytes_to_free: u64,
    /// Packs that were rewritten since the start.
    pub packs_rewritten: u64,
    /// Live bytes that were copied by that, before compression.
    pub bytes_copied: u64,
    /// Packs that could not be rewritten, and are left until the next start.
    pub packs_left_alone: u64,
    /// Packs that no gateway ever published, deleted since the start.
    pub orphans_deleted: u64,
    /// Blocks of files of which a reader needs more than one GET for each MiB, as far as they are known.
    #[serde(default)]
    pub fragmented_blocks: u64,
    /// Blocks that were copied into one place since the start.
    #[serde(default)]
    pub defragmented_blocks: u64,
    /// Bytes that were copied for that, before compression.
    #[serde(default)]
    pub defragmented_bytes: u64,
}

/// All packs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSpace {
    /// Number of packs.
    pub packs: u64,
    /// Their bytes in the bucket.
    pub stored_bytes: u64,
    /// Bytes of their content, before compression.
    pub raw_bytes: u64,
    /// Bytes of files that refer to them. Bytes that several files share count for each of them.
    pub live_bytes: u64,
    /// Of those, the bytes that lie in the bucket only once and are referred to more than once: a lower bound.
    #[serde(default)]
    pub shared_bytes: u64,
}

/// The part of the packs' content that is in use, in percent: shared bytes count once.
pub(crate) fn percent_in_use(live_bytes: u64, shared_bytes: u64, raw_bytes: u64) -> u64 {
    let used = u128::from(live_bytes.saturating_sub(shared_bytes));
    match u128::from(raw_bytes) {
        0 => 100,
        raw => (used * 100 / raw).min(100) as u64,
    }
}

impl Space {
    /// In words.
    pub(super) fn described(&self) -> String {
        let size = |bytes| ByteSize::b(bytes).display().iec().to_string();
        let mut text = match &self.known {
            None => "not counted before the first change".to_owned(),
            Some(known) => {
                let used = percent_in_use(known.live_bytes, known.shared_bytes, known.raw_bytes);
                let mut text = format!(
                    "{} in {} packs, {used}% in use",
                    size(known.stored_bytes),
                    known.packs
                );
                if known.shared_bytes > 0 {
                    text += &format!(
                        ", {} of {} of files shared",
                        size(known.shared_bytes),
                        size(known.live_bytes)
                    );
                }
                text
            }
        };
        if self.packs_to_rewrite > 0 {
            text += &format!(
                "; {} to rewrite, which frees {}",
                self.packs_to_rewrite,
                size(self.dead_bytes_to_free)
            );
        }
        if self.packs_rewritten > 0 {
            text += &format!("; {} rewritten since the start", self.packs_rewritten);
        }
        if self.fragmented_blocks > 0 {
            text += &format!("; {} fragmented blocks", self.fragmented_blocks);
        }
        if self.defragmented_blocks > 0 {
            text += &format!(
                "; {} blocks defragmented since the start",
                self.defragmented_blocks
            );
        }
        if self.orphans_deleted > 0 {
            text += &format!("; orphans deleted: {}", self.orphans_deleted);
        }
        if self.packs_left_alone > 0 {
            text += &format!(
                "; {} cannot be rewritten: see the gateway's messages",
                self.packs_left_alone
            );
        }
        text
    }
}
