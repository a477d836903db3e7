//! Records survive encoding and decoding, and other bytes are refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_types::{
    BLOCK_SIZE, BlockIndex, BlockKey, ByteRange, CommitNumber, Epoch, Inode, Lsn, PackId,
    SnapshotId,
};
use proptest::prelude::*;

use super::*;
use crate::key::tag;

mod sharing;

fn round_trip<R: Record + PartialEq + std::fmt::Debug>(record: &R) -> Result<(), TestCaseError> {
    let bytes = record.encode();
    prop_assert_eq!(&R::decode(b"key", &bytes).unwrap(), record);
    for len in 0..bytes.len() {
        prop_assert!(
            R::decode(b"key", &bytes[..len]).is_err(),
            "cut off at {}",
            len
        );
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    prop_assert!(R::decode(b"key", &longer).is_err());
    longer[0] = 200;
    let error = R::decode(b"key", &longer).unwrap_err();
    prop_assert!(error.why.contains("version"), "{}", error);
    Ok(())
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Regular),
        Just(Kind::Directory),
        Just(Kind::BlockDevice),
        Just(Kind::CharDevice),
        Just(Kind::Symlink),
        Just(Kind::Socket),
        Just(Kind::Fifo),
    ]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..80).prop_map(Bytes::from)
}

fn any_content() -> impl Strategy<Value = Content> {
    let device = any::<(u32, u32)>().prop_map(|(major, minor)| Device { major, minor });
    prop_oneof![
        Just(Content::Regular),
        Just(Content::Fifo),
        Just(Content::Socket),
        any::<(u64, u64, u64)>().prop_map(|(parent, next_cookie, entries)| {
            Content::Directory(Directory {
                parent: Inode(parent),
                next_cookie,
                entries,
            })
        }),
        any_bytes().prop_map(|target| Content::Symlink { target }),
        device.clone().prop_map(Content::BlockDevice),
        device.prop_map(Content::CharDevice),
    ]
}

