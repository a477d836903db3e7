//! Judges the packs of a range of numbers: their accounts, what block maps refer to, and the objects of the bucket.

mod seen;

use std::collections::BTreeMap;

use forebay_meta::record::{DeadPack, FrameAddress, HeldPack, PackFrames, PackRecord, VolumeState};
use forebay_pack::header::FRAME_HEADER_LEN;
use forebay_pack::index::{INDEX_ENTRY_LEN, INDEX_FOOTER_LEN, PACK_HEADER_LEN};
use forebay_pack::{FrameRef, MAX_FRAME_LEN, object_name};
use forebay_types::{CommitNumber, PackId, SnapshotId};

use crate::finding::{Finding, Sink};
use crate::judge::snapshots::Snapshots;
use crate::report::Census;

/// Bits of a pack's number that count within an epoch; the others are the epoch (`docs/format.md`).
pub(crate) const COUNTER_BITS: u32 = 40;
/// The epoch of the gateway that wrote a pack.
pub(crate) fn epoch_of(pack: PackId) -> u64 {
    pack.0 >> COUNTER_BITS
}

/// Most packs without an account that are counted separately.
const STRANGERS: usize = 100_000;

/// The number of the next pack of the gateway that holds the volume.
pub(crate) fn next_pack(state: &VolumeState) -> PackId {
    let first = state.epoch.0.checked_shl(COUNTER_BITS).unwrap_or(u64::MAX);
    PackId(first.max(state.next_pack))
}

/// The record that the metadata have of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// An account.
    Account,
    /// An account that cannot be read.
    Unreadable,
    /// A note that the pack is to be deleted.
    Dead,
    /// A note that a snapshot holds the dead pack.
    Held,
    /// Such a note that cannot be read.
    UnreadableHeld,
}

/// The snapshot that holds a pack, as the record of the held pack says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// The pack has no such record.
    None,
    /// The record cannot be read.
    Unreadable,
    /// The snapshot, and whether the pack is marked under it.
    By(SnapshotId, bool),
}

/// One pack.
#[derive(Debug)]
struct Row {
    pack: PackId,
    what: What,
    /// Its account. Of a held pack only the length and the birth count.
    record: PackRecord,
    /// When a dead or held pack died, if that is known.
    died: Option<CommitNumber>,
    hold: Hold,
    /// The commits of the oldest and the newest snapshot whose block maps refer to it.
    seen: Option<(CommitNumber, CommitNumber)>,
    /// Bytes that block maps refer to.
    live: u64,
    /// Its length in the bucket, if it is in the list.
    listed: Option<u64>,
    /// Block maps that share frames of this pack which were written for other blocks, and the notes of such sharing.
    sharers: u64,
    noted_sharers: u64,
}

/// A pack whose object has the right length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sound {
    pub(crate) pack: PackId,
    pub(crate) bytes: u64,
    /// Its account; `None` if it is held.
    pub(crate) account: Option<PackRecord>,
    pub(crate) born: CommitNumber,
    /// When it died, if it is held.
    pub(crate) died: Option<CommitNumber>,
}

/// The packs of a range of numbers.
pub(crate) struct Packs {
    from: PackId,
    end: Option<PackId>,
    limit: usize,
    rows: Vec<Row>,
    /// Packs that block maps refer to and that have no account: bytes of each.
    strangers: BTreeMap<PackId, u64>,
    /// Packs that block maps of snapshots refer to and that have no record: the commit of such a snapshot.
    lost: BTreeMap<PackId, CommitNumber>,
}

