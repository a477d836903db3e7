//! Damaged frames that readers and the scrub have found, and the state of each.
//!
//! ```text
//!   found ------------------> healed         memory or the disk cache has its bytes: uploaded again
//!     | a copy is looked for   partly healed  they have a part of its bytes
//!     | in the background      lost           they have none of its bytes
//!     v                        unused         no file needs it; snapshots may, if they refer to its pack
//!   named: the path of the file is looked for
//! ```
//!
//! It is a list for the operator, in memory and bounded. The metadata keep the damage in the [scrub's
//! records](forebay_meta::record::ScrubRecord), and readers find it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_meta::FrameAddress;
use forebay_pack::object_name;
use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most damaged frames in the list.
const MOST: usize = 1000;

/// The state of a damaged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageState {
    /// The healer still looks for a good copy.
    Found,
    /// All bytes of it that files need were available, and are uploaded again with the next checkpoint; or its pack was
    /// put again, for snapshots as well.
    Healed,
    /// Some of these bytes were available.
    PartlyHealed {
        /// Those that were not: reading them is an error.
        lost_bytes: u64,
    },
    /// No good copy is available: reading these bytes is an error until a client writes them again.
    Lost,
    /// No file needs it any more; snapshots that refer to its pack may.
    Unused,
}

/// A frame in the bucket whose bytes are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFrame {
    /// The pack that contains it.
    pub pack: PackId,
    /// The name of the pack's object below the volume's prefix.
    pub object: String,
    /// Where the frame begins in the object, in bytes.
    pub offset: u32,
    /// The file that has its bytes.
    pub inode: Inode,
    /// Where its bytes begin in the file.
    pub from: u64,
    /// Where they end.
    pub to: u64,
    /// A path of the file, from the volume's root; none if it has none, or is not known yet.
    pub path: Option<Vec<u8>>,
    /// What is wrong with the frame.
    pub why: String,
    /// The state of the frame.
    pub state: DamageState,
    /// The snapshots that refer to its pack, and may need it.
    pub snapshots: Vec<String>,
}

/// A frame of a block, as the task that finds it damaged knows it. A frame that several blocks share is several of
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockFrame {
    pub(crate) pack: PackId,
    pub(crate) offset: u32,
    pub(crate) block: BlockKey,
}

impl BlockFrame {
    pub(crate) fn of(block: BlockKey, address: &FrameAddress) -> BlockFrame {
        BlockFrame {
            pack: address.pack,
            offset: address.offset,
            block,
        }
    }
}

struct Entry {
    /// The range of its block that the frame holds.
    range: ByteRange,
    why: String,
    state: DamageState,
    /// Outer option: whether the path was looked for.
    path: Option<Option<Vec<u8>>>,
    snapshots: Vec<String>,
    /// Whether its bytes were never in the bucket, and the file may still have them as its newest.
    is_unwritten: bool,
    /// Whether only snapshots held its pack.
    is_held: bool,
    /// Whether it is whole in its pack, which was put again.
    in_place: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Damages {
    list: Mutex<List>,
    /// Whether bytes were lost on their way to the bucket.
    has_unwritten: AtomicBool,
    wake: Notify,
}

#[derive(Default)]
struct List {
    frames: BTreeMap<BlockFrame, Entry>,
    /// How many frames the list had no room for.
    more: u64,
    /// The files of those among them whose bytes were lost on their way to the bucket.
    more_unwritten: BTreeSet<Inode>,
    /// Packs that only snapshots hold, and whose frames cannot be found.
    blind: BTreeSet<PackId>,
}

impl Damages {
    /// Notes that a frame, which holds `range` of its block, is damaged. Returns whether it was unknown.
    pub(crate) fn note(&self, place: BlockFrame, range: ByteRange, why: &str) -> bool {
        let mut list = self.list.lock();
        if list.frames.contains_key(&place) {
            return false;
        }
        if list.frames.len() >= MOST && !list.make_room() {
            list.more += 1;
            return true;
        }
        let entry = Entry {
            range,
            why: why.to_owned(),
            state: DamageState::Found,
            path: None,
            snapshots: Vec::new(),
            is_unwritten: false,
            is_held: false,
            in_place: false,
        };
        list.frames.insert(place, entry);
        self.wake.notify_one();
        true
    }