proptest! {
    #[test]
    fn snapshots_come_back(
        numbers in any::<(u64, u64, u64, u64)>(),
        made in any_time(),
        name in ".{0,40}",
        made_by in ".{0,40}",
        is_being_deleted in any::<bool>(),
    ) {
        let (commit, lsn, used_bytes, used_inodes) = numbers;
        round_trip(&SnapshotRecord {
            is_being_deleted,
            commit: CommitNumber(commit),
            lsn: Lsn(lsn),
            used_bytes,
            used_inodes,
            made,
            name,
            made_by,
        })?;
    }

    #[test]
    fn a_dead_pack_is_held_by_the_newest_snapshot_between_its_birth_and_its_death(
        born in 0..12u64,
        age in 0..12u64,
        commits in proptest::collection::btree_set(1..24u64, 0..8),
    ) {
        let life = PackLife {
            born: CommitNumber(born),
            died: CommitNumber(born + age),
            bytes: 1,
        };
        let snapshots = commits.iter().map(|commit| (SnapshotId(*commit), CommitNumber(*commit)));
        let expected = (born..born + age).rev().find(|commit| commits.contains(commit));
        prop_assert_eq!(holder(&life, snapshots), expected.map(SnapshotId));
    }

    #[test]
    fn inodes_come_back(
        content in any_content(),
        numbers in any::<(u32, u32, u32, u32, u64, u64)>(),
        times in (any_time(), any_time(), any_time()),
        create_verifier in any::<Option<[u8; 8]>>(),
        tree in any::<Option<u64>>(),
        truncated_from in any::<Option<u64>>(),
    ) {
        let (mode, uid, gid, nlink, size, used) = numbers;
        let (atime, mtime, ctime) = times;
        let mut truncated = TruncatedBlocks::default();
        if let Some(from) = truncated_from {
            truncated.add_from(BlockIndex(from / 2));
        }
        round_trip(&InodeRecord {
            content, mode, uid, gid, nlink, size, used, atime, mtime, ctime, create_verifier,
            tree: tree.map(Inode),
            truncated,
        })?;
    }

    #[test]
    fn small_records_come_back(
        numbers in any::<(u64, u64, u64, u64)>(),
        gateway in any::<[u8; 16]>(),
        frames in any::<u32>(),
        kind in any_kind(),
        name in any_bytes(),
        charged_bytes in any::<Option<u64>>(),
    ) {
        let (a, b, c, d) = numbers;
        round_trip(&VolumeState {
            published: Lsn(a),
            epoch: Epoch(b),
            gateway,
            next_inode: c,
            inode_lease: charged_bytes.map(|_| d),
            next_pack: d,
            used_bytes: b ^ c,
            used_inodes: a ^ d,
            charged_bytes,
            history: match charged_bytes {
                Some(_) => History { commit: CommitNumber(a), last_snapshot: b, held_bytes: c },
                None => History::default(),
            },
            trash: match charged_bytes {
                Some(_) => TrashTotals { bytes: d, files: a },
                None => TrashTotals::default(),
            },
        })?;
        let removed = Timestamp { seconds: 7, nanos: frames % 1_000_000_000 };
        let name_of_removed = Bytes::from_static(b"name");
        round_trip(&TrashRecord { directory: Inode(a), removed, until: b, by: frames, name: name_of_removed })?;
        round_trip(&TrashUntil)?;
        round_trip(&TrashOwner)?;
        round_trip(&NameRecord { inode: Inode(a), cookie: b, kind })?;
        round_trip(&CookieRecord { inode: Inode(a), kind, name })?;
        round_trip(&PackRecord { bytes: a, raw_bytes: b, live_bytes: c, frames, born: CommitNumber(d) })?;
        round_trip(&Garbage { size: a, first_block: BlockIndex(b) })?;
        let life = PackLife { born: CommitNumber(a), died: CommitNumber(b), bytes: c };
        round_trip(&HeldPack { holder: SnapshotId(d), life })?;
        round_trip(&Holding)?;
        for life in [None, Some(life)] {
            round_trip(&DeadPack { life })?;
        }
        for recount in [Recount::Done, Recount::Joining, Recount::Leaving] {
            round_trip(&QuotaRecord { limit_bytes: a, limit_files: b, recount })?;
        }
        round_trip(&UsageRecord { bytes: a, files: b })?;
        for result in [ScrubResult::Sound, ScrubResult::Damaged, ScrubResult::Missing] {
            round_trip(&ScrubRecord { checked: a, result, damaged_frames: frames })?;
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..300)) {
        bytes[0] = 1;
        let _ = VolumeState::decode(b"v", &bytes);
        let _ = InodeRecord::decode(b"i", &bytes);
        let _ = NameRecord::decode(b"n", &bytes);
        let _ = CookieRecord::decode(b"c", &bytes);
        let _ = PackRecord::decode(b"p", &bytes);
        let _ = Garbage::decode(b"g", &bytes);
        let _ = DeadPack::decode(b"x", &bytes);
        let _ = QuotaRecord::decode(b"q", &bytes);
        let _ = UsageRecord::decode(b"u", &bytes);
        let _ = ScrubRecord::decode(b"s", &bytes);
        if let Ok(map) = BlockMap::decode(b"b", &bytes) {
            prop_assert_eq!(BlockMap::decode(b"b", &map.encode()), Ok(map));
        }
        bytes[0] = 2;
        if let Ok(map) = BlockMap::decode(b"b", &bytes) {
            prop_assert_eq!(map.encode(), bytes);
        }
    }

    /// A block map beside an array that holds the contents of every cell of the block.
    #[test]
    fn block_maps_match_a_model(changes in proptest::collection::vec(any_change(), 1..60)) {
        let mut map = BlockMap::new();
        let mut model = vec![None; CELLS];
        for (number, change) in changes.into_iter().enumerate() {
            let (range, displaced, new) = match change {
                Change::Insert(range, before, after) => {
                    let frame = frame(number as u64, range, before, after);
                    (range, map.insert(range, frame).unwrap(), Some(frame))
                }
                Change::Cut(range) => (range, map.cut(range).unwrap(), None),
                Change::Truncate(at) => {
                    (ByteRange::new(at, BLOCK_SIZE), map.truncate(at), None)
                }
            };
            let mut expected = BTreeMap::new();
            for cell in &mut model[cell(range.start)..cell(range.end)] {
                if let Some(FrameAddress { pack, .. }) = *cell {
                    *expected.entry(pack).or_insert(0) += CELL_BYTES;
                }
                *cell = new;
            }
            prop_assert_eq!(displaced, expected);
            check(&map, &model)?;
        }
        round_trip(&map)?;
    }
}

