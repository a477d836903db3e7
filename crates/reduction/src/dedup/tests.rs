//! Which packs are found, pinned, kept and released.

use forebay_meta::record::Origin;
use forebay_pack::FrameHash;
use forebay_types::{BlockIndex, BlockKey, Inode};

use super::*;

const PACK: PackId = PackId(7);
const FIRST: CheckpointId = CheckpointId(1);
const SECOND: CheckpointId = CheckpointId(2);

fn frame(content: u8) -> KnownFrame {
    KnownFrame {
        hash: Some([content; 32]),
        head_crc32: u32::from(content),
        raw_crc32: u32::from(content),
        offset: 40,
        stored_len: 200,
        raw_len: 4096,
        crc32: 1,
        origin: Origin {
            block: BlockKey {
                inode: Inode(2),
                block: BlockIndex(0),
            },
            start: 0,
        },
    }
}

fn fingerprint(content: u8) -> Fingerprint {
    Fingerprint::of(&frame(content))
}

const RECORD: PackRecord = PackRecord {
    bytes: 300,
    raw_bytes: 4096,
    live_bytes: 4096,
    frames: 1,
    born: forebay_types::CommitNumber(0),
};

#[test]
fn what_is_on_its_way_is_found_by_its_checkpoint_and_later_ones_only() {
    let sharing = Sharing::new(Dedup::Full);
    let arrival = Arc::new(Arrival::new());
    sharing.claim(&fingerprint(1), SECOND, PACK, &arrival, 3);
    assert!(matches!(
        sharing.look(FIRST, &fingerprint(1)),
        Found::Nowhere
    ));
    let found = sharing.look(SECOND, &fingerprint(1));
    assert!(matches!(found, Found::Unpublished(_, PACK, 3)));
    assert!(matches!(
        sharing.look(SECOND, &fingerprint(2)),
        Found::Nowhere
    ));
    // A claim of an older checkpoint serves both.
    sharing.claim(&fingerprint(1), FIRST, PackId(8), &arrival, 4);
    assert!(matches!(
        sharing.look(FIRST, &fingerprint(1)),
        Found::Unpublished(_, PackId(8), 4)
    ));
    sharing.published(FIRST);
    sharing.learn(PackId(8), &[frame(1)]);
    let found = sharing.look(SECOND, &fingerprint(1));
    assert!(matches!(found, Found::Perhaps(PackId(8))));
}

#[test]
fn a_pack_that_dies_while_it_is_pinned_is_kept_until_it_is_referred_to_or_let_go() {
    for is_used in [true, false] {
        let sharing = Sharing::new(Dedup::Full);
        assert_eq!(sharing.pin(SECOND, PACK), Some(false));
        sharing.is_alive(SECOND, PACK);
        sharing.dies(PACK, RECORD, Some(FIRST));
        sharing.committed(&[]);
        sharing.published(FIRST);
        assert!(!sharing.try_forget(PACK));
        assert_eq!(sharing.pin(SECOND, PACK), Some(true), "it is there");
        assert_eq!(sharing.kept(PACK).map(|record| record.live_bytes), Some(0));
        if is_used {
            sharing.committed(&[PACK]);
            sharing.published(SECOND);
            assert_eq!(sharing.kept(PACK), None);
        } else {
            sharing.published(SECOND);
            assert!(sharing.try_forget(PACK));
            assert_eq!(sharing.kept(PACK), None);
        }
    }
}

#[test]
fn nobody_finds_a_pack_that_a_batch_under_way_makes_garbage() {
    let sharing = Sharing::new(Dedup::Full);
    let arrival = Arc::new(Arrival::new());
    sharing.claim(&fingerprint(1), FIRST, PACK, &arrival, 0);
    // Pins of the checkpoint that is published do not count: its references were counted.
    assert_eq!(sharing.pin(FIRST, PACK), Some(false));
    sharing.dies(PACK, RECORD, Some(FIRST));
    assert!(matches!(
        sharing.look(SECOND, &fingerprint(1)),
        Found::Nowhere
    ));
    assert_eq!(sharing.pin(SECOND, PACK), None);
    assert_eq!(sharing.kept(PACK), None);
    sharing.committed(&[]);
    // Even before all of the publication has been noted.
    assert!(matches!(
        sharing.look(SECOND, &fingerprint(1)),
        Found::Nowhere
    ));
    sharing.published(FIRST);
    assert_eq!(
        sharing.pin(SECOND, PACK),
        Some(false),
        "ask for its account"
    );
    assert!(
        !sharing.try_forget(PACK),
        "not while a lookup is in progress"
    );
    sharing.published(SECOND);
    assert!(sharing.try_forget(PACK));
}

#[test]
fn reclaiming_counts_every_pin() {
    let sharing = Sharing::new(Dedup::Full);
    sharing.pin(FIRST, PACK);
    sharing.dies(PACK, RECORD, None);
    assert!(sharing.kept(PACK).is_some());
}

#[test]
fn frames_that_only_look_alike_are_not_found() {
    let sharing = Sharing::new(Dedup::Fast);
    let arrival = Arc::new(Arrival::new());
    sharing.claim(&fingerprint(1), FIRST, PACK, &arrival, 0);
    let other = Fingerprint {
        hash: Some(FrameHash([9; 32])),
        ..fingerprint(1)
    };
    assert!(matches!(sharing.look(FIRST, &other), Found::Nowhere));
    let unknown = Fingerprint {
        hash: None,
        ..fingerprint(1)
    };
    assert!(matches!(sharing.look(FIRST, &unknown), Found::Nowhere));
}
