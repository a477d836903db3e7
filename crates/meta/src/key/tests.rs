use super::*;
use proptest::prelude::*;

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        Just(Key::Volume),
        any::<u64>().prop_map(|n| Key::Inode(Inode(n))),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(n, name)| Key::Name(Inode(n), name.into())),
        any::<(u64, u64)>().prop_map(|(n, cookie)| Key::Cookie(Inode(n), cookie)),
        any::<(u64, u64)>().prop_map(|(n, block)| Key::Block(BlockKey {
            inode: Inode(n),
            block: BlockIndex(block)
        })),
        any::<u64>().prop_map(|n| Key::Pack(PackId(n))),
        any::<u64>().prop_map(|n| Key::Garbage(Inode(n))),
        any::<u64>().prop_map(|n| Key::Truncated(Inode(n))),
        any::<u64>().prop_map(|n| Key::DeadPack(PackId(n))),
        any::<u64>().prop_map(|n| Key::Quota(Inode(n))),
        any::<u64>().prop_map(|n| Key::Usage(Inode(n))),
        any::<u64>().prop_map(|n| Key::Scrub(PackId(n))),
        any::<(u64, u32)>().prop_map(|(n, part)| Key::PackFrames(PackId(n), part)),
        any::<(u64, u64, u64)>().prop_map(|(n, inode, block)| Key::Referrer(
            PackId(n),
            BlockKey {
                inode: Inode(inode),
                block: BlockIndex(block)
            }
        )),
        any::<u64>().prop_map(|n| Key::Snapshot(SnapshotId(n))),
        any::<u64>().prop_map(|n| Key::HeldPack(PackId(n))),
        any::<(u64, u64)>().prop_map(|(n, pack)| Key::Holding(SnapshotId(n), PackId(pack))),
        any::<u64>().prop_map(|n| Key::Trash(Inode(n))),
        any::<(u64, u64)>().prop_map(|(n, inode)| Key::TrashUntil(n, Inode(inode))),
        any::<(u32, u64)>().prop_map(|(uid, inode)| Key::TrashOwner(uid, Inode(inode))),
    ]
}