/// The model's resolution.
const CELLS: usize = 64;
const CELL_BYTES: u64 = BLOCK_SIZE / CELLS as u64;

fn cell(offset: u64) -> usize {
    (offset / CELL_BYTES) as usize
}

#[derive(Clone, Debug)]
enum Change {
    /// With this many more bytes in the frame before and behind the range.
    Insert(ByteRange, u64, u64),
    Cut(ByteRange),
    Truncate(u64),
}

fn any_change() -> impl Strategy<Value = Change> {
    let cells = CELLS as u64;
    let range = (0..cells, 1..9u64).prop_map(move |(start, len)| {
        ByteRange::new(start * CELL_BYTES, (start + len).min(cells) * CELL_BYTES)
    });
    prop_oneof![
        6 => (range.clone(), 0..9000u64, 0..9000u64).prop_map(|(r, b, a)| Change::Insert(r, b, a)),
        2 => range.prop_map(Change::Cut),
        1 => (0..=cells).prop_map(|at| Change::Truncate(at * CELL_BYTES)),
    ]
}

fn frame(number: u64, range: ByteRange, before: u64, after: u64) -> FrameAddress {
    let start = range.start.saturating_sub(before);
    FrameAddress {
        pack: PackId(number % 3),
        offset: number as u32 * 10,
        stored_len: 9,
        raw_len: (range.end + after - start) as u32,
        raw_start: start as u32,
        crc32: number as u32,
        origin: (number % 4 == 3).then_some(Origin {
            block: BlockKey {
                inode: Inode(number),
                block: BlockIndex(number % 2),
            },
            start: 0,
        }),
    }
}

fn check(map: &BlockMap, model: &[Option<FrameAddress>]) -> Result<(), TestCaseError> {
    let mapped = model.iter().flatten().count() as u64 * CELL_BYTES;
    prop_assert_eq!(map.mapped_bytes(), mapped);
    prop_assert_eq!(map.bytes_by_pack().values().sum::<u64>(), mapped);
    for pair in map.extents().windows(2) {
        prop_assert!(pair[0].range.end <= pair[1].range.start);
    }
    let whole = ByteRange::new(0, BLOCK_SIZE);
    let ragged = ByteRange::new(CELL_BYTES * 3 + 5, CELL_BYTES * 50 + 7);
    for asked in [whole, ragged] {
        let mut at = asked.start;
        for (part, found) in map.lookup(asked) {
            prop_assert_eq!(part.start, at);
            prop_assert!(!part.is_empty());
            for cell in &model[cell(part.start)..=cell(part.end - 1)] {
                prop_assert_eq!(cell.as_ref(), found);
            }
            at = part.end;
        }
        prop_assert_eq!(at, asked.end);
    }
    Ok(())
}

#[test]
fn a_block_map_refuses_what_the_frame_does_not_hold() {
    let mut map = BlockMap::new();
    let held = ByteRange::new(4096, 8192);
    let frame = frame(1, held, 0, 0);
    for range in [
        ByteRange::new(4095, 8192),
        ByteRange::new(4096, 8193),
        ByteRange::new(5000, 5000),
    ] {
        assert_eq!(
            map.insert(range, frame),
            Err(MapError::BadRange),
            "{range:?}"
        );
    }
    let behind = ByteRange::new(BLOCK_SIZE - 1, BLOCK_SIZE + 1);
    let wide = FrameAddress {
        raw_start: 0,
        raw_len: u32::MAX,
        ..frame
    };
    assert_eq!(map.insert(behind, wide), Err(MapError::BadRange));
    assert!(map.is_empty());
}

