//! Deduplication: content that the volume already holds is not uploaded again.
//!
//! ```text
//!   a frame to upload ---> its fingerprint ---> no pack is known to have one like it ------> it is uploaded, and known from now on
//!                             |
//!                             +---> one may have: the frames of that pack are
//!                                   looked through for the same keyed BLAKE3 -------> the block map refers to that one
//! ```
//!
//! The batch that publishes a pack writes notes on its frames beside its account ([`PackFrames`]). In memory there
//! are a filter, which names a pack for the content of each frame, and the frames of the packs that were
//! used last: copies come in the order of their originals, so one look at a pack serves many frames. A frame that the
//! filter does not know costs no request.
//!
//! # A pack lives as long as a block may refer to it
//!
//! A pack that loses its last live bytes is deleted. An upload that finds a frame in it refers to it only when its
//! checkpoint is published, and has evicted its own bytes by then. So it *pins* the pack first, for its checkpoint:
//!
//! | the pack | when an upload finds it | therefore |
//! |---|---|---|
//! | is published, with live bytes | it is pinned, and then its account is looked at | a later batch sees the pin |
//! | is in flight, or not published | it is pinned, under the look-up's lock | it is published earlier or in the same batch |
//! | loses its last bytes in a batch in flight | it is dying: no pin, a miss | it is deleted |
//! | is pinned, and loses its last bytes | it is noted to be deleted, and kept | a batch that refers to it removes the note |
//! | has no account | a miss | it is deleted when no checkpoint pins it any more |
//!
//! After a crash there are no pins and nothing that needs one: unpublished changes are in the log, and a pack that is
//! noted to be deleted has no account, so no upload finds it.
//!
//! [`PackFrames`]: forebay_meta::record::PackFrames

mod filter;
mod fingerprint;
mod lists;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_meta::record::{KnownFrame, PackRecord};
use forebay_types::{CheckpointId, PackId};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, SetOnce};

use self::filter::Filter;
use self::lists::Lists;

pub use self::fingerprint::{Fingerprint, fingerprints};
pub use self::lists::{Frames, MAX_FRAMES};

/// Shorter frames are always uploaded: the notes on them in the metadata would take a good part of their own size.
pub const MIN_SHARED: u64 = 1024;

/// Whether content that the volume already holds is uploaded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// It is uploaded again.
    #[default]
    Off,
    /// It is found by the keyed BLAKE3 of each frame.
    Full,
    /// The keyed BLAKE3 is compared only if length and CRC32 of a frame are those of a known one.
    Fast,
}

/// The status of deduplication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupStatus {
    /// Bytes of file data that were not uploaded since the start, because the volume had them already.
    pub saved_bytes: u64,
    /// Number of frames that are known by their content.
    pub known_frames: u64,
    /// Whether the notes of earlier runs are still being read: content that only they name is not found yet.
    pub is_learning: bool,
}

/// The frames of a pack in the bucket, in the order in which they were put into it.
pub type Arrival = SetOnce<Vec<KnownFrame>>;

/// The known content of packs, and the checkpoints that rely on it.
#[derive(Default)]
pub struct Sharing {
    /// The configured mode.
    pub mode: Dedup,
    inner: Mutex<Inner>,
    saved_bytes: AtomicU64,
    /// Whether the bucket had notes on frames when that was first asked.
    pub has_notes: OnceCell<bool>,
    /// Blocks came to share frames since.
    shares_frames: AtomicBool,
}

#[derive(Default)]
struct Inner {
    filter: Filter,
    lists: Lists,
    /// Frames of packs in flight and of unpublished packs, by short fingerprint.
    unpublished: HashMap<u64, Unpublished>,
    /// Packs to which blocks of a checkpoint may refer, until it is published, each with whether that is certainly
    /// safe.
    pins: BTreeMap<CheckpointId, HashMap<PackId, bool>>,
    /// Packs that the batch in flight makes garbage.
    dying: HashSet<PackId>,
    /// Packs that were pinned when they were noted to be deleted, with their accounts.
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
    /// In this unpublished pack, at this place; the pack is pinned.
    Unpublished(Arc<Arrival>, PackId, usize),
    /// Perhaps in this pack.
    Perhaps(PackId),
    /// No pack is known to have it.
    Nowhere,
}

impl Sharing {
    /// Knows no frames. Unless `mode` is off, it is learning until [`has_learnt`](Self::has_learnt).
    pub fn new(mode: Dedup) -> Sharing {
        let sharing = Sharing {
            mode,
            ..Sharing::default()
        };
        sharing.inner.lock().is_learning = mode != Dedup::Off;
        sharing
    }

    /// Whether deduplication is off.
    pub fn is_off(&self) -> bool {
        self.mode == Dedup::Off
    }