proptest! {
    #[test]
    fn every_key_comes_back(key in any_key()) {
        prop_assert_eq!(Key::decode(&key.encode()), Ok(key));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(key) = Key::decode(&bytes) {
            prop_assert_eq!(key.encode(), bytes);
        }
    }

    #[test]
    fn ranges_hold_their_own_and_nothing_else(dir in any::<u64>(), after in any::<u64>(), key in any_key()) {
        let bytes = key.encode();
        let directory = Inode(dir);
        let names = matches!(&key, Key::Name(d, _) if *d == directory);
        prop_assert_eq!(KeyRange::names(directory).contains(&bytes), names);
        let cookies = matches!(&key, Key::Cookie(d, c) if *d == directory && *c > after);
        prop_assert_eq!(KeyRange::cookies_after(directory, after).contains(&bytes), cookies);
        let until = after.saturating_add(3);
        let few = matches!(&key, Key::Cookie(d, c) if *d == directory && *c > after && *c <= until);
        prop_assert_eq!(KeyRange::cookies_between(directory, after, until).contains(&bytes), few);
        let blocks = matches!(&key, Key::Block(k) if k.inode == directory && k.block.0 >= after);
        prop_assert_eq!(KeyRange::blocks(directory, BlockIndex(after)).contains(&bytes), blocks);
        let frames = matches!(&key, Key::PackFrames(pack, _) if pack.0 == dir);
        prop_assert_eq!(KeyRange::pack_frames(PackId(dir)).contains(&bytes), frames);
        let referrers = matches!(&key, Key::Referrer(pack, _) if pack.0 == dir);
        prop_assert_eq!(KeyRange::referrers(PackId(dir)).contains(&bytes), referrers);
        let snapshots = matches!(&key, Key::Snapshot(_));
        prop_assert_eq!(KeyRange::snapshots().contains(&bytes), snapshots);
        let snapshots = matches!(&key, Key::Snapshot(id) if id.0 >= after);
        prop_assert_eq!(KeyRange::snapshots_from(SnapshotId(after)).contains(&bytes), snapshots);
        let held = matches!(&key, Key::HeldPack(_));
        prop_assert_eq!(KeyRange::held_packs().contains(&bytes), held);
        let held = matches!(&key, Key::HeldPack(pack) if pack.0 >= after);
        prop_assert_eq!(KeyRange::held_packs_from(PackId(after)).contains(&bytes), held);
        let holdings = matches!(&key, Key::Holding(id, _) if id.0 == dir);
        prop_assert_eq!(KeyRange::holdings(SnapshotId(dir)).contains(&bytes), holdings);
        let holdings = matches!(&key, Key::Holding(id, _) if id.0 >= after);
        prop_assert_eq!(KeyRange::holdings_from(SnapshotId(after)).contains(&bytes), holdings);
        let trash = matches!(&key, Key::Trash(inode) if inode.0 >= after);
        prop_assert_eq!(KeyRange::trash_from(Inode(after)).contains(&bytes), trash);
        let few = matches!(&key, Key::Trash(inode) if inode.0 > after && inode.0 <= until);
        prop_assert_eq!(KeyRange::trash_between(Inode(after), Inode(until)).contains(&bytes), few);
        let uid = u32::try_from(dir >> 32).unwrap();
        let owned = matches!(&key, Key::TrashOwner(own, inode) if *own == uid && inode.0 > after);
        prop_assert_eq!(KeyRange::trash_of(uid, Inode(after)).contains(&bytes), owned);
        let owned = matches!(&key, Key::TrashOwner(..));
        prop_assert_eq!(KeyRange::trash_owners().contains(&bytes), owned);
        let order = matches!(&key, Key::TrashUntil(..));
        prop_assert_eq!(KeyRange::trash_order().contains(&bytes), order);
        prop_assert!(!KeyRange::unknown().iter().any(|range| range.contains(&bytes)));
    }

    #[test]
    fn a_key_of_no_kind_is_in_one_of_the_unknown_ranges(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
        let known = bytes.first().is_some_and(|first| b"vincbpgtxqusfrkhjdeo".contains(first));
        let ranges = KeyRange::unknown();
        let found = ranges.iter().filter(|range| range.contains(&bytes)).count();
        prop_assert_eq!(found, usize::from(!known));
    }
}

#[test]
fn ranges_from_a_number_begin_there_and_end_with_their_kind() {
    let range = KeyRange::inodes_from(Inode(7));
    for (inode, is_in) in [(6, false), (7, true), (u64::MAX, true)] {
        assert_eq!(range.contains(&Key::Inode(Inode(inode)).encode()), is_in);
    }
    assert!(!range.contains(&Key::Garbage(Inode(9)).encode()));
    assert!(KeyRange::inodes_from(Inode(0)).contains(b"i\0"));
    assert!(!range.contains(&Key::Name(Inode(9), "n".into()).encode()));
}

#[test]
fn numbers_order_as_numbers() {
    let cookie = |c| Key::Cookie(Inode(7), c).encode();
    assert!(cookie(255) < cookie(256));
    assert!(
        KeyRange::cookies_after(Inode(u64::MAX), 3)
            .contains(&Key::Cookie(Inode(u64::MAX), u64::MAX).encode())
    );
    assert!(!KeyRange::cookies_after(Inode(7), u64::MAX).contains(&cookie(u64::MAX)));
}

#[test]
fn damaged_keys_are_named() {
    for bytes in [&b""[..], b"i", b"z12345678", b"n\0\0\0\0\0\0\0\x01", b"v!"] {
        assert!(Key::decode(bytes).is_err(), "{bytes:?}");
    }
    let error = Key::decode(b"i\x01\x02").unwrap_err();
    assert!(error.to_string().contains("i:0102"), "{error}");
}
