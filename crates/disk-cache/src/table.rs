//! The place of each frame, and the order in which regions are reused. No I/O.
//!
//! ```text
//!            turn: oldest first                          being filled
//!   [ region 4 | region 7 | region 0 | region 2 | ... ]   [ region 5 ]
//!        |                                           ^         |
//!        | read much since its last turn: skipped ---'         | full
//!        | otherwise its frames are dropped                    |
//!        '---------------> filled again                        '-> at the end of the turn
//! ```

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use forebay_types::{bounded_u32, to_usize};

use crate::FrameKey;
use crate::layout::{ENTRY_HEADER, Entry, Life, MAX_ENTRIES, REGION_HEADER, index_bytes};
use crate::recovery::Found;

/// A region is skipped if the bytes read from it since its last turn are at least one part in this many of its bytes.
const SPARED_FROM: u64 = 4;

/// The place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLocation {
    pub(crate) region: usize,
    pub(crate) at: u32,
    pub(crate) len: u32,
    /// Salt of its region. If it has changed by the time the frame was read, other bytes were read.
    pub(crate) salt: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    region: u16,
    /// Found at the start: written by an earlier run.
    earlier: bool,
    at: u32,
    len: u32,
}

#[derive(Debug)]
struct Region {
    /// With a salt of no life if the region was never used.
    life: Life,
    entries: Vec<Entry>,
    /// Offset of the next entry's header.
    end: u64,
    bytes_read: u64,
}

/// A region, its salt, and the places of the frames in it.
pub(crate) type Placed = (usize, u64, Vec<(Entry, Bytes)>);

/// A region that is about to be filled again.
pub(crate) struct Begun {
    pub(crate) region: usize,
    pub(crate) life: Life,
    /// The frames that it had, and their bytes.
    pub(crate) dropped: u64,
    pub(crate) dropped_bytes: u64,
}

const EMPTY: Life = Life { order: 0, salt: 0 };