    /// Notes a frame in place of bytes that were lost on their way to the bucket.
    pub(crate) fn note_unwritten(&self, place: BlockFrame, range: ByteRange, why: &str) {
        self.note(place, range, why);
        let mut list = self.list.lock();
        match list.frames.get_mut(&place) {
            Some(entry) => entry.is_unwritten = true,
            None => {
                list.more_unwritten.insert(place.block.inode);
            }
        }
        self.has_unwritten.store(true, Ordering::Release);
    }

    /// The frames of this file in place of bytes that were lost on their way to the bucket, unless they were
    /// [written again](Self::written_again). `None` if there are others, for which the list had no room: they are known until the next start.
    pub(crate) fn unwritten(&self, inode: Inode) -> Option<Vec<BlockFrame>> {
        if !self.has_unwritten.load(Ordering::Acquire) {
            return Some(Vec::new());
        }
        let list = self.list.lock();
        let is_of_it =
            |place: &BlockFrame, entry: &Entry| entry.is_unwritten && place.block.inode == inode;
        let frames = list.frames.iter();
        let unwritten = frames.filter(|(place, entry)| is_of_it(place, entry));
        let has_more = list.more_unwritten.contains(&inode);
        (!has_more).then(|| unwritten.map(|(place, _)| *place).collect())
    }

    /// Notes that the file has other bytes in place of these.
    pub(crate) fn written_again(&self, place: &BlockFrame) {
        if let Some(entry) = self.list.lock().frames.get_mut(place) {
            entry.is_unwritten = false;
        }
    }

    /// Notes the state of a damaged frame of a pack that snapshots refer to; `is_held` if they alone do. `Healed` means that
    /// the pack was put again. No file is looked for.
    pub(crate) fn note_settled(
        &self,
        (place, range): (BlockFrame, ByteRange),
        (why, state): (&str, DamageState),
        snapshots: &[String],
        is_held: bool,
    ) {
        let mut list = self.list.lock();
        if list.frames.len() >= MOST && !list.frames.contains_key(&place) && !list.make_room() {
            list.more += 1;
            return;
        }
        let entry = Entry {
            range,
            why: why.to_owned(),
            state,
            path: Some(None),
            snapshots: snapshots.to_vec(),
            is_unwritten: false,
            is_held,
            in_place: state == DamageState::Healed,
        };
        list.frames.insert(place, entry);
    }

    /// Notes the snapshots that refer to the pack of a damaged frame.
    pub(crate) fn refer(&self, place: &BlockFrame, snapshots: &[String]) {
        if let Some(entry) = self.list.lock().frames.get_mut(place) {
            entry.snapshots = snapshots.to_vec();
        }
    }

    /// Notes that a frame of a block is damaged, and logs it if it was unknown. The healer does the rest.
    pub(crate) fn report(&self, block: BlockKey, address: &FrameAddress, why: &str) {
        let range = address.raw_range();
        let place = BlockFrame::of(block, address);
        if self.note(place, range, why) {
            let begins = block.block.start();
            tracing::error!(
                "inode {}, bytes {} to {}, cannot be read: {why}; the rest of the file still can",
                block.inode,
                begins + range.start,
                begins + range.end,
            );
        }
    }

    /// Notes a pack that only snapshots hold, and none of whose frames can be found.
    pub(crate) fn note_blind(&self, pack: PackId) {
        let mut list = self.list.lock();
        if list.blind.len() < MOST {
            list.blind.insert(pack);
        }
    }

    /// Forgets the damaged frames of a pack that is about to be read again: those that are still damaged will be
    /// noted again. What was lost on its way to the bucket is known without that, and stays.
    pub(crate) fn forget(&self, pack: PackId) {
        let mut list = self.list.lock();
        let is_other = |place: &BlockFrame| place.pack != pack;
        list.frames
            .retain(|place, entry| is_other(place) || entry.is_unwritten);
        list.blind.remove(&pack);
    }

