//! Deduplication: content that the volume already holds is not uploaded again.
//!
//! ```text
//!   a frame to upload ---> its fingerprint ---> no pack is known to have one like it ------> it is uploaded, and known from now on
//!                             |
//!                             +---> one may have: the frames of that pack are
//!                                   looked through for the same keyed BLAKE3 -------> the block map refers to that one
//! ```
//!
//! What packs hold is written beside their accounts, in the batch that publishes them ([`PackFrames`]). In memory there
//! are a [filter](Filter), which names a pack for the content of each frame, and the frames of the packs that were
//! of use last: copies come in the order of what they are copies of, so one look at a pack serves many frames. A
//! frame that the filter does not know costs no request.
//!
//! # A pack lives as long as somebody may refer to it
//!
//! A pack that loses its last live bytes is deleted. Who finds a frame in it refers to it only with the publication of
//! his checkpoint, and has evicted his own bytes by then. So he *pins* the pack first, for his checkpoint:
//!
//! | the pack | when it is found | what then |
//! |---|---|---|
//! | is published, with live bytes | pinned, and then its account is looked at | a pin stands before any later batch |
//! | is on its way, or not published | pinned, by the same lock under which it is known | it is published before, or in the same batch |
//! | loses its last bytes in a batch that is under way | is [dying](Inner::dying): no pin, a miss | it is deleted |
//! | is pinned, and loses its last bytes | is noted to be deleted, and [kept](Inner::kept) | the batch that refers to it takes the note away |
//! | has no account | a miss | it is deleted, when no pin of another one is left |
//!
//! After a crash there are no pins and nothing that needs one: what was not published is in the log, and what is noted
//! to be deleted has no account, so nobody finds it.
//!
//! [`PackFrames`]: forebay_meta::record::PackFrames

mod filter;
mod fingerprint;
mod lists;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_meta::record::{KnownFrame, PackRecord};
use forebay_types::{CheckpointId, PackId};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, SetOnce};

use self::filter::Filter;
use self::lists::Lists;

pub use self::fingerprint::{Fingerprint, fingerprints};
pub use self::lists::{Frames, MAX_FRAMES};

/// Shorter frames are uploaded whether the volume has them or not: what would be noted of them in the metadata comes
/// to a good part of what they take.
pub const MIN_SHARED: u64 = 1024;

/// Whether content that the volume already holds is uploaded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// It is.
    #[default]
    Off,
    /// It is found by the keyed BLAKE3 of each frame.
    Full,
    /// The keyed BLAKE3 is looked at only where length and CRC32 of a frame are those of one that is known.
    Fast,
}

/// What deduplication knows and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupStatus {
    /// Bytes of file data that were not uploaded since the start, because the volume had them already.
    pub saved_bytes: u64,
    /// Frames that are known by their content.
    pub known_frames: u64,
    /// Whether what earlier runs left in the bucket is still being read: what is only there is not found yet.
    pub is_learning: bool,
}

/// The frames of a pack in the bucket, in the order in which they were put into it.
pub type Arrival = SetOnce<Vec<KnownFrame>>;

/// What is known of the content of packs, and who relies on which.
#[derive(Default)]
pub struct Sharing {
    /// As it is configured.
    pub mode: Dedup,
    inner: Mutex<Inner>,
    saved_bytes: AtomicU64,
    /// Whether the bucket has notes on frames, of this run or an earlier one.
    pub has_notes: OnceCell<bool>,
}

#[derive(Default)]
struct Inner {
    filter: Filter,
    lists: Lists,
    /// Frames of packs that are on their way or not published, by short fingerprint.
    unpublished: HashMap<u64, Unpublished>,
    /// Packs that blocks of a checkpoint may refer to, until it is published, and whether that is safe for certain.
    pins: BTreeMap<CheckpointId, HashMap<PackId, bool>>,
    /// Packs that the batch under way makes garbage.
    dying: HashSet<PackId>,
    /// Packs that are noted to be deleted and were pinned then, with their accounts.
    kept: HashMap<PackId, PackRecord>,
    is_learning: bool,
}

