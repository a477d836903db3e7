//! Keys and values of a volume's metadata.
//!
//! For every key and every value, read as each kind of record: if it is read, it is written as the same bytes, so that
//! nothing is overlooked and nothing has two forms. A block map keeps its order, and its count of bytes, through
//! lookups and changes.
//!
//! ```text
//! input    kind: 1    key: length 2, bytes    value
//! kind     0 to 7 and 9 to 17 a record, in the order of run(); others: all of them
//! ```

use bytes::Bytes;
use forebay_meta::record::{
    Content, CookieRecord, DeadPack, Device, Directory, Garbage, HeldPack, History, Holding,
    InodeRecord, Kind, KnownFrame, MAX_EXTENTS, NameRecord, Origin, PackFrames, PackLife,
    PackRecord, QuotaRecord, Recount, Referrer, ScrubRecord, ScrubResult, SnapshotRecord,
    Timestamp, Truncated, UsageRecord, VolumeState,
};
use forebay_meta::{BlockMap, FrameAddress, Key, KeyRange, Record};
use forebay_types::{
    BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CommitNumber, Epoch, Inode, Lsn, PackId,
    SnapshotId,
};

use crate::Target;
use crate::input::{Input, put_piece};

/// The target.
pub const TARGET: Target = Target {
    name: "metadata",
    run,
    seeds,
    max_bytes: 1024,
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.u8();
    let key = input.piece();
    let value = input.rest();
    check_key(key);
    match kind {
        0 => check_value::<VolumeState>(key, value),
        1 => check_value::<InodeRecord>(key, value),
        2 => check_value::<NameRecord>(key, value),
        3 => check_value::<CookieRecord>(key, value),
        4 => check_block_map(key, value),
        5 => check_value::<PackRecord>(key, value),
        6 => check_value::<Garbage>(key, value),
        7 => check_value::<DeadPack>(key, value),
        9 => check_value::<QuotaRecord>(key, value),
        10 => check_value::<UsageRecord>(key, value),
        11 => check_value::<ScrubRecord>(key, value),
        12 => check_value::<PackFrames>(key, value),
        13 => check_value::<Referrer>(key, value),
        14 => check_value::<Truncated>(key, value),
        15 => check_value::<SnapshotRecord>(key, value),
        16 => check_value::<HeldPack>(key, value),
        17 => check_value::<Holding>(key, value),
        _ => {
            check_value::<VolumeState>(key, value);
            check_value::<InodeRecord>(key, value);
            check_value::<NameRecord>(key, value);
            check_value::<CookieRecord>(key, value);
            check_block_map(key, value);
            check_value::<PackRecord>(key, value);
            check_value::<Garbage>(key, value);
            check_value::<DeadPack>(key, value);
            check_value::<QuotaRecord>(key, value);
            check_value::<UsageRecord>(key, value);
            check_value::<ScrubRecord>(key, value);
            check_value::<PackFrames>(key, value);
            check_value::<Referrer>(key, value);
            check_value::<Truncated>(key, value);
            check_value::<SnapshotRecord>(key, value);
            check_value::<HeldPack>(key, value);
            check_value::<Holding>(key, value);
        }
    }
}

