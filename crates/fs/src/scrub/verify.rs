//! Reading a pack back: verifies its index, its header, and every frame in the bucket.

use std::time::Duration;

use bytes::Bytes;
use forebay_environment::backoff;
use forebay_meta::FrameAddress;
use forebay_meta::record::{ScrubRecord, ScrubResult};
use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN, is_header_of};
use forebay_pack::{
    IndexEntry, PackError, PackIndex, PackKeys, object_name, open_frame, open_index,
};
use forebay_pack_store::{NoPiece, Stored};
use forebay_types::{BlockKey, PackId, to_usize};
use tokio::time::Instant;

use super::plan::{self, Courtesy, Due, Piece, RateLimit};
use super::{Broken, Scrub, Wait};

/// How often bytes that arrive damaged are fetched: they may have been damaged on the way.
const ATTEMPTS: u32 = 3;
/// Frames whose entries are read at first, where their number is not known.
const FRAMES: u64 = 256;
/// How long the scrub waits for other tasks before it checks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The result of reading a pack.
pub(super) struct Verdict {
    pub(super) result: ScrubResult,
    pub(super) damaged_frames: u32,
    /// What is wrong with the pack as a whole, so that its frames are not known.
    pub(super) blind: Option<String>,
}

impl Verdict {
    fn sound() -> Verdict {
        Verdict {
            result: ScrubResult::Sound,
            damaged_frames: 0,
            blind: None,
        }
    }

    pub(super) fn record(&self, checked: u64) -> ScrubRecord {
        ScrubRecord {
            checked,
            result: self.result,
            damaged_frames: self.damaged_frames,
        }
    }
}

impl Scrub {
    /// Reads a whole pack, and notes its damaged frames. `None` if the pack was deleted meanwhile.
    pub(super) async fn verify(
        &self,
        due: &Due,
        rate: &mut RateLimit,
    ) -> Result<Option<Verdict>, Broken> {
        self.context.damages.forget(due.pack);
        self.board.begin_pack(due.pack);
        // It was chosen a while ago.
        if self.known(due.pack).await?.is_none() {
            return Ok(None);
        }
        let index = match self.index(due, rate).await {
            Ok(index) => index,
            Err(Unread::Broken(broken)) => return Err(broken),
            Err(Unread::No(result, why)) => {
                return self.blind(due.pack, result, why).await;
            }
        };
        let (mut verdict, mut found) = (Verdict::sound(), Found::default());
        for piece in plan::pieces(&index.entries) {
            let len = piece.range.end - piece.range.start;
            self.reserve(len, rate).await;
            let _lease = self.lease_patiently(2 * len).await;
            let bytes = match self.piece(due.pack, piece.range.clone()).await? {
                Ok(bytes) => bytes,
                // It was in the bucket a moment ago.
                Err(gone) => {
                    let (result, why) = gone.verdict();
                    return self.blind(due.pack, result, why).await;
                }
            };
            let keys = self.context.packs.keys().clone();
            let pack = due.pack;
            let checked = move || check(&bytes, pack, &piece, &keys);
            let checked = self
                .context
                .environment
                .compute
                .run_in_background(checked)
                .await;
            let checked = checked.map_err(|error| Broken(error.to_string()))?;
            found.header |= !checked.header && !self.header_is_right(due.pack).await?;
            for entry in checked.damaged {
                let address = crate::publisher::address(&entry.frame);
                if let Some(why) = self.check_alone(entry.block, &address).await? {
                    found.frames.push(Damaged {
                        block: entry.block,
                        address,
                        why,
                    });
                }
            }
        }
        // Packs become held, or live again, while they are read.
        let Some(known) = self.known(due.pack).await? else {
            return Ok(None);
        };
        let Some(is_whole) = self.settle(&known, &index, &found, rate).await? else {
            return Ok(None);
        };
        if !is_whole {
            verdict.result = ScrubResult::Damaged;
            verdict.damaged_frames = u32::try_from(found.frames.len()).unwrap_or(u32::MAX);
        }
        Ok(Some(verdict))
    }