impl Packs {
    /// A range that begins at `from` and may take `limit` bytes of memory.
    pub(crate) fn new(from: PackId, limit: usize) -> Packs {
        Packs {
            from,
            end: None,
            limit,
            rows: Vec::new(),
            strangers: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Whether the table has no room for another pack.
    pub(crate) fn is_full(&self) -> bool {
        // Tables grow by doubling.
        2 * self.rows.len() * size_of::<Row>() >= self.limit
    }

    /// Ends the range before `next`: no more packs come.
    pub(crate) fn end_before(&mut self, next: Option<PackId>) {
        self.end = next;
    }

    fn holds(&self, pack: PackId) -> bool {
        self.from <= pack && self.end.is_none_or(|end| pack < end)
    }

    /// Adds the account of a pack; `None` if it cannot be read. Accounts, [`dead`](Packs::dead) and
    /// [`held`](Packs::held) packs come in the order of their numbers, and those of one number in this order.
    pub(crate) fn account(
        &mut self,
        pack: PackId,
        record: Option<PackRecord>,
        sink: &mut dyn Sink,
    ) {
        if let Some(why) = record.as_ref().and_then(impossible) {
            sink.found(Finding::BadPackAccount { pack, why });
        }
        let what = match record {
            Some(_) => What::Account,
            None => What::Unreadable,
        };
        self.push(pack, what, record);
    }

    /// Adds a pack that is to be deleted; `None` if its record cannot be read.
    pub(crate) fn dead(&mut self, pack: PackId, record: Option<&DeadPack>, sink: &mut dyn Sink) {
        match self.rows.last() {
            Some(row) if row.pack == pack => sink.found(Finding::DeadPackInUse {
                pack,
                bytes: row.record.live_bytes,
                why: "it has an account",
            }),
            _ => {
                self.push(pack, What::Dead, None);
                if let (Some(row), Some(record)) = (self.rows.last_mut(), record) {
                    // No snapshot refers to one that died before commits were counted.
                    row.died = Some(record.life.map_or_else(Default::default, |life| life.died));
                    row.record.born = record.life.map_or_else(Default::default, |life| life.born);
                }
            }
        }
    }

    /// Adds a dead pack that a snapshot holds; `None` if its record cannot be read.
    pub(crate) fn held(&mut self, pack: PackId, record: Option<&HeldPack>, sink: &mut dyn Sink) {
        match self.rows.last() {
            Some(row) if row.pack == pack && row.what == What::Dead => {
                sink.found(Finding::DeadPackInUse {
                    pack,
                    bytes: 0,
                    why: "a snapshot holds it",
                });
            }
            Some(row) if row.pack == pack => sink.found(Finding::HeldPackInUse {
                pack,
                bytes: row.record.live_bytes,
                why: "it has an account",
            }),
            _ => self.push(pack, What::Held, None),
        }
        let Some(row) = self.rows.last_mut() else {
            return;
        };
        row.hold = record.map_or(Hold::Unreadable, |record| Hold::By(record.holder, false));
        if matches!(row.what, What::Dead | What::Held) {
            row.what = record.map_or(What::UnreadableHeld, |_| What::Held);
            row.record.bytes = record.map_or(0, |record| record.life.bytes);
            row.record.born = record.map_or_else(Default::default, |record| record.life.born);
            row.died = record.map(|record| record.life.died);
        }
    }

    /// Judges the mark of a held pack under a snapshot. Every range receives all marks.
    pub(crate) fn mark(&mut self, snapshot: SnapshotId, pack: PackId, sink: &mut dyn Sink) {
        if !self.holds(pack) {
            return;
        }
        let row = self.find(pack).and_then(|at| self.rows.get_mut(at));
        let why = match row.map(|row| &mut row.hold) {
            Some(Hold::Unreadable) => return,
            Some(Hold::By(holder, is_marked)) if *holder == snapshot => {
                *is_marked = true;
                return;
            }
            Some(Hold::By(..)) => "is superfluous: another snapshot holds it",
            Some(Hold::None) | None => "contradicts the records of packs: no snapshot holds it",
        };
        sink.found(Finding::WrongMark {
            snapshot,
            pack,
            why,
        });
    }

    fn push(&mut self, pack: PackId, what: What, record: Option<PackRecord>) {
        let record = record.unwrap_or(PackRecord {
            bytes: 0,
            raw_bytes: 0,
            live_bytes: 0,
            frames: 0,
            born: Default::default(),
        });
        self.rows.push(Row {
            pack,
            what,
            record,
            died: None,
            hold: Hold::None,
            seen: None,
            live: 0,
            listed: None,
            sharers: 0,
            noted_sharers: 0,
        });
    }

    /// The pack with the highest number.
    pub(crate) fn highest(&self) -> Option<PackId> {
        self.rows.last().map(|row| row.pack)
    }

    /// Takes an extent of a block map, of `bytes` bytes. Every range receives all extents.
    pub(crate) fn refer(&mut self, frame: &FrameAddress, bytes: u64) {
        let pack = frame.pack;
        if let Some(row) = self.find(pack).and_then(|at| self.rows.get_mut(at)) {
            row.live = row.live.saturating_add(bytes);
        } else if self.holds(pack)
            && (self.strangers.len() < STRANGERS || self.strangers.contains_key(&pack))
        {
            let stranger = self.strangers.entry(pack).or_default();
            *stranger = stranger.saturating_add(bytes);
        }
    }

    /// Counts a block map that shares frames of this pack which were written for others. Every range receives all of
    /// them.
    pub(crate) fn shared(&mut self, pack: PackId) {
        if let Some(row) = self.find(pack).and_then(|at| self.rows.get_mut(at)) {
            row.sharers += 1;
        }
    }

    /// Judges a note on the content of some frames of a pack in this range.
    pub(crate) fn frames_note(&self, pack: PackId, note: Option<&PackFrames>, sink: &mut dyn Sink) {
        if self.find(pack).is_none() {
            let of = "the content of its frames";
            sink.found(Finding::NoteWithoutPack { pack, of });
            return;
        }
        let (Some(limit), Some(PackFrames(frames))) = (self.frames_end(pack), note) else {
            return;
        };
        for frame in frames {
            let reference = FrameRef {
                pack,
                offset: frame.offset,
                stored_len: frame.stored_len,
                start: frame.origin.start,
                raw_len: frame.raw_len,
                crc32: frame.crc32,
            };
            let begins = frame.offset as usize;
            let ends = reference.stored_range().end;
            if !reference.is_possible() || begins < PACK_HEADER_LEN || ends > limit {
                let offset = frame.offset;
                sink.found(Finding::ImpossibleNote { pack, offset });
            }
        }
    }

    /// Counts a note that a block shares frames of a pack in this range. The block may no longer share them.
    pub(crate) fn sharer_note(&mut self, pack: PackId, sink: &mut dyn Sink) {
        match self.find(pack).and_then(|at| self.rows.get_mut(at)) {
            Some(row) => row.noted_sharers += 1,
            None => {
                let of = "a block that shares its frames";
                sink.found(Finding::NoteWithoutPack { pack, of });
            }
        }
    }

    /// The first pack of the range, and the first one behind it.
    pub(crate) fn bounds(&self) -> (PackId, Option<PackId>) {
        (self.from, self.end)
    }

    /// Where the last frame of a pack ends at the latest, if it has a readable account in this range.
    pub(crate) fn frames_end(&self, pack: PackId) -> Option<u64> {
        let row = self.find(pack).and_then(|at| self.rows.get(at))?;
        (row.what == What::Account).then(|| row.record.bytes.saturating_sub(index_len(&row.record)))
    }

    /// Takes a pack in the bucket. Every range receives all packs of the bucket.
    pub(crate) fn listed(
        &mut self,
        pack: PackId,
        bytes: u64,
        state: Option<&VolumeState>,
        census: &mut Census,
    ) {
        if !self.holds(pack) {
            return;
        }
        if let Some(row) = self.find(pack).and_then(|at| self.rows.get_mut(at)) {
            row.listed = Some(bytes);
            return;
        }
        if self.strangers.contains_key(&pack) {
            // Reported as a finding of another kind.
            return;
        }
        // The gateway of the newest epoch may be uploading it: eagerly uploaded packs have lower numbers than the next
        // pack of a state that does not know them yet.
        match state {
            Some(state) if epoch_of(pack) < state.epoch.0 => {
                census.unreferenced_packs.add(bytes);
            }
            _ => census.packs_under_way.add(bytes),
        }
    }

    /// Takes a pack at a source of the clone. Those that the clone does not refer to are no concern of it.
    pub(crate) fn listed_at_source(&mut self, pack: PackId, bytes: u64) {
        if self.holds(pack)
            && let Some(row) = self.find(pack).and_then(|at| self.rows.get_mut(at))
        {
            row.listed = Some(bytes);
        }
    }

    /// Called after the last record, before the bucket is listed. `maps_are_unknown` if some block map cannot be read.
    pub(crate) fn judge_accounts(
        &self,
        maps_are_unknown: bool,
        census: &mut Census,
        sink: &mut dyn Sink,
    ) {
        for (&pack, &bytes) in &self.strangers {
            sink.found(Finding::PackWithoutAccount { pack, bytes });
        }
        for row in &self.rows {
            let (pack, is) = (row.pack, row.live);
            if row.noted_sharers < row.sharers {
                let (says, is) = (row.noted_sharers, row.sharers);
                sink.found(Finding::MissingSharers { pack, says, is });
            }
            if let Hold::By(snapshot, false) = row.hold {
                let why = "is missing";
                sink.found(Finding::WrongMark {
                    snapshot,
                    pack,
                    why,
                });
            }
            match row.what {
                What::Account => {
                    census.packs.add(row.record.bytes);
                    let says = row.record.live_bytes;
                    if says != is && !maps_are_unknown {
                        sink.found(Finding::WrongLiveBytes { pack, says, is });
                    }
                    // Bytes that several blocks share are live once for each block.
                    if says > row.record.raw_bytes && row.sharers == 0 && !maps_are_unknown {
                        let why =
                            "it has more live bytes than bytes, but no block shares its frames";
                        sink.found(Finding::BadPackAccount { pack, why });
                    }
                }
                What::Unreadable => census.packs.add(0),
                What::Dead => {
                    census.dead_packs += 1;
                    if is > 0 {
                        sink.found(Finding::DeadPackInUse {
                            pack,
                            bytes: is,
                            why: "block maps refer to it",
                        });
                    }
                }
                What::Held | What::UnreadableHeld => {
                    census.held_packs.add(row.record.bytes);
                    if is > 0 {
                        sink.found(Finding::HeldPackInUse {
                            pack,
                            bytes: is,
                            why: "block maps refer to it",
                        });
                    }
                }
            }
        }
    }

    /// Called after the bucket is listed. Returns the packs that are missing or of another length than their records
    /// say, which is no finding if a gateway has deleted them since the moment of the metadata.
    pub(crate) fn suspects(&self, snapshots: &Snapshots) -> Vec<Finding> {
        let rows = self.rows.iter();
        let known = rows.filter(|row| matches!(row.what, What::Account | What::Held));
        let suspects = known.filter_map(|row| {
            let (pack, says) = (row.pack, row.record.bytes);
            let object = object_name(pack);
            let snapshots = || snapshots.referring(row.record.born, row.died);
            match row.listed {
                None => Some(Finding::MissingPack {
                    pack,
                    object,
                    snapshots: snapshots(),
                }),
                Some(is) if is != says => Some(Finding::WrongPackLength {
                    pack,
                    object,
                    says,
                    is,
                    snapshots: snapshots(),
                }),
                Some(_) => None,
            }
        });
        suspects.collect()
    }

    /// Packs whose objects have the right length.
    pub(crate) fn sound(&self) -> impl Iterator<Item = Sound> {
        let known = self
            .rows
            .iter()
            .filter(|row| matches!(row.what, What::Account | What::Held));
        let sound = known.filter(|row| row.listed == Some(row.record.bytes));
        sound.map(|row| Sound {
            pack: row.pack,
            bytes: row.record.bytes,
            account: (row.what == What::Account).then_some(row.record),
            born: row.record.born,
            died: row.died,
        })
    }

    fn find(&self, pack: PackId) -> Option<usize> {
        self.rows.binary_search_by_key(&pack, |row| row.pack).ok()
    }
}

/// Number of bytes behind the frames of a pack.
pub(crate) fn index_len(record: &PackRecord) -> u64 {
    u64::from(record.frames) * INDEX_ENTRY_LEN as u64 + INDEX_FOOTER_LEN as u64
}

pub(crate) fn impossible(record: &PackRecord) -> Option<&'static str> {
    let frames = u64::from(record.frames);
    let least = PACK_HEADER_LEN as u64 + frames * (FRAME_HEADER_LEN as u64 + 1) + index_len(record);
    if record.live_bytes == 0 {
        Some("it has no live bytes, so it should have been deleted")
    } else if record.raw_bytes > frames * MAX_FRAME_LEN as u64 {
        Some("it has more bytes than its frames can hold")
    } else if record.bytes < least || record.bytes > forebay_pack::MAX_PACK_LEN as u64 {
        Some("its length does not fit its number of frames")
    } else {
        None
    }
}
