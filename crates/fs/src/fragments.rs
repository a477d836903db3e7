//! Blocks whose bytes the bucket has in many places, so that a reader of all of them needs many GETs.
//!
//! ```text
//!   published, or read ----------> known -----------------> due ----------> copied into one place -----> at rest
//!     a map that needs               |  no publication        the worst       by the collector             |
//!     several GETs                   |  for a while           first                                        |
//!                                    '-- published again: the while begins again                           |
//!                       fragmented again: the next rest is twice as long -- for ten times as long, then ---'
//! ```
//!
//! The list is in memory and bounded. A gateway that starts has an empty one; the first reader of a block finds it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use forebay_meta::record::{BlockMap, Extent};
use forebay_pack_store::{Gaps, spans};
use forebay_types::{BLOCK_SIZE, BlockKey};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most blocks in the list: 64 GiB of files.
const MOST: usize = 16 << 10;
/// A block with more GETs is fragmented. A reader in a row gets about 2 MiB ahead at once, so that blocks in two places
/// take about one GET for each MiB.
const ENOUGH: usize = 2;
/// The same for a block with less than half of its bytes, which gains too little to be copied for so few GETs.
const ENOUGH_FOR_A_SHORT_ONE: usize = 4;
/// The first rest of a block, as a multiple of the time that it must not have been published.
const FIRST_REST: u32 = 10;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// See the module's documentation.
pub(crate) struct Fragments {
    /// How long a block must not have been published; `None` if blocks are not copied at all.
    quiet: Option<Duration>,
    blocks: Mutex<BTreeMap<BlockKey, Known>>,
    /// Notified when a reader has found a block.
    found: Notify,
}

/// A block in the list.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// How many GETs bring all of it; 0 if it is in the list for its rest alone.
    gets: usize,
    /// Bytes that the bucket has of it.
    bytes: u64,
    /// How often it was published since it is in the list.
    publications: u64,
    /// When it may be copied, unless it is at rest.
    due: Instant,
    rest: Option<Rest>,
}

/// A time in which a block is not copied, whatever is published.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// Blocks that are to be copied together, in the order of their keys from the worst one on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// With each block how often it had been published.
    pub(crate) blocks: Vec<(BlockKey, u64)>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
}

/// How many GETs a reader needs for all of these.
pub(crate) fn gets<'a>(extents: impl Iterator<Item = &'a Extent>) -> usize {
    let place = |extent: &&Extent| {
        let (frame, start) = (&extent.frame, u64::from(extent.frame.offset));
        (frame.pack, start..start + u64::from(frame.stored_len))
    };
    spans(extents.collect(), place, Gaps::Limited).len()
}

/// How many GETs the map needs, if it is fragmented.
fn fragmented(map: &BlockMap) -> Option<usize> {
    // Mostly there are few extents, and nothing has to be sorted.
    if map.extents().len() <= ENOUGH {
        return None;
    }
    let enough = match map.mapped_bytes() < BLOCK_SIZE / 2 {
        true => ENOUGH_FOR_A_SHORT_ONE,
        false => ENOUGH,
    };
    Some(gets(map.extents().iter())).filter(|gets| *gets > enough)
}

impl Fragments {
    /// A list of blocks that may be copied when they were not published for the time `quiet`; with `None` it stays empty.
    pub(crate) fn new(quiet: Option<Duration>) -> Fragments {
        Fragments {
            quiet,
            blocks: Mutex::default(),
            found: Notify::new(),
        }
    }

    /// Notes that this map was published.
    pub(crate) fn published(&self, block: BlockKey, map: &BlockMap) {
        let Some(quiet) = self.quiet else { return };
        let due = Instant::now() + quiet;
        self.note(block, map, due, |known| {
            known.due = due;
            known.publications += 1;
        });
    }

    /// Notes that a reader has met this published map.
    pub(crate) fn read(&self, block: BlockKey, map: &BlockMap) {
        if self.quiet.is_some() && self.note(block, map, Instant::now(), |_| {}) {
            self.found.notify_one();
        }
    }

    /// Returns whether the block was not known as fragmented before. `due` is for one that was not in the list, `again` for
    /// one that was.
    fn note(
        &self,
        block: BlockKey,
        map: &BlockMap,
        due: Instant,
        again: impl FnOnce(&mut Known),
    ) -> bool {
        let (gets, bytes) = (fragmented(map), map.mapped_bytes());
        let mut blocks = self.blocks.lock();
        if let Some(known) = blocks.get_mut(&block) {
            let is_new = known.gets == 0 && gets.is_some();
            (known.gets, known.bytes) = (gets.unwrap_or(0), bytes);
            again(known);
            if gets.is_none() && known.rest.is_none() {
                blocks.remove(&block);
            }
            return is_new;
        }
        let Some(gets) = gets.filter(|_| blocks.len() < MOST) else {
            return false;
        };
        let known = Known {
            gets,
            bytes,
            publications: 0,
            due,
            rest: None,
        };
        blocks.insert(block, known);
        true
    }