    /// The verdict on a pack whose frames are not known; `None` if it was deleted meanwhile.
    async fn blind(
        &self,
        pack: PackId,
        result: ScrubResult,
        why: String,
    ) -> Result<Option<Verdict>, Broken> {
        let Some(known) = self.known(pack).await? else {
            return Ok(None);
        };
        // No file needs it, so that no block map leads to its frames.
        if known.frames.is_none() {
            self.report_blind(&known, &why);
        }
        Ok(Some(Verdict {
            result,
            damaged_frames: 0,
            blind: known.frames.map(|_| why),
        }))
    }

    async fn index(&self, due: &Due, rate: &mut RateLimit) -> Result<PackIndex, Unread> {
        let frames = due.frames.map_or(FRAMES, u64::from);
        let mut len = frames * INDEX_ENTRY_LEN as u64 + INDEX_FOOTER_LEN as u64;
        let mut attempt = 1;
        loop {
            // Behind the header: a damaged one does not keep the index from being read.
            let behind = due.bytes.min(PACK_HEADER_LEN as u64);
            let from = due.bytes.saturating_sub(len).max(behind);
            self.reserve(due.bytes - from, rate).await;
            let tail = self.piece(due.pack, from..due.bytes).await?;
            let tail = tail.map_err(|gone| {
                let (result, why) = gone.verdict();
                Unread::No(result, why)
            })?;
            let why = match open_index(&tail, self.context.packs.keys()) {
                Ok(index)
                    if index.pack == due.pack
                        && index.volume == self.context.packs.keys().volume() =>
                {
                    if u64::from(index.pack_len) == due.bytes {
                        return Ok(index);
                    }
                    "its index and its account have different lengths".to_owned()
                }
                Ok(_) => "its index is of another pack".to_owned(),
                Err(PackError::TailTooShort { needed })
                    if due.frames.is_none() && len < needed as u64 =>
                {
                    len = needed as u64;
                    continue;
                }
                Err(PackError::TailTooShort { .. }) => {
                    "its index has more frames than its account".to_owned()
                }
                Err(error) => error.to_string(),
            };
            if attempt == ATTEMPTS {
                return Err(Unread::No(ScrubResult::Damaged, why));
            }
            tokio::time::sleep(backoff(attempt, &*self.context.environment.random)).await;
            attempt += 1;
        }
    }