/// Checks that a valid key is written as the same bytes, and lies in exactly the ranges that should contain it.
pub(super) fn check_key(key: &[u8]) {
    let decoded = match Key::decode(key) {
        Ok(decoded) => decoded,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert_eq!(decoded.encode(), key, "{decoded:?}");
    let holds = |range: KeyRange| range.contains(key) && !range.after(key).contains(key);
    match decoded {
        Key::Name(directory, _) => assert!(holds(KeyRange::names(directory))),
        Key::Cookie(directory, 1..) => assert!(holds(KeyRange::cookies_after(directory, 0))),
        Key::Block(block) => assert!(holds(KeyRange::blocks(block.inode, block.block))),
        Key::Pack(_) => assert!(holds(KeyRange::packs())),
        Key::Garbage(_) => assert!(holds(KeyRange::garbage())),
        Key::Truncated(_) => assert!(holds(KeyRange::truncated())),
        Key::DeadPack(_) => assert!(holds(KeyRange::dead_packs())),
        Key::Quota(_) => assert!(holds(KeyRange::quotas())),
        Key::Usage(_) => assert!(holds(KeyRange::usages())),
        Key::Scrub(pack) => assert!(holds(KeyRange::scrubs_from(pack))),
        Key::PackFrames(pack, _) => assert!(holds(KeyRange::pack_frames(pack))),
        Key::Referrer(pack, _) => assert!(holds(KeyRange::referrers(pack))),
        Key::Snapshot(_) => assert!(holds(KeyRange::snapshots())),
        Key::HeldPack(_) => assert!(holds(KeyRange::held_packs())),
        Key::Holding(snapshot, _) => assert!(holds(KeyRange::holdings(snapshot))),
        _ => {}
    }
}

/// Checks that a valid value is written as the same bytes.
pub(super) fn check_value<R: Record>(key: &[u8], value: &[u8]) {
    match R::decode(key, value) {
        Ok(record) => assert_eq!(record.encode(), value),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_block_map(key: &[u8], value: &[u8]) {
    let map = match BlockMap::decode(key, value) {
        Ok(map) => map,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = map.encode();
    match value.first() {
        // It can be read, and is written in the current version.
        Some(1) => assert_eq!(BlockMap::decode(key, &written), Ok(map.clone())),
        _ => assert_eq!(written, value),
    }
    assert!(map.extents().len() <= MAX_EXTENTS);
    let whole = ByteRange::new(0, BLOCK_SIZE);
    assert_eq!(mapped(&map, whole), map.mapped_bytes());
    // Truncate at a position from the value's bytes, and check that exactly those bytes are removed.
    let mut choice = Input::new(value);
    let (one, other) = (choice.u32() ^ choice.u32(), choice.u32() ^ choice.u32());
    let [one, other] = [one, other].map(|number| u64::from(number) % (BLOCK_SIZE + 1));
    let range = ByteRange::new(one.min(other), one.max(other));
    let (inside, before) = (mapped(&map, range), map.mapped_bytes());
    let mut cut = map.clone();
    if let Ok(displaced) = cut.cut(range) {
        assert_eq!(
            displaced.values().sum::<u64>(),
            inside,
            "displaced by a cut of {range:?}"
        );
        assert_eq!(
            (cut.mapped_bytes(), mapped(&cut, range)),
            (before - inside, 0)
        );
        check_value::<BlockMap>(key, &cut.encode());
    }
    let mut truncated = map;
    let displaced = truncated.truncate(one);
    assert_eq!(
        displaced.values().sum::<u64>(),
        before - truncated.mapped_bytes()
    );
    assert_eq!(
        mapped(&truncated, ByteRange::new(one, BLOCK_SIZE)),
        0,
        "behind the end"
    );
    check_value::<BlockMap>(key, &truncated.encode());
}

/// Mapped bytes in `range`. The parts of a lookup must adjoin and lie in their frames.
fn mapped(map: &BlockMap, range: ByteRange) -> u64 {
    let (mut at, mut bytes) = (range.start, 0);
    for (part, frame) in map.lookup(range) {
        assert!(part.start == at && part.end > at, "{part:?} at {at}");
        at = part.end;
        if let Some(frame) = frame {
            assert!(
                frame.raw_range().contains(part),
                "{part:?} is not in {frame:?}"
            );
            bytes += part.len();
        }
    }
    assert_eq!(at, range.end);
    bytes
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let input = |kind: u8, key: Key, value: Bytes| {
        let mut input = vec![kind];
        put_piece(&mut input, &key.encode());
        input.extend(value);
        input
    };
    let inode = Inode(0x0102_0304);
    let time = Timestamp {
        seconds: -1,
        nanos: 999_999_999,
    };
    let object = |content| InodeRecord {
        content,
        mode: 0o755,
        uid: 1,
        gid: 2,
        nlink: 3,
        size: 4,
        used: 5,
        atime: time,
        mtime: time,
        ctime: time,
        create_verifier: None,
        tree: None,
        truncated: Default::default(),
    };
    let directory = object(Content::Directory(Directory {
        parent: Inode::ROOT,
        next_cookie: 9,
        entries: 2,
    }));
    let symlink = object(Content::Symlink {
        target: Bytes::from_static(b"../target"),
    });
    let device = object(Content::CharDevice(Device { major: 1, minor: 3 }));
    let file = InodeRecord {
        create_verifier: Some([8; 8]),
        ..object(Content::Regular)
    };
    let in_tree = InodeRecord {
        tree: Some(Inode(9)),
        ..file.clone()
    };
    let quota = QuotaRecord {
        limit_bytes: 1 << 30,
        limit_files: u64::MAX,
        recount: Recount::Leaving,
    };
    let usage = UsageRecord {
        bytes: 512,
        files: 2,
    };
    let state = VolumeState {
        published: Lsn(4096),
        epoch: Epoch(3),
        gateway: [6; 16],
        next_inode: 10,
        inode_lease: Some(7),
        next_pack: 11,
        used_bytes: 12,
        used_inodes: 13,
        charged_bytes: Some(14),
        history: Default::default(),
        trash: Default::default(),
    };
    let counted = VolumeState {
        history: History {
            commit: CommitNumber(15),
            last_snapshot: 2,
            held_bytes: 16,
        },
        ..state
    };
    let snapshot = SnapshotRecord {
        is_being_deleted: true,
        commit: CommitNumber(15),
        lsn: Lsn(4096),
        used_bytes: 12,
        used_inodes: 13,
        made: time,
        name: "daily".to_owned(),
        made_by: "ann".to_owned(),
    };
    let holder = SnapshotId(2);
    let life = PackLife {
        born: CommitNumber(3),
        died: CommitNumber(16),
        bytes: 1000,
    };
    let name = NameRecord {
        inode,
        cookie: 7,
        kind: Kind::Directory,
    };
    let cookie = CookieRecord {
        inode,
        kind: Kind::Fifo,
        name: Bytes::from_static(b"name"),
    };
    let pack = PackRecord {
        bytes: 1000,
        raw_bytes: 2000,
        live_bytes: 1500,
        frames: 3,
        born: Default::default(),
    };
    let born = PackRecord {
        born: CommitNumber(3),
        ..pack
    };
    let garbage = Garbage {
        size: 1 << 33,
        first_block: BlockIndex(5),
    };
    let mut map = BlockMap::new();
    for (start, len, pack) in [(0, 4096, 1), (8192, 100, 2), (BLOCK_SIZE - 512, 512, 1)] {
        let frame = FrameAddress {
            pack: PackId(pack),
            offset: 40,
            stored_len: 200,
            raw_len: len as u32,
            raw_start: start as u32,
            crc32: 0xdead_beef,
            origin: None,
        };
        // The ranges are those of their frames and do not overlap.
        let _ = map.insert(ByteRange::at(start, len), frame);
    }
    let key = BlockKey {
        inode,
        block: BlockIndex(6),
    };
    let scrub = ScrubRecord {
        checked: 1_790_000_000,
        result: ScrubResult::Damaged,
        damaged_frames: 3,
    };
    let block = Key::Block(key);
    let mut shared = BlockMap::new();
    for (start, len) in [(0, 4096), (4096, 100), (BLOCK_SIZE - 512, 512)] {
        let frame = FrameAddress {
            pack: PackId(3),
            offset: 40 + start as u32,
            stored_len: 200,
            raw_len: len as u32,
            raw_start: start as u32,
            crc32: 0xdead_beef,
            origin: Some(Origin {
                block: key,
                start: (start as u32).min(8192),
            }),
        };
        let _ = shared.insert(ByteRange::at(start, len), frame);
    }
    let known = KnownFrame {
        hash: Some([7; 32]),
        head_crc32: 1,
        raw_crc32: 2,
        offset: 40,
        stored_len: 200,
        raw_len: 300,
        crc32: 3,
        origin: Origin {
            block: key,
            start: 4096,
        },
    };
    let frames = PackFrames(vec![
        known,
        KnownFrame {
            hash: None,
            offset: 240,
            ..known
        },
    ]);
    vec![
        ("volume-state", input(0, Key::Volume, state.encode())),
        ("directory", input(1, Key::Inode(inode), directory.encode())),
        ("symlink", input(1, Key::Inode(inode), symlink.encode())),
        ("device", input(1, Key::Inode(inode), device.encode())),
        ("file", input(1, Key::Inode(inode), file.encode())),
        (
            "name",
            input(
                2,
                Key::Name(inode, Bytes::from_static(b"name")),
                name.encode(),
            ),
        ),
        ("cookie", input(3, Key::Cookie(inode, 7), cookie.encode())),
        ("block-map", input(4, block.clone(), map.encode())),
        ("shared-block-map", input(4, block.clone(), shared.encode())),
        (
            "pack-frames",
            input(12, Key::PackFrames(PackId(3), 1), frames.encode()),
        ),
        (
            "referrer",
            input(13, Key::Referrer(PackId(3), key), Referrer.encode()),
        ),
        ("empty-block-map", input(4, block, BlockMap::new().encode())),
        ("pack", input(5, Key::Pack(PackId(1)), pack.encode())),
        ("garbage", input(6, Key::Garbage(inode), garbage.encode())),
        (
            "dead-pack",
            input(7, Key::DeadPack(PackId(1)), DeadPack::default().encode()),
        ),
        (
            "counted-volume-state",
            input(0, Key::Volume, counted.encode()),
        ),
        (
            "pack-with-birth",
            input(5, Key::Pack(PackId(1)), born.encode()),
        ),
        (
            "dead-pack-with-life",
            input(
                7,
                Key::DeadPack(PackId(1)),
                DeadPack { life: Some(life) }.encode(),
            ),
        ),
        (
            "snapshot",
            input(15, Key::Snapshot(holder), snapshot.encode()),
        ),
        (
            "held-pack",
            input(
                16,
                Key::HeldPack(PackId(1)),
                HeldPack { holder, life }.encode(),
            ),
        ),
        (
            "holding",
            input(17, Key::Holding(holder, PackId(1)), Holding.encode()),
        ),
        ("in-tree", input(1, Key::Inode(inode), in_tree.encode())),
        ("quota", input(9, Key::Quota(inode), quota.encode())),
        ("usage", input(10, Key::Usage(inode), usage.encode())),
        ("scrub", input(11, Key::Scrub(PackId(1)), scrub.encode())),
        ("every-kind", input(8, Key::Volume, state.encode())),
    ]
}