#[test]
fn a_full_block_map_stays_as_it_is_until_it_is_rewritten() {
    let mut map = BlockMap::new();
    let whole = FrameAddress {
        raw_start: 0,
        raw_len: BLOCK_SIZE as u32,
        ..frame(1, ByteRange::new(0, 1), 0, 0)
    };
    for n in 0..MAX_EXTENTS as u64 {
        map.insert(ByteRange::at(n * 16, 8), whole).unwrap();
    }
    let before = map.clone();
    assert_eq!(
        map.insert(ByteRange::at(12, 2), whole),
        Err(MapError::TooManyExtents)
    );
    assert_eq!(map.cut(ByteRange::at(2, 2)), Err(MapError::TooManyExtents));
    assert_eq!(map, before);
    assert_eq!(BlockMap::decode(b"b", &map.encode()), Ok(before));
    let displaced = map.insert(ByteRange::new(0, BLOCK_SIZE), whole).unwrap();
    assert_eq!(
        displaced,
        BTreeMap::from([(PackId(1), 8 * MAX_EXTENTS as u64)])
    );
    assert_eq!(map.extents().len(), 1);
}

#[test]
fn adjoining_extents_are_one_if_the_same_frame_has_them() {
    let mut map = BlockMap::new();
    let one = frame(3, ByteRange::new(0, 100), 0, 0);
    let other = FrameAddress {
        offset: one.offset + 1,
        ..one
    };
    let ranges = |map: &BlockMap| {
        let extents = map.extents().iter();
        extents.map(|extent| extent.range).collect::<Vec<_>>()
    };
    for start in [0, 20, 40] {
        map.insert(ByteRange::at(start, 10), one).unwrap();
    }
    assert_eq!(map.extents().len(), 3);
    map.insert(ByteRange::new(10, 40), one).unwrap();
    assert_eq!(ranges(&map), [ByteRange::new(0, 50)]);
    map.insert(ByteRange::new(50, 60), other).unwrap();
    map.insert(ByteRange::new(60, 70), one).unwrap();
    assert_eq!(
        ranges(&map),
        [(0, 50), (50, 60), (60, 70)].map(|(from, to)| ByteRange::new(from, to))
    );
    map.insert(ByteRange::new(50, 60), one).unwrap();
    assert_eq!(ranges(&map), [ByteRange::new(0, 70)]);
    // A hole between them keeps them apart.
    map.cut(ByteRange::new(30, 31)).unwrap();
    assert_eq!(map.extents().len(), 2);
}