    /// Whether the header of a pack is right when it is fetched again.
    async fn header_is_right(&self, pack: PackId) -> Result<bool, Broken> {
        for _ in 1..ATTEMPTS {
            let header = self.piece(pack, 0..PACK_HEADER_LEN as u64).await?;
            if header
                .is_ok_and(|header| is_header_of(&header, self.context.packs.keys().volume(), pack))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is wrong with a frame, if it arrives damaged every time.
    pub(super) async fn check_alone(
        &self,
        block: BlockKey,
        address: &FrameAddress,
    ) -> Result<Option<String>, Broken> {
        let Stored {
            reference: frame,
            block,
        } = Stored::new(block, address);
        let stored = frame.stored_range();
        let mut attempt = 1;
        loop {
            let bytes = match self.piece(address.pack, stored.start..stored.end).await? {
                Ok(bytes) => bytes,
                Err(gone) => {
                    // If the pack was deleted, nothing needs the frame.
                    let pack = address.pack;
                    if self.known(pack).await?.is_none() {
                        return Ok(None);
                    }
                    let object = object_name(pack);
                    return Ok(Some(format!("{object}: {}", gone.verdict().1)));
                }
            };
            let opened = open_frame(bytes, &frame, block, self.context.packs.keys());
            let verified = opened.and_then(|frame| frame.verify_hash(self.context.packs.keys()));
            match verified {
                Ok(()) => return Ok(None),
                Err(error) if error.is_worth_another_fetch() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => {
                    let object = object_name(address.pack);
                    return Ok(Some(format!("{object}: {error}")));
                }
            }
            tokio::time::sleep(backoff(attempt, &*self.context.environment.random)).await;
        }
    }

    /// Bytes of a pack, however long the bucket does not answer; the inner error if it does not have them.
    pub(super) async fn piece(
        &self,
        pack: PackId,
        range: std::ops::Range<u64>,
    ) -> Result<Result<Bytes, Gone>, Broken> {
        let mut attempt = 1;
        loop {
            match self.context.packs.piece(pack, range.clone()).await {
                Ok(bytes) => {
                    self.board.read(bytes.len() as u64);
                    self.board.waits_for(None);
                    return Ok(Ok(bytes));
                }
                Err(NoPiece::Unavailable(why)) => {
                    self.board.waits_for(Some(Wait::Bucket(why)));
                    tokio::time::sleep(backoff(attempt, &*self.context.environment.random)).await;
                    attempt += 1;
                }
                Err(NoPiece::Missing) => return Ok(Err(Gone::Missing)),
                Err(NoPiece::CutOff { len }) => return Ok(Err(Gone::CutOff { len })),
            }
        }
    }

    /// Waits until this many bytes may be requested, by the rate and by the work of other tasks.
    pub(super) async fn reserve(&self, bytes: u64, rate: &mut RateLimit) {
        tokio::time::sleep_until(rate.reserve(bytes, Instant::now())).await;
        let courtesy = Courtesy::new(Instant::now());
        while courtesy.waits(self.is_in_the_way(), Instant::now()) {
            self.board.waits_for(Some(Wait::Others));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.board.waits_for(None);
    }

    fn is_in_the_way(&self) -> bool {
        self.context.packs.is_busy()
            || self.context.memory.writers_wait()
            || !self.context.foreground.effort().background
    }

    /// Waits for spare memory.
    pub(super) async fn lease_patiently(&self, bytes: u64) -> forebay_cache::Lease {
        loop {
            if let Some(lease) = self.context.memory.lease_spare(bytes).await {
                self.board.waits_for(None);
                return lease;
            }
            self.board.waits_for(Some(Wait::Others));
        }
    }
}

/// Why a pack does not have these bytes.
pub(super) enum Gone {
    Missing,
    CutOff { len: u64 },
}

impl Gone {
    fn verdict(&self) -> (ScrubResult, String) {
        match self {
            Gone::Missing => (
                ScrubResult::Missing,
                "the pack is not in the bucket".to_owned(),
            ),
            Gone::CutOff { len } => (
                ScrubResult::Damaged,
                format!("the pack is cut off: it has {len} bytes"),
            ),
        }
    }
}

/// Why the index of a pack was not read.
enum Unread {
    No(ScrubResult, String),
    Broken(Broken),
}

impl From<Broken> for Unread {
    fn from(broken: Broken) -> Unread {
        Unread::Broken(broken)
    }
}

/// The damage in a pack whose index is sound.
#[derive(Default)]
pub(super) struct Found {
    pub(super) frames: Vec<Damaged>,
    /// Whether its header is wrong. Files do not need it, but a salvage without the metadata does.
    pub(super) header: bool,
}

/// A frame that arrives damaged every time.
pub(super) struct Damaged {
    pub(super) block: BlockKey,
    pub(super) address: FrameAddress,
    pub(super) why: String,
}

/// The result of checking a piece of a pack.
pub(super) struct Checked {
    /// The pack's header is right, or is not in this piece.
    pub(super) header: bool,
    pub(super) damaged: Vec<IndexEntry>,
}

/// Verifies a piece: length, CRC32, identity and hash of every frame.
pub(super) fn check(bytes: &Bytes, pack: PackId, piece: &Piece, keys: &PackKeys) -> Checked {
    let is_damaged = |entry: &&IndexEntry| {
        let stored = entry.frame.stored_range();
        let (from, to) = (
            stored.start - piece.range.start,
            stored.end - piece.range.start,
        );
        let stored = bytes.slice(to_usize(from)..to_usize(to));
        let opened = open_frame(stored, &entry.frame, entry.block, keys);
        opened.and_then(|frame| frame.verify_hash(keys)).is_err()
    };
    Checked {
        header: piece.range.start > 0 || is_header_of(bytes, keys.volume(), pack),
        damaged: piece.entries.iter().filter(is_damaged).copied().collect(),
    }
}