    /// Forgets damage in packs that snapshots held, and that are deleted now.
    pub(crate) fn released(&self, packs: &BTreeSet<PackId>) {
        let mut list = self.list.lock();
        list.blind.retain(|pack| !packs.contains(pack));
        let is_over =
            |place: &BlockFrame, entry: &Entry| entry.is_held && packs.contains(&place.pack);
        list.frames.retain(|place, entry| !is_over(place, entry));
    }

    /// Whether frames of this pack are known to be damaged.
    pub(crate) fn may_have(&self, pack: PackId) -> bool {
        let first = BlockFrame {
            pack,
            offset: 0,
            block: BlockKey {
                inode: Inode(0),
                block: BlockIndex(0),
            },
        };
        let list = self.list.lock();
        let next = list.frames.range(first..).next();
        list.more > 0 || next.is_some_and(|(place, _)| place.pack == pack)
    }

    /// Returns when the list may have changed.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// At most `limit` frames for which a good copy must be looked for.
    pub(crate) fn found(&self, limit: usize) -> Vec<BlockFrame> {
        let list = self.list.lock();
        let found = list
            .frames
            .iter()
            .filter(|(_, entry)| entry.state == DamageState::Found);
        found.map(|(place, _)| *place).take(limit).collect()
    }

    /// Sets the state of a frame.
    pub(crate) fn settle(&self, place: &BlockFrame, state: DamageState) {
        if let Some(entry) = self.list.lock().frames.get_mut(place) {
            entry.state = state;
        }
    }

    /// Files that lost bytes and whose paths were not looked for yet.
    pub(crate) fn nameless(&self) -> Vec<Inode> {
        let list = self.list.lock();
        let nameless = list.frames.iter().filter(|(_, entry)| entry.is_nameless());
        let mut inodes: Vec<Inode> = nameless.map(|(place, _)| place.block.inode).collect();
        inodes.dedup();
        inodes
    }

    /// Notes the path of a file, if it has one. Returns its damaged frames that had no path before.
    pub(crate) fn name(&self, inode: Inode, path: Option<&[u8]>) -> Vec<DamagedFrame> {
        let mut list = self.list.lock();
        let mut named = Vec::new();
        for (place, entry) in &mut list.frames {
            if place.block.inode == inode && entry.is_nameless() {
                entry.path = Some(path.map(<[u8]>::to_vec));
                named.push(entry.described(place));
            }
        }
        named
    }

    /// The list, and the number of frames for which it had no room.
    pub(crate) fn list(&self) -> (Vec<DamagedFrame>, u64) {
        let list = self.list.lock();
        let frames = list.frames.iter();
        let frames = frames.map(|(place, entry)| entry.described(place));
        (frames.collect(), list.more)
    }

    /// Number of frames with bytes that cannot be read, and of packs that cannot be read at all and that snapshots need.
    pub(crate) fn lost(&self) -> u64 {
        let list = self.list.lock();
        let lost = list.frames.values().filter(|entry| entry.has_lost());
        (lost.count() + list.blind.len()) as u64 + list.more
    }
}

impl List {
    /// Removes one frame that needs no attention any more. Returns whether there was one.
    fn make_room(&mut self) -> bool {
        let mut frames = self.frames.iter();
        let Some((&place, _)) = frames.find(|(_, entry)| !entry.has_lost()) else {
            return false;
        };
        self.frames.remove(&place).is_some()
    }
}

impl Entry {
    /// Whether bytes of the frame are known to be unreadable, in files or, as far as is known, in snapshots: their block
    /// maps go on to refer to the damaged frame when files are healed.
    fn has_lost(&self) -> bool {
        match self.state {
            DamageState::Found | DamageState::Lost | DamageState::PartlyHealed { .. } => true,
            DamageState::Healed | DamageState::Unused => {
                !self.in_place && !self.snapshots.is_empty()
            }
        }
    }

    fn is_nameless(&self) -> bool {
        let is_lost_in_a_file = matches!(
            self.state,
            DamageState::Lost | DamageState::PartlyHealed { .. }
        );
        self.path.is_none() && is_lost_in_a_file
    }

