//! The decisions of the scrub: which packs it reads and when, in which pieces, and which work precedes it. No I/O and
//! no clock.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use forebay_meta::record::ScrubRecord;
use forebay_pack::IndexEntry;
use forebay_types::PackId;
use tokio::time::Instant;

use super::known::Known;

/// The most bytes of a pack that are read at once: the largest frame fits.
pub(super) const MAX_PIECE: u64 = (4 << 20) + (64 << 10);

/// How long other tasks may keep the scrub from reading its next piece.
pub(super) const COURTESY_LIMIT: Duration = Duration::from_secs(5);

/// A pack to read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    /// The time of its last check, in seconds since 1970; those without a check come first.
    pub(super) checked: Option<u64>,
    pub(super) pack: PackId,
    pub(super) bytes: u64,
    /// Number of its frames; `None` of a held pack, whose index has it.
    pub(super) frames: Option<u32>,
}

/// The checks of all packs, from the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) packs: u64,
    pub(super) bytes: u64,
    /// Of these, packs that only snapshots hold.
    pub(super) held_packs: u64,
    pub(super) held_bytes: u64,
    /// Packs that were never read back.
    pub(super) never: u64,
    pub(super) oldest: Option<u64>,
    pub(super) newest: Option<u64>,
}

impl Survey {
    pub(super) fn add(&mut self, known: &Known, check: Option<&ScrubRecord>) {
        self.packs += 1;
        self.bytes += known.life.bytes;
        if known.frames.is_none() {
            self.held_packs += 1;
            self.held_bytes += known.life.bytes;
        }
        let Some(check) = check else {
            self.never += 1;
            return;
        };
        let checked = check.checked;
        self.oldest = Some(self.oldest.map_or(checked, |oldest| oldest.min(checked)));
        self.newest = Some(self.newest.map_or(checked, |newest| newest.max(checked)));
    }

    /// When the next round begins without an order, in seconds since 1970. A round begins when half of the interval
    /// has passed since a pack was read back, and reads all packs that were not read within that half: so none is
    /// left out for longer than the interval. A round that a restart has cut short continues when the first pack is
    /// overdue.
    pub(super) fn next_round(&self, now: u64, interval: u64) -> u64 {
        let half = (interval / 2).max(1);
        match (self.oldest, self.newest) {
            (Some(oldest), Some(newest)) => (newest + half).min(oldest + interval),
            // No pack was ever read back: now. There are no packs: look again later.
            _ if self.packs > 0 => now,
            _ => now + half,
        }
    }
}

/// The packs whose last check is the oldest, as many as fit.
pub(super) struct Queue {
    most: usize,
    /// The pack with the latest check on top.
    due: BinaryHeap<Due>,
    /// Number of all packs, with those that did not fit, and their bytes.
    pub(super) packs: u64,
    pub(super) bytes: u64,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue {
            most,
            due: BinaryHeap::new(),
            packs: 0,
            bytes: 0,
        }
    }

    pub(super) fn add(&mut self, due: Due) {
        self.packs += 1;
        self.bytes += due.bytes;
        self.due.push(due);
        if self.due.len() > self.most {
            self.due.pop();
        }
    }

    /// Whether some packs did not fit.
    pub(super) fn has_more(&self) -> bool {
        self.packs > self.due.len() as u64
    }

    /// The packs, the one with the oldest check first.
    pub(super) fn into_order(self) -> Vec<Due> {
        self.due.into_sorted_vec()
    }
}

/// Frames that are read at once, and their byte range. The range of the first piece begins with the pack's header.
pub(super) struct Piece {
    pub(super) range: Range<u64>,
    pub(super) entries: Vec<IndexEntry>,
}

/// Divides the frames of a pack, which adjoin, into pieces.
pub(super) fn pieces(entries: &[IndexEntry]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for entry in entries {
        let stored = entry.frame.stored_range();
        match pieces.last_mut() {
            Some(piece) if stored.end - piece.range.start <= MAX_PIECE => {
                piece.range.end = stored.end;
                piece.entries.push(*entry);
            }
            last => {
                let start = last.map_or(0, |piece| piece.range.end);
                pieces.push(Piece {
                    range: start..stored.end,
                    entries: vec![*entry],
                });
            }
        }
    }
    pieces
}

/// Enforces the rate.
pub(super) struct RateLimit {
    bytes_per_second: u64,
    next: Option<Instant>,
}

impl RateLimit {
    pub(super) fn new(bytes_per_second: u64) -> RateLimit {
        RateLimit {
            bytes_per_second: bytes_per_second.max(1),
            next: None,
        }
    }

    /// The time at which this many bytes may be requested. Unused time in the past is not made up for.
    pub(super) fn reserve(&mut self, bytes: u64, now: Instant) -> Instant {
        let start = self.next.map_or(now, |next| next.max(now));
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.next = Some(start + takes);
        start
    }
}