    /// The block that needs the most GETs of those that are due, and further ones that are due, up to `most_bytes` in all.
    /// They stay in the list until they are at [rest](Self::rest).
    pub(crate) fn next_group(&self, most_bytes: u64) -> Group {
        let now = Instant::now();
        let mut blocks = self.blocks.lock();
        blocks.retain(|_, known| known.gets > 0 || known.rest.is_some_and(|rest| rest.counts(now)));
        let due = |(_, known): &(&BlockKey, &Known)| known.is_due(now);
        let worst = blocks.iter().filter(due);
        let Some((worst, _)) = worst.max_by_key(|(key, known)| (known.gets, Reverse(**key))) else {
            return Group::default();
        };
        let mut group = Group::default();
        let in_order = blocks.range(worst..).chain(blocks.range(..worst));
        for (block, known) in in_order.filter(due) {
            if !group.blocks.is_empty() && group.bytes + known.bytes > most_bytes {
                break;
            }
            group.blocks.push((*block, known.publications));
            group.bytes += known.bytes;
        }
        group
    }

    /// Begins the rest of a block that was copied, or that gains nothing by a copy. `as_of` is the number of publications that
    /// its [group](Group) had for it: a block that was published since stays fragmented.
    pub(crate) fn rest(&self, block: BlockKey, as_of: u64) {
        let Some(quiet) = self.quiet else { return };
        let now = Instant::now();
        if let Some(known) = self.blocks.lock().get_mut(&block) {
            let last = known.rest.filter(|rest| rest.counts(now));
            let length = last.map_or(FIRST_REST * quiet, |rest| 2 * rest.length);
            let length = length.min(LONGEST_REST);
            known.rest = Some(Rest {
                until: now + length,
                length,
            });
            if known.publications == as_of {
                known.gets = 0;
            }
        }
    }

    /// When the next block is due; `None` if there is none.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let blocks = self.blocks.lock();
        let fragmented = blocks.values().filter(|known| known.gets > 0);
        fragmented.map(Known::may_be_copied).min()
    }

    /// Number of blocks that are known to be fragmented.
    pub(crate) fn len(&self) -> usize {
        let blocks = self.blocks.lock();
        blocks.values().filter(|known| known.gets > 0).count()
    }

    /// Returns when a reader has found a block since the last call.
    pub(crate) async fn found(&self) {
        self.found.notified().await;
    }
}

impl Known {
    fn may_be_copied(&self) -> Instant {
        self.rest.map_or(self.due, |rest| rest.until.max(self.due))
    }

    fn is_due(&self, now: Instant) -> bool {
        self.gets > 0 && self.may_be_copied() <= now
    }
}