    /// Whether a frame with this short fingerprint may be known.
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
            // A later checkpoint is published later: nothing of this one may refer to its packs.
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

    /// Notes that a frame with this fingerprint will be uploaded in `pack`, as the one at `place` in it.
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

    /// Pins a pack to which `checkpoint` may refer. Returns `None` if it is about to be deleted; `true` if it is
    /// certainly safe; `false` if the caller must look at its account, and then call [`Sharing::is_alive`] if it has
    /// live bytes.
    pub fn pin(&self, checkpoint: CheckpointId, pack: PackId) -> Option<bool> {
        let mut inner = self.inner.lock();
        if inner.dying.contains(&pack) {
            return None;
        }
        Some(*inner.pins_of(checkpoint).entry(pack).or_default())
    }

    /// Notes that the pack, which was pinned before its account was looked at, had live bytes then.
    pub fn is_alive(&self, checkpoint: CheckpointId, pack: PackId) {
        self.inner.lock().pins_of(checkpoint).insert(pack, true);
    }

    /// Forgets that this pack may have the content: it has not.
    pub fn forget(&self, fingerprint: &Fingerprint, pack: PackId) {
        if let Some(short) = fingerprint.short(self.mode) {
            self.inner.lock().filter.forget(short, pack);
        }
    }

    /// The frames of a pack, if they are in memory.
    pub fn frames_of(&self, pack: PackId) -> Option<Arc<Frames>> {
        self.inner.lock().lists.get(pack)
    }

    /// Keeps the frames of a pack in memory, in place of the least recently used ones.
    pub fn keep_frames(&self, pack: PackId, frames: Arc<Frames>) {
        self.inner.lock().lists.insert(pack, frames);
    }

    /// Counts bytes that were not uploaded.
    pub fn saved(&self, bytes: u64) {
        self.saved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds frames of a published pack to the filter.
    pub fn learn(&self, pack: PackId, frames: &[KnownFrame]) {
        let mut inner = self.inner.lock();
        for frame in frames {
            if let Some(short) = Fingerprint::of(frame).short(self.mode) {
                inner.filter.insert(short, pack);
            }
        }
    }

    /// Notes that the notes of earlier runs have been read.
    pub fn has_learnt(&self) {
        self.inner.lock().is_learning = false;
    }

    /// Notes that a batch is about to make a pack garbage. `closing` is the checkpoint that the batch publishes,
    /// whose references are counted already.
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

    /// The account of a pack that is noted to be deleted and kept because it is pinned.
    pub fn kept(&self, pack: PackId) -> Option<PackRecord> {
        self.inner.lock().kept.get(&pack).copied()
    }

    /// Notes the account of a pinned pack that is dead, or that only snapshots hold: blocks of the pinning checkpoint
    /// refer to it again.
    pub fn keep(&self, pack: PackId, record: PackRecord) {
        let record = PackRecord {
            live_bytes: 0,
            ..record
        };
        self.inner.lock().kept.entry(pack).or_insert(record);
    }

    /// Notes that blocks share frames, whether deduplication is on or not: packs have notes from now on that are
    /// deleted with them.
    pub fn shares_frames(&self) {
        self.shares_frames.store(true, Ordering::Relaxed);
    }

    /// Whether blocks came to share frames since the start.
    pub fn does_share_frames(&self) -> bool {
        self.shares_frames.load(Ordering::Relaxed)
    }

    /// Notes that the batch is durable: packs that it made garbage have no account any more, and packs that it
    /// revived have one.
    pub fn committed(&self, revived: &[PackId]) {
        let mut inner = self.inner.lock();
        let Inner {
            unpublished,
            dying,
            kept,
            ..
        } = &mut *inner;
        // Packs to which nothing referred when they were published are not found any more from the same moment on.
        unpublished.retain(|_, known| !dying.contains(&known.pack));
        dying.clear();
        for pack in revived {
            kept.remove(pack);
        }
    }

    /// Notes that the checkpoint is published: its pins end, and its packs are like all others.
    pub fn published(&self, checkpoint: CheckpointId) {
        let mut inner = self.inner.lock();
        inner.pins.retain(|own, _| *own > checkpoint);
        let unpublished = &mut inner.unpublished;
        unpublished.retain(|_, known| known.checkpoint > checkpoint);
        if unpublished.is_empty() {
            unpublished.shrink_to_fit();
        }
    }

    /// Whether a pack that is noted to be deleted can be deleted: no block will refer to it any more.
    pub fn try_forget(&self, pack: PackId) -> bool {
        let mut inner = self.inner.lock();
        if inner.pins.values().any(|packs| packs.contains_key(&pack)) {
            return false;
        }
        inner.kept.remove(&pack);
        inner.lists.remove(pack);
        true
    }

    /// The status; `None` if deduplication is off.
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