struct Unpublished {
    fingerprint: Fingerprint,
    checkpoint: CheckpointId,
    pack: PackId,
    arrival: Arc<Arrival>,
    place: usize,
}

/// Where a frame with a given fingerprint may be.
pub enum Found {
    /// In this pack that is not published, at this place; pinned.
    Unpublished(Arc<Arrival>, PackId, usize),
    /// Perhaps in this one.
    Perhaps(PackId),
    /// No pack is known to have it.
    Nowhere,
}

impl Sharing {
    /// Knows nothing yet. Unless `mode` is off, it is learning until [`has_learnt`](Self::has_learnt).
    pub fn new(mode: Dedup) -> Sharing {
        let sharing = Sharing {
            mode,
            ..Sharing::default()
        };
        sharing.inner.lock().is_learning = mode != Dedup::Off;
        sharing
    }

    /// Whether nothing is shared.
    pub fn is_off(&self) -> bool {
        self.mode == Dedup::Off
    }

    /// Whether a frame of this short fingerprint may be known.
    pub fn may_know(&self, short: u64) -> bool {
        let mut inner = self.inner.lock();
        inner.unpublished.contains_key(&short) || inner.filter.get(short).is_some()
    }

    /// Where a frame with this fingerprint may be, for a block of `checkpoint`.
    pub fn look(&self, checkpoint: CheckpointId, fingerprint: &Fingerprint) -> Found {
        let Some(short) = fingerprint.short(self.mode) else {
            return Found::Nowhere;
        };
        let mut inner = self.inner.lock();
        if let Some(known) = inner.unpublished.get(&short) {
            // A later checkpoint is published later: nothing of this one may refer to what it brings.
            let in_time = known.checkpoint <= checkpoint;
            if in_time
                && known.fingerprint.is_same(fingerprint)
                && !inner.dying.contains(&known.pack)
            {
                let (arrival, pack, place) = (known.arrival.clone(), known.pack, known.place);
                inner.pins_of(checkpoint).insert(pack, true);
                return Found::Unpublished(arrival, pack, place);
            }
        }
        match inner.filter.get(short) {
            Some(pack) => Found::Perhaps(pack),
            None => Found::Nowhere,
        }
    }

    /// A frame with this fingerprint is about to be uploaded in `pack`, as the one at `place` in it.
    pub fn claim(
        &self,
        fingerprint: &Fingerprint,
        checkpoint: CheckpointId,
        pack: PackId,
        arrival: &Arc<Arrival>,
        place: usize,
    ) {
        let Some(short) = fingerprint.short(self.mode) else {
            return;
        };
        let mut inner = self.inner.lock();
        let better = inner.unpublished.get(&short).is_none_or(|known| {
            let known_hash = known.fingerprint.hash.is_some();
            checkpoint < known.checkpoint || (fingerprint.hash.is_some() && !known_hash)
        });
        if better {
            inner.unpublished.insert(
                short,
                Unpublished {
                    fingerprint: *fingerprint,
                    checkpoint,
                    pack,
                    arrival: arrival.clone(),
                    place,
                },
            );
        }
    }

    /// Keeps a pack for what `checkpoint` may refer to in it. None if it is about to go; else whether nothing more
    /// need be known of it, or its account is to be looked at and [`Sharing::is_alive`] told.
    pub fn pin(&self, checkpoint: CheckpointId, pack: PackId) -> Option<bool> {
        let mut inner = self.inner.lock();
        if inner.dying.contains(&pack) {
            return None;
        }
        Some(*inner.pins_of(checkpoint).entry(pack).or_default())
    }

    /// The pack, which was pinned before its account was looked at, had live bytes then.
    pub fn is_alive(&self, checkpoint: CheckpointId, pack: PackId) {
        self.inner.lock().pins_of(checkpoint).insert(pack, true);
    }

    /// No pack has what the filter says that this one has.
    pub fn forget(&self, fingerprint: &Fingerprint, pack: PackId) {
        if let Some(short) = fingerprint.short(self.mode) {
            self.inner.lock().filter.forget(short, pack);
        }
    }