impl Region {
    fn new(life: Life) -> Region {
        Region {
            life,
            entries: Vec::new(),
            end: REGION_HEADER as u64,
            bytes_read: 0,
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Table {
    slots: HashMap<FrameKey, Slot>,
    regions: Vec<Region>,
    /// All regions but the one that is being filled. The first one is reused next.
    turn: VecDeque<usize>,
    filled: usize,
    region_bytes: u64,
    last_order: u64,
}

impl Table {
    /// `found` is, for each region, its life and its entries in the order in which they were written.
    pub(crate) fn new(region_bytes: u64, found: Vec<Option<Found>>) -> Table {
        let regions = found.into_iter().map(|found| {
            let Some((life, entries)) = found else {
                return Region::new(EMPTY);
            };
            Region {
                end: entries.last().map_or(REGION_HEADER as u64, Entry::end),
                entries,
                ..Region::new(life)
            }
        });
        let regions: Vec<Region> = regions.collect();
        let mut by_age: Vec<usize> = (0..regions.len()).collect();
        by_age.sort_by_key(|region| regions[*region].life.order);
        let mut slots = HashMap::new();
        for region in &by_age {
            for entry in &regions[*region].entries {
                // If a frame is there twice, the newer one counts: a damaged frame was fetched again.
                slots.insert(entry.key, slot(*region, entry, true));
            }
        }
        let mut turn = VecDeque::from(by_age);
        let filled = turn.pop_back().unwrap_or_default();
        let last_order = regions.get(filled).map_or(0, |region| region.life.order);
        Table {
            slots,
            regions,
            turn,
            filled,
            region_bytes,
            last_order,
        }
    }

    pub(crate) fn has(&self, key: &FrameKey) -> bool {
        self.slots.contains_key(key)
    }

    /// The place of the frame, for a reader.
    pub(crate) fn find(&mut self, key: &FrameKey) -> Option<FrameLocation> {
        let slot = self.slots.get(key)?;
        let region = self.regions.get_mut(usize::from(slot.region))?;
        region.bytes_read += u64::from(slot.len);
        Some(FrameLocation {
            region: usize::from(slot.region),
            at: slot.at,
            len: slot.len,
            salt: region.life.salt,
        })
    }

    /// Whether `place` still holds the frame that it held when it was found.
    pub(crate) fn is_still(&self, place: &FrameLocation) -> bool {
        let region = self.regions.get(place.region);
        region.is_some_and(|region| region.life.salt == place.salt)
    }

    /// Bytes of all regions that are in use, up to the end of their last frame.
    pub(crate) fn used_bytes(&self) -> u64 {
        let used = self.regions.iter().filter(|region| region.life != EMPTY);
        used.map(|region| region.end).sum()
    }

    /// Removes the frame. Returns `true` if an earlier run had written it.
    pub(crate) fn forget(&mut self, key: &FrameKey) -> bool {
        self.slots.remove(key).is_some_and(|slot| slot.earlier)
    }

    /// The region that is being filled, its salt, and its entries.
    pub(crate) fn filled(&self) -> Option<(usize, u64, &[Entry])> {
        let region = self.regions.get(self.filled)?;
        let has_life = region.life != EMPTY;
        has_life.then_some((self.filled, region.life.salt, &region.entries))
    }

    /// Reserves room in the region that is being filled for as many of the frames as fit, and removes those from
    /// `frames`. `None` if none fits. They are found once they are [added](Self::add). The next call is that or
    /// [`take_back`](Self::take_back).
    pub(crate) fn place(&mut self, frames: &mut VecDeque<(FrameKey, Bytes)>) -> Option<Placed> {
        let region = self.regions.get_mut(self.filled)?;
        if region.life == EMPTY {
            return None;
        }
        let mut placed = Vec::new();
        while let Some((key, frame)) = frames.front() {
            let at = region.end + ENTRY_HEADER as u64;
            let end = at + frame.len() as u64;
            let entries = region.entries.len() + 1;
            let fits =
                entries <= MAX_ENTRIES && end + index_bytes(entries) as u64 <= self.region_bytes;
            if !fits {
                break;
            }
            // A region has at most 2 GiB.
            let (at, len) = (bounded_u32(to_usize(at)), bounded_u32(frame.len()));
            let entry = Entry { key: *key, at, len };
            region.end = end;
            region.entries.push(entry);
            placed.extend(frames.pop_front().map(|(_, frame)| (entry, frame)));
        }
        (!placed.is_empty()).then_some((self.filled, region.life.salt, placed))
    }

    /// The frames are written at the places that were reserved for them, and can be found from now on.
    pub(crate) fn add(&mut self, placed: &[(Entry, Bytes)]) {
        for (entry, _) in placed {
            self.slots
                .insert(entry.key, slot(self.filled, entry, false));
        }
    }

    /// Nothing was written to the reserved places.
    pub(crate) fn take_back(&mut self, placed: &[(Entry, Bytes)]) {
        let region = self.regions.get_mut(self.filled);
        if let (Some(region), Some((first, _))) = (region, placed.first()) {
            region.entries.retain(|entry| entry.at < first.at);
            region.end = u64::from(first.at) - ENTRY_HEADER as u64;
        }
    }

    /// Reuses the next region: its entries are dropped. `None` if there are no regions.
    pub(crate) fn begin(&mut self, salt: u64) -> Option<Begun> {
        // Ends, because a skipped region has no reads left for which it would be skipped again.
        let next = loop {
            let Some(next) = self.turn.pop_front() else {
                break self.filled;
            };
            let region = self.regions.get_mut(next)?;
            if region.bytes_read * SPARED_FROM < region.end {
                self.turn.push_back(self.filled);
                break next;
            }
            region.bytes_read = 0;
            self.turn.push_back(next);
        };
        self.last_order = self.last_order.saturating_add(1);
        let life = Life {
            order: self.last_order,
            salt,
        };
        let former = std::mem::replace(self.regions.get_mut(next)?, Region::new(life));
        let (mut dropped, mut dropped_bytes) = (0, 0);
        for entry in former.entries {
            let is_it = |slot: &Slot| usize::from(slot.region) == next && slot.at == entry.at;
            if self.slots.get(&entry.key).is_some_and(is_it) {
                self.slots.remove(&entry.key);
                dropped += 1;
                dropped_bytes += u64::from(entry.len);
            }
        }
        self.filled = next;
        Some(Begun {
            region: next,
            life,
            dropped,
            dropped_bytes,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "there are at most MAX_REGIONS regions"
)]
fn slot(region: usize, entry: &Entry, earlier: bool) -> Slot {
    Slot {
        region: region as u16,
        earlier,
        at: entry.at,
        len: entry.len,
    }
}
