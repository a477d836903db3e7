//! Which frame lies where, and which region is given up next. No I/O.
//!
//! ```text
//!            turn: oldest first                          being filled
//!   [ region 4 | region 7 | region 0 | region 2 | ... ]   [ region 5 ]
//!        |                                           ^         |
//!        | read much since its last turn: once more -'         | full
//!        | else its frames are forgotten                       |
//!        '---------------> filled anew                         '-> at the end of the turn
//! ```

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::FrameKey;
use crate::layout::{ENTRY_HEADER, Entry, Life, MAX_ENTRIES, REGION_HEADER, index_bytes};
use crate::recovery::Found;

/// A region is spared when at least this part of its bytes was read since its turn last came.
const SPARED_FROM: u64 = 4;

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) region: usize,
    pub(crate) at: u32,
    pub(crate) len: u32,
    /// Its region's; another one by the time it was read means that it was something else that was read.
    pub(crate) salt: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    region: u16,
    /// Found by the start: written by an earlier run.
    earlier: bool,
    at: u32,
    len: u32,
}

#[derive(Debug)]
struct Region {
    /// Salt of no life: nothing was ever in it.
    life: Life,
    entries: Vec<Entry>,
    /// Where the next entry's header goes.
    end: u64,
    bytes_read: u64,
}

/// A region, its salt, and where in it the frames go.
pub(crate) type Placed = (usize, u64, Vec<(Entry, Bytes)>);

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
    /// All regions but the one that is being filled; who comes first is given up next.
    turn: VecDeque<usize>,
    filled: usize,
    region_bytes: u64,
    last_order: u64,
}

impl Table {
    /// Of what was found in each region: its life, and its entries in the order in which they were written.
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
                // Of a frame that is there twice the newer one counts: what was damaged was fetched again.
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

    /// Where the frame lies, for one who will read it.
    pub(crate) fn find(&mut self, key: &FrameKey) -> Option<Place> {
        let slot = self.slots.get(key)?;
        let region = self.regions.get_mut(usize::from(slot.region))?;
        region.bytes_read += u64::from(slot.len);
        Some(Place {
            region: usize::from(slot.region),
            at: slot.at,
            len: slot.len,
            salt: region.life.salt,
        })
    }

    /// Whether what lies at `place` is what lay there when it was found.
    pub(crate) fn is_still(&self, place: &Place) -> bool {
        let region = self.regions.get(place.region);
        region.is_some_and(|region| region.life.salt == place.salt)
    }

    /// Forgets the frame. `true` if an earlier run had written it.
    pub(crate) fn forget(&mut self, key: &FrameKey) -> bool {
        self.slots.remove(key).is_some_and(|slot| slot.earlier)
    }

    /// The region that is being filled, its salt, and its entries.
    pub(crate) fn filled(&self) -> Option<(usize, u64, &[Entry])> {
        let region = self.regions.get(self.filled)?;
        let has_life = region.life != EMPTY;
        has_life.then_some((self.filled, region.life.salt, &region.entries))
    }

    /// Sets place aside, in the region that is being filled, for as many of the frames as fit, and takes those. `None` if
    /// none does. They are found once they are [added](Self::add), which or [`take_back`](Self::take_back) comes next.
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
            let (at, len) = (at as u32, frame.len() as u32);
            let entry = Entry { key: *key, at, len };
            region.end = end;
            region.entries.push(entry);
            placed.extend(frames.pop_front().map(|(_, frame)| (entry, frame)));
        }
        (!placed.is_empty()).then_some((self.filled, region.life.salt, placed))
    }

    /// From now on these are found at the places that were set aside for them, and are there.
    pub(crate) fn add(&mut self, placed: &[(Entry, Bytes)]) {
        for (entry, _) in placed {
            self.slots
                .insert(entry.key, slot(self.filled, entry, false));
        }
    }

    /// Nothing was written to these places.
    pub(crate) fn take_back(&mut self, placed: &[(Entry, Bytes)]) {
        let region = self.regions.get_mut(self.filled);
        if let (Some(region), Some((first, _))) = (region, placed.first()) {
            region.entries.retain(|entry| entry.at < first.at);
            region.end = u64::from(first.at) - ENTRY_HEADER as u64;
        }
    }

    /// Begins a region anew: what was in it is forgotten. `None` if there are no regions.
    pub(crate) fn begin(&mut self, salt: u64) -> Option<(usize, Life)> {
        // Who is spared once has nothing left to be spared for.
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
        for entry in former.entries {
            let is_it = |slot: &Slot| usize::from(slot.region) == next && slot.at == entry.at;
            if self.slots.get(&entry.key).is_some_and(is_it) {
                self.slots.remove(&entry.key);
            }
        }
        self.filled = next;
        Some((next, life))
    }
}

fn slot(region: usize, entry: &Entry, earlier: bool) -> Slot {
    Slot {
        region: region as u16,
        earlier,
        at: entry.at,
        len: entry.len,
    }
}