/// Yields to other tasks: the scrub waits while another task reads or uploads, but not forever, or a gateway that is
/// always busy would never be checked.
pub(super) struct Courtesy {
    until: Instant,
}

impl Courtesy {
    pub(super) fn new(now: Instant) -> Courtesy {
        Courtesy {
            until: now + COURTESY_LIMIT,
        }
    }

    pub(super) fn waits(&self, others: bool, now: Instant) -> bool {
        others && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use forebay_pack::FrameRef;
    use forebay_types::{BlockIndex, BlockKey, Inode};

    use super::*;

    const DAY: u64 = 86_400;

    fn due(checked: Option<u64>, pack: u64) -> Due {
        Due {
            checked,
            pack: PackId(pack),
            bytes: 10,
            frames: Some(1),
        }
    }

    #[test]
    fn the_oldest_come_first_and_those_that_never_were_before_them() {
        let mut queue = Queue::new(3);
        for (checked, pack) in [
            (Some(7), 1),
            (None, 9),
            (Some(5), 2),
            (None, 3),
            (Some(6), 4),
        ] {
            queue.add(due(checked, pack));
        }
        assert!(queue.has_more());
        assert_eq!((queue.packs, queue.bytes), (5, 50));
        let order: Vec<u64> = queue.into_order().iter().map(|due| due.pack.0).collect();
        assert_eq!(order, [3, 9, 2]);
    }

    fn survey(packs: u64, checks: &[u64]) -> Survey {
        let mut survey = Survey::default();
        let known = Known {
            pack: PackId(1),
            life: forebay_meta::record::PackLife {
                born: Default::default(),
                died: Default::default(),
                bytes: 1,
            },
            frames: Some(1),
        };
        for pack in 0..packs as usize {
            let check = checks.get(pack).map(|checked| ScrubRecord {
                checked: *checked,
                ..ScrubRecord::default()
            });
            survey.add(&known, check.as_ref());
        }
        survey
    }

    #[test]
    fn rounds_begin_so_that_no_pack_is_older_than_the_interval() {
        let now = 1000 * DAY;
        // Never scrubbed: now. No packs: later.
        assert_eq!(survey(3, &[]).next_round(now, 30 * DAY), now);
        assert_eq!(survey(0, &[]).next_round(now, 30 * DAY), now + 15 * DAY);
        // Half of the interval after the last pack, whether there are new packs or not.
        let done = [now - 3, now - 2, now - 1];
        assert_eq!(
            survey(3, &done).next_round(now, 30 * DAY),
            now - 1 + 15 * DAY
        );
        assert_eq!(
            survey(9, &done).next_round(now, 30 * DAY),
            now - 1 + 15 * DAY
        );
        // A round that was cut short continues when a pack would be overdue.
        let cut_short = [now - 1, now - 29 * DAY];
        assert_eq!(survey(2, &cut_short).next_round(now, 30 * DAY), now + DAY);
    }

    #[test]
    fn pieces_tile_a_pack_and_hold_at_least_a_frame() {
        let mut offset = 40;
        let lens = [100, MAX_PIECE as u32, 128 + (4 << 20), 7000, 7000];
        let entries: Vec<IndexEntry> = lens
            .iter()
            .map(|&stored_len| {
                let frame = FrameRef {
                    pack: PackId(1),
                    offset,
                    stored_len,
                    start: 0,
                    raw_len: 1,
                    crc32: 0,
                };
                offset += stored_len;
                let block = BlockKey {
                    inode: Inode(1),
                    block: BlockIndex(0),
                };
                IndexEntry { block, frame }
            })
            .collect();
        let pieces = pieces(&entries);
        let mut end = 0;
        for piece in &pieces {
            assert_eq!(piece.range.start, end);
            end = piece.range.end;
            assert!(piece.entries.len() == 1 || end - piece.range.start <= MAX_PIECE);
        }
        assert_eq!(end, u64::from(offset));
        let counts: Vec<usize> = pieces.iter().map(|piece| piece.entries.len()).collect();
        assert_eq!(counts, [1, 1, 3]);
    }

    #[test]
    fn the_rate_is_kept_and_pauses_are_not_made_up_for() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut rate = RateLimit::new(1000);
        assert_eq!(rate.reserve(500, at(0)), at(0));
        assert_eq!(rate.reserve(500, at(10)), at(500));
        assert_eq!(rate.reserve(500, at(5000)), at(5000));
        assert_eq!(rate.reserve(500, at(5000)), at(5500));
    }

    #[test]
    fn others_go_first_but_not_for_ever() {
        let begun = Instant::now();
        let courtesy = Courtesy::new(begun);
        assert!(!courtesy.waits(false, begun));
        assert!(courtesy.waits(true, begun));
        assert!(!courtesy.waits(true, begun + COURTESY_LIMIT));
    }
}