/// A map in version 1: every extent has all of its fields.
fn version_one(map: &BlockMap) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend((map.extents().len() as u32).to_le_bytes());
    for Extent { range, frame } in map.extents() {
        bytes.extend((range.start as u32).to_le_bytes());
        bytes.extend((range.len() as u32).to_le_bytes());
        bytes.extend(frame.pack.0.to_le_bytes());
        let numbers = [frame.offset, frame.stored_len, frame.raw_len];
        for number in [&numbers[..], &[frame.raw_start, frame.crc32]].concat() {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn overlapping_or_miscounted_extents_are_damage() {
    let mut map = BlockMap::new();
    for start in [0, 100] {
        let range = ByteRange::at(start, 50);
        map.insert(range, frame(1, range, 0, 500)).unwrap();
    }
    let good = version_one(&map);
    assert_eq!(BlockMap::decode(b"b", &good), Ok(map.clone()));
    let mut overlapping = good.clone();
    overlapping[9..13].copy_from_slice(&120u32.to_le_bytes());
    assert!(BlockMap::decode(b"b", &overlapping).is_err());
    let mut miscounted = good.clone();
    miscounted[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(BlockMap::decode(b"b", &miscounted).is_err());
    let mut empty = good;
    empty[9..13].copy_from_slice(&0u32.to_le_bytes());
    assert!(BlockMap::decode(b"b", &empty).is_err());
    let good = map.encode();
    for count in [0, 1, 3, 127] {
        let mut miscounted = good.to_vec();
        miscounted[1] = count;
        assert!(BlockMap::decode(b"b", &miscounted).is_err());
    }
}

#[test]
fn a_row_of_frames_takes_few_bytes_for_each() {
    let row = |stored_len: fn(u32) -> u32| {
        let mut map = BlockMap::new();
        let mut offset = 28;
        for number in 0..16u32 {
            let range = ByteRange::at(u64::from(number) << 18, 1 << 18);
            let frame = FrameAddress {
                pack: PackId(7 << 40),
                offset,
                stored_len: stored_len(number),
                raw_len: 1 << 18,
                raw_start: number << 18,
                crc32: 0x9e37_79b9_u32.wrapping_mul(number),
                origin: None,
            };
            offset += frame.stored_len;
            map.insert(range, frame).unwrap();
        }
        assert_eq!(BlockMap::decode(b"b", &map.encode()), Ok(map.clone()));
        assert_eq!(BlockMap::decode(b"b", &version_one(&map)), Ok(map.clone()));
        map.encode().len()
    };
    // Uncompressed frames, and compressed ones.
    assert_eq!(row(|_| (1 << 18) + 128), 2 + 19 + 15 * 5);
    assert_eq!(row(|number| 90_000 + number), 2 + 20 + 15 * 8);
}

#[test]
fn every_record_stands_under_its_own_letter() {
    let tags = [
        VolumeState::TAG,
        InodeRecord::TAG,
        NameRecord::TAG,
        CookieRecord::TAG,
        BlockMap::TAG,
        PackRecord::TAG,
        Garbage::TAG,
        DeadPack::TAG,
        QuotaRecord::TAG,
        UsageRecord::TAG,
        ScrubRecord::TAG,
        PackFrames::TAG,
        Referrer::TAG,
        Truncated::TAG,
    ];
    assert_eq!(&tags, b"vincbpgxqusfrt");
    assert_eq!(tags[0], tag::VOLUME);
}

/// The bytes of format 1, and of version 2 of block maps. Buckets hold them: a change of any of them needs a new
/// version.
#[test]
fn the_bytes_of_version_one_do_not_change() {
    let hex = |bytes: Bytes| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let name = NameRecord {
        inode: Inode(0x0102),
        cookie: 3,
        kind: Kind::Directory,
    };
    assert_eq!(hex(name.encode()), "010202010000000000000300000000000000");
    let cookie = CookieRecord {
        inode: Inode(5),
        kind: Kind::Regular,
        name: "ab".into(),
    };
    assert_eq!(hex(cookie.encode()), "01010500000000000000020000006162");
    let link = InodeRecord {
        content: Content::Symlink { target: "t".into() },
        mode: 0o777,
        uid: 1,
        gid: 2,
        nlink: 3,
        size: 4,
        used: 5,
        atime: Timestamp {
            seconds: -1,
            nanos: 6,
        },
        mtime: Timestamp {
            seconds: 7,
            nanos: 8,
        },
        ctime: Timestamp {
            seconds: 9,
            nanos: 10,
        },
        create_verifier: Some(*b"verifier"),
        tree: None,
        truncated: Default::default(),
    };
    let expected = "010501\
        ff010000010000000200000003000000\
        04000000000000000500000000000000\
        ffffffffffffffff06000000\
        070000000000000008000000\
        09000000000000000a000000\
        7665726966696572\
        0100000074";
    assert_eq!(hex(link.encode()), expected);
    let scrub = ScrubRecord {
        checked: 0x0102,
        result: ScrubResult::Damaged,
        damaged_frames: 3,
    };
    assert_eq!(hex(scrub.encode()), "0102010000000000000103000000");
    // An object that counts in a tree has a version of its own.
    let in_tree = InodeRecord {
        tree: Some(Inode(0x0a0b)),
        ..link
    };
    let expected = expected.replacen("0105", "0205", 1).replacen(
        "7665726966696572",
        "76657269666965720b0a000000000000",
        1,
    );
    assert_eq!(hex(in_tree.encode()), expected);
    // So has a file with truncated blocks that are not collected.
    let mut truncated = TruncatedBlocks::default();
    truncated.add_from(BlockIndex(2));
    truncated.remove(BlockIndex(5));
    let of_both = InodeRecord {
        truncated: truncated.clone(),
        ..in_tree.clone()
    };
    let both = expected.replacen("0205", "0405", 1).replacen(
        "0b0a000000000000",
        "0b0a0000000000000202030100",
        1,
    );
    assert_eq!(hex(of_both.encode()), both);
    let of_one = InodeRecord {
        tree: None,
        ..of_both
    };
    let one = both
        .replacen("0405", "0305", 1)
        .replacen("0b0a000000000000", "", 1);
    assert_eq!(hex(of_one.encode()), one);
    assert_eq!(InodeRecord::decode(b"i", &of_one.encode()), Ok(of_one));
    assert_eq!(hex(Truncated.encode()), "01");
    let state = VolumeState {
        published: Lsn(1),
        epoch: Epoch(2),
        gateway: [3; 16],
        next_inode: 4,
        inode_lease: None,
        next_pack: 5,
        used_bytes: 6,
        used_inodes: 7,
        charged_bytes: None,
        history: History::default(),
        trash: TrashTotals::default(),
    };
    let numbers = |numbers: &[u64]| -> String {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        hex(bytes.into())
    };
    let fields = numbers(&[1, 2]) + &"03".repeat(16) + &numbers(&[4, 5, 6, 7]);
    assert_eq!(hex(state.encode()), format!("01{fields}"));
    let charged = VolumeState {
        charged_bytes: Some(8),
        ..state
    };
    assert_eq!(
        hex(charged.encode()),
        format!("02{fields}{}", numbers(&[8]))
    );
    let leased = VolumeState {
        inode_lease: Some(9),
        ..charged
    };
    assert_eq!(
        hex(leased.encode()),
        format!("03{fields}{}", numbers(&[8, 9]))
    );
    // Only a volume that has or had snapshots is counted.
    let counted = VolumeState {
        history: History {
            commit: CommitNumber(10),
            last_snapshot: 11,
            held_bytes: 12,
        },
        ..leased
    };
    assert_eq!(
        hex(counted.encode()),
        format!("04{fields}{}", numbers(&[8, 9, 10, 11, 12]))
    );
    // Only a volume with something in its trash has counts of it.
    let trash = TrashTotals {
        bytes: 13,
        files: 14,
    };
    let full = VolumeState { trash, ..counted };
    assert_eq!(
        hex(full.encode()),
        format!("05{fields}{}", numbers(&[8, 9, 10, 11, 12, 13, 14]))
    );
    let uncounted = VolumeState { trash, ..leased };
    assert_eq!(
        hex(uncounted.encode()),
        format!("05{fields}{}", numbers(&[8, 9, 0, 0, 0, 13, 14]))
    );
    let entry = TrashRecord {
        directory: Inode(1),
        removed: Timestamp {
            seconds: 2,
            nanos: 3,
        },
        until: 4,
        by: 5,
        name: Bytes::from_static(b"ab"),
    };
    let entry = hex(entry.encode());
    let expected = format!(
        "01{}03000000{}05000000020000006162",
        numbers(&[1, 2]),
        numbers(&[4])
    );
    assert_eq!(entry, expected);
    assert_eq!(hex(TrashUntil.encode()), "01");
    assert_eq!(hex(TrashOwner.encode()), "01");
    let pack = PackRecord {
        bytes: 1,
        raw_bytes: 2,
        live_bytes: 3,
        frames: 4,
        born: CommitNumber(0),
    };
    let account = numbers(&[1, 2, 3]) + "04000000";
    assert_eq!(hex(pack.encode()), format!("01{account}"));
    let born = PackRecord {
        born: CommitNumber(5),
        ..pack
    };
    assert_eq!(hex(born.encode()), format!("02{account}{}", numbers(&[5])));
    let life = PackLife {
        born: CommitNumber(5),
        died: CommitNumber(6),
        bytes: 7,
    };
    assert_eq!(hex(DeadPack { life: None }.encode()), "01");
    let dead = DeadPack { life: Some(life) };
    assert_eq!(hex(dead.encode()), format!("02{}", numbers(&[5, 6, 7])));
    let held = HeldPack {
        holder: SnapshotId(4),
        life,
    };
    assert_eq!(hex(held.encode()), format!("01{}", numbers(&[4, 5, 6, 7])));
    assert_eq!(hex(Holding.encode()), "01");
    let snapshot = SnapshotRecord {
        is_being_deleted: true,
        commit: CommitNumber(1),
        lsn: Lsn(2),
        used_bytes: 3,
        used_inodes: 4,
        made: Timestamp {
            seconds: 5,
            nanos: 6,
        },
        name: "ab".to_owned(),
        made_by: "c".to_owned(),
    };
    assert_eq!(
        hex(snapshot.encode()),
        format!(
            "0101{}06000000020000006162{}63",
            numbers(&[1, 2, 3, 4, 5]),
            "01000000"
        )
    );
    let quota = QuotaRecord {
        limit_bytes: 0x0102,
        limit_files: u64::MAX,
        recount: Recount::Joining,
    };
    assert_eq!(hex(quota.encode()), "01010201000000000000ffffffffffffffff");
    let usage = UsageRecord {
        bytes: 512,
        files: 3,
    };
    assert_eq!(hex(usage.encode()), "0100020000000000000300000000000000");
    let mut map = BlockMap::new();
    let frame = FrameAddress {
        pack: PackId(9),
        offset: 8,
        stored_len: 7,
        raw_len: 6,
        raw_start: 5,
        crc32: 4,
        origin: None,
    };
    map.insert(ByteRange::new(6, 8), frame).unwrap();
    let expected = "0101000000\
        0600000002000000\
        0900000000000000\
        0800000007000000060000000500000004000000";
    assert_eq!(hex(version_one(&map).into()), expected);
    // Behind it one that adjoins, has the same length, and whose frame follows, with just these bytes and the same
    // overhead.
    let next = FrameAddress {
        offset: 15,
        stored_len: 3,
        raw_len: 2,
        raw_start: 8,
        ..frame
    };
    map.insert(ByteRange::new(8, 10), next).unwrap();
    // And a hole, and more of that frame's pack.
    let last = FrameAddress {
        offset: 300,
        stored_len: 1,
        raw_len: 4,
        raw_start: 12,
        crc32: 5,
        ..frame
    };
    map.insert(ByteRange::new(12, 16), last).unwrap();
    let expected = "0203\
        00060209000000000000000805060204000000\
        7b04000000\
        280204ac020505000000";
    assert_eq!(hex(map.encode()), expected);
    // A shared one, and one that continues with its origin's block.
    let block = BlockKey {
        inode: Inode(0x0a),
        block: BlockIndex(0x0b),
    };
    let shared = FrameAddress {
        raw_start: 16,
        origin: Some(Origin { block, start: 32 }),
        ..last
    };
    map.insert(ByteRange::new(16, 20), shared).unwrap();
    let goes_on = FrameAddress {
        offset: 301,
        raw_start: 20,
        origin: Some(Origin { block, start: 36 }),
        ..shared
    };
    map.insert(ByteRange::new(20, 24), goes_on).unwrap();
    let expected = expected.replacen("0203", "0305", 1)
        + "ebac0205000000000a0b20\
        fb0500000001";
    assert_eq!(hex(map.encode()), expected);
    assert_eq!(BlockMap::decode(b"b", &map.encode()), Ok(map.clone()));
    let known = KnownFrame {
        hash: Some([0xab; 32]),
        head_crc32: 1,
        raw_crc32: 2,
        offset: 300,
        stored_len: 4,
        raw_len: 5,
        crc32: 3,
        origin: Origin { block, start: 6 },
    };
    let frames = PackFrames(vec![known]);
    let expected = format!(
        "0101{}010000000200000003000000ac0204050a0b06",
        "ab".repeat(32)
    );
    assert_eq!(hex(frames.encode()), expected);
    assert_eq!(PackFrames::decode(b"f", &frames.encode()), Ok(frames));
    assert_eq!(hex(Referrer.encode()), "01");
    assert_eq!(Referrer::decode(b"r", b"\x01"), Ok(Referrer));
}