impl Rest {
    /// Whether the length of the next rest depends on this one.
    fn counts(&self, now: Instant) -> bool {
        now < self.until + self.length
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::record::FrameAddress;
    use forebay_types::{BlockIndex, ByteRange, Inode, PackId};

    use super::*;

    const QUIET: Duration = Duration::from_secs(60);
    const MIB: u64 = 1 << 20;

    fn key(block: u64) -> BlockKey {
        BlockKey {
            inode: Inode(7),
            block: BlockIndex(block),
        }
    }

    /// A map of `bytes` whose parts take turns in this many packs.
    fn map(bytes: u64, packs: u64) -> BlockMap {
        const PART: u64 = 16 << 10;
        let mut map = BlockMap::new();
        for part in 0..bytes / PART {
            let start = part * PART;
            let frame = FrameAddress {
                pack: PackId(part % packs),
                offset: (part / packs * PART) as u32,
                stored_len: PART as u32,
                raw_len: PART as u32,
                raw_start: start as u32,
                crc32: 0,
                origin: None,
            };
            map.insert(ByteRange::at(start, PART), frame).unwrap();
        }
        map
    }

    fn keys(group: Group) -> Vec<BlockKey> {
        group.blocks.into_iter().map(|(block, _)| block).collect()
    }

    /// Has the next group copied.
    fn copied(fragments: &Fragments, most_bytes: u64) -> Group {
        let group = fragments.next_group(most_bytes);
        for (block, as_of) in &group.blocks {
            fragments.rest(*block, *as_of);
        }
        group
    }

    #[test]
    fn more_than_two_gets_are_too_many_and_more_than_four_for_a_short_block() {
        for (bytes, packs, expected) in [
            (BLOCK_SIZE, 2, None),
            (BLOCK_SIZE, 3, Some(3)),
            (BLOCK_SIZE / 2, 3, Some(3)),
            (MIB, 4, None),
            (MIB / 4, 4, None),
            (MIB / 4, 5, Some(5)),
        ] {
            assert_eq!(fragmented(&map(bytes, packs)), expected, "{bytes} {packs}");
        }
        assert_eq!(fragmented(&BlockMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_block_is_due_when_it_was_not_published_for_a_while() {
        let fragments = Fragments::new(Some(QUIET));
        fragments.published(key(1), &map(BLOCK_SIZE, 9));
        tokio::time::advance(QUIET / 2).await;
        fragments.published(key(1), &map(BLOCK_SIZE, 10));
        tokio::time::advance(QUIET / 2).await;
        assert_eq!(fragments.next_group(BLOCK_SIZE), Group::default());
        assert_eq!(fragments.next_due(), Some(Instant::now() + QUIET / 2));
        tokio::time::advance(QUIET / 2).await;
        assert_eq!(keys(fragments.next_group(BLOCK_SIZE)), [key(1)]);
        // A reader does not put it off, and knows nothing of the last publication.
        fragments.read(key(1), &map(BLOCK_SIZE, 10));
        fragments.read(key(2), &map(BLOCK_SIZE, 5));
        let group = fragments.next_group(2 * BLOCK_SIZE);
        assert_eq!(group.bytes, 2 * BLOCK_SIZE);
        assert_eq!(keys(group), [key(1), key(2)]);
        // It was written in one piece meanwhile.
        fragments.published(key(1), &map(BLOCK_SIZE, 1));
        fragments.read(key(2), &map(BLOCK_SIZE, 1));
        assert_eq!((fragments.len(), fragments.next_due()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_block_that_is_fragmented_again_and_again_rests_longer_and_longer() {
        let fragments = Fragments::new(Some(QUIET));
        let scatter = || fragments.published(key(1), &map(BLOCK_SIZE, 9));
        let mut rest = FIRST_REST * QUIET;
        for _ in 0..9 {
            scatter();
            tokio::time::advance(QUIET).await;
            let group = fragments.next_group(BLOCK_SIZE);
            assert_eq!(keys(group), [key(1)]);
            copied(&fragments, BLOCK_SIZE);
            assert_eq!((fragments.len(), fragments.next_due()), (0, None));
            // It is written at random again, at once.
            scatter();
            tokio::time::advance(rest - QUIET).await;
            assert_eq!(fragments.next_group(BLOCK_SIZE), Group::default());
            tokio::time::advance(QUIET / 2).await;
            assert_eq!(fragments.next_due(), Some(Instant::now() + QUIET / 2));
            tokio::time::advance(QUIET / 2).await;
            rest = (2 * rest).min(LONGEST_REST);
        }
        assert_eq!(rest, LONGEST_REST);
        assert_eq!(keys(copied(&fragments, BLOCK_SIZE)), [key(1)]);
        // It stays as it is for as long as it was left alone.
        tokio::time::advance(2 * LONGEST_REST).await;
        assert_eq!(fragments.next_group(BLOCK_SIZE), Group::default());
        assert!(fragments.blocks.lock().is_empty(), "nothing is kept for it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_published_during_the_copy_is_not_forgotten() {
        let fragments = Fragments::new(Some(QUIET));
        fragments.read(key(1), &map(BLOCK_SIZE, 9));
        let group = fragments.next_group(BLOCK_SIZE);
        fragments.published(key(1), &map(BLOCK_SIZE, 8));
        for (block, as_of) in group.blocks {
            fragments.rest(block, as_of);
        }
        assert_eq!(fragments.len(), 1);
        assert_eq!(
            fragments.next_due(),
            Some(Instant::now() + FIRST_REST * QUIET)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_worst_block_comes_first_with_those_behind_it() {
        let fragments = Fragments::new(Some(QUIET));
        for (block, packs) in [(0, 9), (4, 10), (5, 6), (6, 5), (8, 7)] {
            fragments.read(key(block), &map(BLOCK_SIZE, packs));
        }
        let group = |most| keys(fragments.next_group(most * BLOCK_SIZE));
        assert_eq!(group(2), [key(4), key(5)]);
        assert_eq!(group(5), [4, 5, 6, 8, 0].map(key));
        // One block is never too much.
        assert_eq!(group(0), [key(4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn blocks_that_are_equally_bad_are_copied_in_their_order() {
        let fragments = Fragments::new(Some(QUIET));
        for block in 0..6 {
            fragments.read(key(block), &map(BLOCK_SIZE, 9));
        }
        for blocks in [[0, 1], [2, 3], [4, 5]] {
            assert_eq!(keys(copied(&fragments, 2 * BLOCK_SIZE)), blocks.map(key));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_is_bounded_and_stays_empty_where_blocks_are_not_copied() {
        let fragments = Fragments::new(Some(QUIET));
        let map = map(MIB / 4, 5);
        for block in 0..=MOST as u64 {
            fragments.read(key(block), &map);
        }
        assert_eq!(fragments.len(), MOST);
        let off = Fragments::new(None);
        off.read(key(1), &map);
        off.published(key(1), &map);
        assert_eq!((off.len(), off.next_due()), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_finds_a_block_wakes_the_collector() {
        let fragments = Fragments::new(Some(QUIET));
        let is_woken = async || tokio::time::timeout(QUIET, fragments.found()).await.is_ok();
        fragments.read(key(1), &map(BLOCK_SIZE, 5));
        assert!(is_woken().await);
        fragments.read(key(1), &map(BLOCK_SIZE, 5));
        fragments.read(key(2), &map(BLOCK_SIZE, 1));
        assert!(!is_woken().await);
        // It gained nothing by a copy, and may now.
        copied(&fragments, BLOCK_SIZE);
        fragments.read(key(1), &map(BLOCK_SIZE, 5));
        assert!(is_woken().await);
    }
}