    /// The frames of a pack, if they are in memory.
    pub fn frames_of(&self, pack: PackId) -> Option<Arc<Frames>> {
        self.inner.lock().lists.get(pack)
    }

    /// Keeps the frames of a pack in memory, in the place of those that were not used for the longest time.
    pub fn keep_frames(&self, pack: PackId, frames: Arc<Frames>) {
        self.inner.lock().lists.insert(pack, frames);
    }

    /// So many bytes were not uploaded.
    pub fn saved(&self, bytes: u64) {
        self.saved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Frames of a published pack, for the filter.
    pub fn learn(&self, pack: PackId, frames: &[KnownFrame]) {
        let mut inner = self.inner.lock();
        for frame in frames {
            if let Some(short) = Fingerprint::of(frame).short(self.mode) {
                inner.filter.insert(short, pack);
            }
        }
    }

    /// All that was in the bucket at the start is known.
    pub fn has_learnt(&self) {
        self.inner.lock().is_learning = false;
    }

    /// A batch is about to make a pack garbage. `closing` is the checkpoint that the batch publishes, whose references
    /// are counted already.
    pub fn dies(&self, pack: PackId, record: PackRecord, closing: Option<CheckpointId>) {
        let mut inner = self.inner.lock();
        let counts =
            |checkpoint: &CheckpointId| closing.is_none_or(|closing| *checkpoint > closing);
        let mut pins = inner.pins.iter();
        if pins.any(|(checkpoint, packs)| counts(checkpoint) && packs.contains_key(&pack)) {
            let record = PackRecord {
                live_bytes: 0,
                ..record
            };
            inner.kept.insert(pack, record);
        } else {
            inner.dying.insert(pack);
        }
    }

    /// Account of a pack that is noted to be deleted and kept for who refers to it.
    pub fn kept(&self, pack: PackId) -> Option<PackRecord> {
        self.inner.lock().kept.get(&pack).copied()
    }

    /// The batch is durable: what it made garbage has no account any more, and what it revived has one.
    pub fn committed(&self, revived: &[PackId]) {
        let mut inner = self.inner.lock();
        let Inner {
            unpublished,
            dying,
            kept,
            ..
        } = &mut *inner;
        // Packs that nothing referred to when they were published are found no more, from the same moment on.
        unpublished.retain(|_, known| !dying.contains(&known.pack));
        dying.clear();
        for pack in revived {
            kept.remove(pack);
        }
    }

    /// The checkpoint is published: nobody pins anything for it any more, and its packs are as all others.
    pub fn published(&self, checkpoint: CheckpointId) {
        let mut inner = self.inner.lock();
        inner.pins.retain(|own, _| *own > checkpoint);
        let unpublished = &mut inner.unpublished;
        unpublished.retain(|_, known| known.checkpoint > checkpoint);
        if unpublished.is_empty() {
            unpublished.shrink_to_fit();
        }
    }

    /// Whether a pack that is noted to be deleted can be: then nobody will refer to it any more.
    pub fn let_go(&self, pack: PackId) -> bool {
        let mut inner = self.inner.lock();
        if inner.pins.values().any(|packs| packs.contains_key(&pack)) {
            return false;
        }
        inner.kept.remove(&pack);
        inner.lists.remove(pack);
        true
    }

    /// None while it is off.
    pub fn status(&self) -> Option<DedupStatus> {
        if self.is_off() {
            return None;
        }
        let inner = self.inner.lock();
        Some(DedupStatus {
            saved_bytes: self.saved_bytes.load(Ordering::Relaxed),
            known_frames: (inner.filter.len() + inner.unpublished.len()) as u64,
            is_learning: inner.is_learning,
        })
    }
}

impl Inner {
    fn pins_of(&mut self, checkpoint: CheckpointId) -> &mut HashMap<PackId, bool> {
        self.pins.entry(checkpoint).or_default()
    }
}

#[cfg(test)]
mod tests;