    fn described(&self, place: &BlockFrame) -> DamagedFrame {
        let block = place.block.block.start();
        DamagedFrame {
            pack: place.pack,
            object: object_name(place.pack),
            offset: place.offset,
            inode: place.block.inode,
            from: block.saturating_add(self.range.start),
            to: block.saturating_add(self.range.end),
            path: self.path.clone().flatten(),
            why: self.why.clone(),
            state: self.state,
            snapshots: self.snapshots.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::BlockIndex;

    use super::*;

    fn place(pack: u64, offset: u32) -> BlockFrame {
        BlockFrame {
            pack: PackId(pack),
            offset,
            block: BlockKey {
                inode: Inode(9),
                block: BlockIndex(1),
            },
        }
    }

    const RANGE: ByteRange = ByteRange { start: 4, end: 8 };

    #[test]
    fn a_frame_is_news_once_until_its_pack_is_read_again() {
        let damages = Damages::default();
        assert!(damages.note(place(1, 40), RANGE, "why"));
        assert!(!damages.note(place(1, 40), RANGE, "why"));
        damages.settle(&place(1, 40), DamageState::Lost);
        assert!(damages.found(10).is_empty());
        assert_eq!(damages.nameless(), [Inode(9)]);
        let named = damages.name(Inode(9), Some(b"/file"));
        assert_eq!(named.len(), 1);
        assert_eq!((named[0].from, named[0].to), ((4 << 20) + 4, (4 << 20) + 8));
        assert!(damages.nameless().is_empty());
        assert_eq!(damages.lost(), 1);
        damages.forget(PackId(1));
        assert_eq!(damages.lost(), 0);
        assert!(damages.note(place(1, 40), RANGE, "why"));
    }

    #[test]
    fn what_is_healed_for_files_alone_is_lost_for_snapshots_until_its_pack_is_deleted() {
        let (damages, monday) = (Damages::default(), ["monday".to_owned()]);
        for state in [DamageState::Healed, DamageState::Unused] {
            damages.note(place(1, 40), RANGE, "why");
            damages.settle(&place(1, 40), state);
            assert_eq!(damages.lost(), 0);
            damages.refer(&place(1, 40), &monday);
            assert_eq!(damages.lost(), 1);
            assert!(damages.nameless().is_empty());
            damages.forget(PackId(1));
            assert_eq!(damages.lost(), 0);
        }
        let healed = ("why", DamageState::Healed);
        damages.note_settled((place(1, 40), RANGE), healed, &monday, false);
        assert_eq!(damages.lost(), 0, "the pack is whole");
    }

    #[test]
    fn what_was_lost_on_its_way_is_known_until_it_is_written_again() {
        let damages = Damages::default();
        damages.note(place(1, 40), RANGE, "why");
        assert_eq!(damages.unwritten(Inode(9)), Some(vec![]));
        // A reader may be the first to find it.
        damages.note_unwritten(place(1, 40), RANGE, "why");
        damages.forget(PackId(1));
        assert_eq!(damages.unwritten(Inode(9)), Some(vec![place(1, 40)]));
        assert_eq!(damages.unwritten(Inode(8)), Some(vec![]));
        damages.written_again(&place(1, 40));
        assert_eq!(damages.unwritten(Inode(9)), Some(vec![]));
        damages.forget(PackId(1));
        assert_eq!(damages.list(), (vec![], 0));

        for offset in 0..=MOST as u32 {
            assert_eq!(damages.unwritten(Inode(8)), Some(vec![]));
            damages.note_unwritten(place(1, offset), RANGE, "why");
        }
        assert_eq!(damages.unwritten(Inode(9)), None);
        assert_eq!(damages.unwritten(Inode(8)), Some(vec![]));
    }

    #[test]
    fn the_list_is_bounded_and_keeps_what_is_lost() {
        let damages = Damages::default();
        for offset in 0..MOST as u32 {
            damages.note(place(1, offset), RANGE, "why");
            damages.settle(&place(1, offset), DamageState::Lost);
        }
        damages.settle(&place(1, 7), DamageState::Healed);
        damages.note(place(2, 0), RANGE, "why");
        let (list, more) = damages.list();
        assert_eq!((list.len(), more), (MOST, 0));
        assert!(list.iter().all(|frame| frame.state != DamageState::Healed));
        damages.note(place(2, 1), RANGE, "why");
        assert_eq!(damages.list().1, 1);
        assert_eq!(damages.lost(), MOST as u64 + 1);
    }
}
