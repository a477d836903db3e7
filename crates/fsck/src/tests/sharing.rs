//! Tests of frames that several blocks share, and of the notes on them.

use forebay_meta::record::{KnownFrame, Origin, PackFrames, PackRecord, Referrer, UsageRecord};
use forebay_meta::{BlockMap, Key};
use forebay_types::{BlockIndex, BlockKey, Inode, PackId};

use super::volume::{Volume, block, pack};
use crate::check::Options;

const SHARER: BlockKey = BlockKey {
    inode: Inode(6),
    block: BlockIndex(1),
};

impl Volume {
    /// Maps bytes of one file into a block of another file, without a note of it.
    pub(super) fn share_without_a_note(&mut self) {
        let mut shared = BlockMap::new();
        self.edit::<BlockMap>(&block(3, 0), |map| {
            let mut extent = map.extents()[0];
            extent.frame.origin = Some(Origin {
                block: BlockKey {
                    inode: Inode(3),
                    block: BlockIndex(0),
                },
                start: 0,
            });
            shared.insert(extent.range, extent.frame).unwrap();
        });
        self.put(&Key::Block(SHARER), &shared);
        self.inode(6, |record| record.used += 5000);
        // 9196 bytes, rounded up as quotas count.
        self.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.bytes = 9216);
        self.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.live_bytes += 5000);
        self.state(|state| {
            state.used_bytes += 5000;
            state.charged_bytes = Some(5120 + 9216);
        });
    }

    /// Maps the bytes, with the note.
    pub(super) fn share(&mut self) {
        self.share_without_a_note();
        self.put(&Key::Referrer(pack(1), SHARER), &Referrer);
        self.put(&Key::PackFrames(pack(1), 0), &self.notes());
    }

    /// A note on the first frame of a pack.
    fn notes(&self) -> PackFrames {
        PackFrames(vec![KnownFrame {
            hash: Some([1; 32]),
            head_crc32: 2,
            raw_crc32: 3,
            offset: 40,
            stored_len: 5128,
            raw_len: 5000,
            crc32: 4,
            origin: Origin {
                block: SHARER,
                start: 0,
            },
        }])
    }

    pub(super) fn notes_on_a_pack_that_is_not_there(&mut self) {
        let notes = self.notes();
        self.put(&Key::PackFrames(PackId(pack(2).0 + 77), 3), &notes);
        self.put(&Key::Referrer(PackId(pack(1).0 - 1), SHARER), &Referrer);
    }

    pub(super) fn impossible_note(&mut self) {
        let mut notes = self.notes();
        // Behind the frames.
        notes.0[0].offset = 5000;
        self.put(&Key::PackFrames(pack(1), 0), &notes);
    }
}

#[test]
fn a_shared_frame_is_verified_as_what_it_was_written_for() {
    let options = Options {
        read_data: true,
        ..Options::default()
    };
    let mut volume = Volume::sound();
    volume.share();
    let report = volume.check(&options);
    assert!(report.is_clean(), "{:#?}", report.findings);
    // For both blocks that map it.
    assert_eq!(report.census.frames_read.count, 5);
    // A frame of another origin is not the one in the pack.
    volume.edit::<BlockMap>(&Key::Block(SHARER), |map| {
        let mut extent = map.extents()[0];
        if let Some(origin) = &mut extent.frame.origin {
            origin.block.inode = Inode(4);
        }
        *map = BlockMap::new();
        map.insert(extent.range, extent.frame).unwrap();
    });
    let report = volume.check(&options);
    let kinds: Vec<_> = report.findings.kinds().map(|(name, ..)| name).collect();
    assert_eq!(kinds, ["damaged-frame"]);
}

#[test]
fn whoever_shares_frames_and_is_not_noted_is_noted_again() {
    let mut volume = Volume::sound();
    volume.share();
    let sound = volume.entries.clone();
    volume.delete(&Key::Referrer(pack(1), SHARER));
    let (steps, outcome) = volume.repair(false, usize::MAX);
    assert_eq!(steps.len(), 1, "{steps:?}");
    let what = &steps[0].what;
    assert!(what.contains("all 1 blocks that share frames"), "{what}");
    assert!(outcome.unwrap().after.is_clean());
    assert_eq!(volume.entries, sound);
}
