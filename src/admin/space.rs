//! What the bucket has of the volume and what of that is in use, in a gateway's status.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

/// What packs hold, and what the collector does about dead bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All packs together; not there before the first commit since the start, after which they are counted.
    #[serde(flatten)]
    pub known: Option<KnownSpace>,
    /// Packs that are mostly dead.
    pub packs_to_rewrite: u64,
    /// About what rewriting them frees.
    pub dead_bytes_to_free: u64,
    /// Packs that were rewritten since the start.
    pub packs_rewritten: u64,
    /// Live bytes that were copied for that, before compression.
    pub bytes_copied: u64,
    /// Packs that could not be rewritten, and are left until the next start.
    pub packs_left_alone: u64,
    /// Packs that were never published by a gateway before, and were deleted since the start.
    pub orphans_deleted: u64,
}

/// All packs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSpace {
    /// How many there are.
    pub packs: u64,
    /// Bytes that they have in the bucket.
    pub stored_bytes: u64,
    /// Bytes of what they hold, before compression.
    pub raw_bytes: u64,
    /// Bytes of files that refer to them. What several files share counts for each.
    pub live_bytes: u64,
    /// Of those, what lies in the bucket only once and is referred to more than once: that much at least.
    #[serde(default)]
    pub shared_bytes: u64,
}

/// How much of what packs hold is in use, in hundredths: what is shared counts once.
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
                "; {} to rewrite, {} free then",
                self.packs_to_rewrite,
                size(self.dead_bytes_to_free)
            );
        }
        if self.packs_rewritten > 0 {
            text += &format!("; {} rewritten since the start", self.packs_rewritten);
        }
        if self.orphans_deleted > 0 {
            text += &format!("; orphans deleted: {}", self.orphans_deleted);
        }
        if self.packs_left_alone > 0 {
            text += &format!(
                "; {} cannot be rewritten: the messages say why",
                self.packs_left_alone
            );
        }
        text
    }
}
