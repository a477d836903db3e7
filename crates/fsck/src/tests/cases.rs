//! One case for each kind of finding, made by damaging one thing.

use bytes::Bytes;
use forebay_meta::record::{
    Content, CookieRecord, DeadPack, Garbage, Holding, Kind, NameRecord, PackRecord, QuotaRecord,
    Recount, ScrubRecord, SnapshotRecord, TrashOwner, TrashRecord, TrashUntil, Truncated,
    UsageRecord,
};
use forebay_meta::{BlockMap, Key};
use forebay_pack::object_name;
use forebay_types::{BlockIndex, CommitNumber, Inode, SnapshotId};

use super::snapshots::{held, mark, snapshot};
use super::volume::{Volume, block, name, pack};

/// A damage, and the kinds of findings that it causes.
pub(super) type Case = (fn(&mut Volume), &'static [&'static str]);

/// Moves one extent of a block map to another offset.
fn moved(volume: &mut Volume, offset: impl FnOnce(u32) -> u32) {
    volume.edit::<BlockMap>(&block(6, 2), |map| {
        let mut extent = map.extents()[0];
        extent.frame.offset = offset(extent.frame.offset);
        *map = BlockMap::new();
        map.insert(extent.range, extent.frame).unwrap();
    });
}

/// When the objects of [`trashed`] leave the trash.
const UNTIL: u64 = 1_900_000_000;

/// Puts a file and the directory that it was in into the trash.
fn trashed(volume: &mut Volume) {
    volume.directory(8, 1, None);
    volume.object(9, Content::Regular, 100, None);
    for (inode, directory) in [(8, 1), (9, 8)] {
        volume.inode(inode, |record| record.nlink = 0);
        into_trash(volume, inode, directory);
    }
    volume.put(&OWNER, &TrashOwner);
    volume.state(|state| state.trash.files = 2);
}

/// Writes the records of an object in the trash.
fn into_trash(volume: &mut Volume, inode: u64, directory: u64) {
    let entry = TrashRecord {
        directory: Inode(directory),
        removed: Default::default(),
        until: UNTIL,
        by: 1000,
        name: Bytes::from_static(b"gone"),
    };
    volume.put(&Key::Trash(Inode(inode)), &entry);
    volume.put(&Key::TrashUntil(UNTIL, Inode(inode)), &TrashUntil);
}

/// The mark of the owner of the file of [`trashed`].
const OWNER: Key = Key::TrashOwner(0, Inode(9));

pub(super) const CASES: &[Case] = &[
    (trashed, &[]),
    (
        |v| {
            trashed(v);
            v.delete(&Key::TrashUntil(UNTIL, Inode(9)));
            v.put(&Key::TrashUntil(UNTIL + 1, Inode(8)), &TrashUntil);
            v.put(&Key::TrashUntil(UNTIL, Inode(3)), &TrashUntil);
        },
        &["wrong-trash-mark"],
    ),
    (
        |v| {
            trashed(v);
            v.delete(&Key::Trash(Inode(9)));
            v.delete(&Key::Trash(Inode(8)));
        },
        &[
            "orphan",
            "wrong-link-count",
            "wrong-trash-mark",
            "wrong-trash-owner",
        ],
    ),
    (
        |v| {
            trashed(v);
            v.delete(&OWNER);
        },
        &["wrong-trash-owner"],
    ),
    (
        |v| {
            trashed(v);
            // Of another user, of a directory, of a file with a name, and of nothing.
            for (uid, inode) in [(7, 9), (0, 8), (0, 3), (0, 50)] {
                v.put(&Key::TrashOwner(uid, Inode(inode)), &TrashOwner);
            }
        },
        &["wrong-trash-owner"],
    ),
    (
        |v| {
            trashed(v);
            drop(v.entries.insert(OWNER.encode(), "x".into()));
        },
        &["damaged-record"],
    ),
    (
        |v| {
            trashed(v);
            drop(v.entries.insert(Key::Trash(Inode(9)).encode(), "x".into()));
        },
        &["damaged-record"],
    ),
    (
        |v| {
            trashed(v);
            let mark = Key::TrashUntil(UNTIL, Inode(9)).encode();
            drop(v.entries.insert(mark, "x".into()));
        },
        &["damaged-record"],
    ),
    (
        |v| {
            into_trash(v, 3, 1);
            into_trash(v, 7, 1);
            into_trash(v, 50, 1);
        },
        &["trash-of-nothing"],
    ),
    (
        |v| {
            trashed(v);
            v.state(|state| (state.trash.files, state.trash.bytes) = (1, 512));
        },
        &["wrong-volume-count"],
    ),
    (
        |v| v.inode(4, |record| record.nlink = 0),
        &["wrong-link-count", "wrong-volume-count"],
    ),
    (
        |v| drop(v.entries.insert(Key::Inode(Inode(4)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Bytes::from_static(b"i\0"), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(name(1, "link").encode(), "x".into())),
        &["damaged-record", "orphan"],
    ),
    (
        |v| drop(v.entries.insert(block(6, 2).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Key::Pack(pack(1)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| drop(v.entries.insert(Key::Quota(Inode(2)).encode(), "x".into())),
        &["damaged-record"],
    ),
    (
        |v| {
            drop(
                v.entries
                    .insert(Bytes::from_static(b"!of later"), "x".into()),
            )
        },
        &["unknown-entry"],
    ),
    (|v| v.delete(&Key::Volume), &["no-volume-state"]),
    (
        |v| drop(v.entries.insert(Key::Volume.encode(), "x".into())),
        &["damaged-record", "no-volume-state"],
    ),
    (
        |v| v.state(|state| state.used_bytes += 1),
        &["wrong-volume-count"],
    ),
    (
        |v| v.state(|state| state.used_inodes -= 1),
        &["wrong-volume-count"],
    ),
    (
        |v| v.state(|state| state.charged_bytes = Some(0)),
        &["wrong-volume-count"],
    ),
    (|v| v.state(|state| state.charged_bytes = None), &[]),
    (
        |v| v.state(|state| state.next_inode = 7),
        &["next-inode-too-low"],
    ),
    (|v| v.state(|state| state.next_inode = 8), &[]),
    (
        |v| {
            v.state(|state| {
                state.epoch.0 = 1;
                state.next_pack = pack(3).0;
            });
        },
        &["next-pack-too-low"],
    ),
    (|v| v.own(1, |own| own.parent = Inode(2)), &["bad-root"]),
    (
        |v| {
            v.delete(&Key::Inode(Inode(1)));
            v.state(|state| state.used_inodes -= 1);
        },
        &["bad-root", "names-in-no-directory"],
    ),
    (
        |v| {
            v.name(2, "root", 1, Kind::Directory);
        },
        &["bad-root", "wrong-tree"],
    ),
    (
        |v| {
            v.delete(&name(1, "link"));
            v.delete(&Key::Cookie(Inode(1), 5));
            v.own(1, |own| own.entries -= 1);
        },
        &["orphan"],
    ),
    (
        |v| v.inode(3, |record| record.nlink = 1),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(2, |record| record.nlink = 2),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(1, |record| record.nlink = 4),
        &["wrong-link-count"],
    ),
    (
        |v| v.inode(3, |record| record.mode = 0o10_0644),
        &["bad-attributes"],
    ),
    (
        |v| v.inode(4, |record| record.size = 9),
        &["bad-attributes"],
    ),
    (
        |v| v.inode(4, |record| record.used = 9),
        &["bad-attributes"],
    ),
    (|v| v.own(2, |own| own.entries = 4), &["wrong-entry-count"]),
    (
        |v| v.own(2, |own| own.next_cookie = 5),
        &["next-cookie-too-low"],
    ),
    (
        |v| v.own(5, |own| own.next_cookie = 0),
        &["next-cookie-too-low"],
    ),
    (|v| v.own(5, |own| own.parent = Inode(1)), &["wrong-parent"]),
    (|v| v.name(2, "again", 5, Kind::Directory), &["many-names"]),
    (
        |v| {
            // Two directories in each other, complete but for a path from the root.
            v.directory(8, 9, None);
            v.directory(9, 8, None);
            v.name(8, "a", 9, Kind::Directory);
            v.name(9, "b", 8, Kind::Directory);
            v.state(|state| state.used_inodes += 2);
        },
        &["loop"],
    ),
    (
        |v| {
            v.directory(8, 8, None);
            v.name(8, "self", 8, Kind::Directory);
            v.state(|state| state.used_inodes += 1);
        },
        &["loop"],
    ),
    (
        |v| {
            v.delete(&Key::Inode(Inode(4)));
            v.state(|state| state.used_inodes -= 1);
        },
        &["name-without-object"],
    ),
    (
        |v| {
            // In both records of the name.
            v.edit::<NameRecord>(&name(1, "link"), |record| record.kind = Kind::Regular);
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 5), |record| {
                record.kind = Kind::Regular;
            });
        },
        &["wrong-kind"],
    ),
    (
        |v| {
            let record = CookieRecord {
                inode: Inode(3),
                kind: Kind::Regular,
                name: "x".into(),
            };
            v.put(&Key::Cookie(Inode(50), 3), &record);
        },
        &["names-in-no-directory"],
    ),
    (
        |v| {
            v.name(1, "a/b", 3, Kind::Regular);
            v.inode(3, |record| record.nlink += 1);
        },
        &["bad-name"],
    ),
    (
        |v| {
            v.name(1, "..", 3, Kind::Regular);
            v.inode(3, |record| record.nlink += 1);
        },
        &["bad-name"],
    ),
    (
        |v| v.delete(&Key::Cookie(Inode(1), 4)),
        &["name-without-cookie"],
    ),
    (
        |v| {
            let record = CookieRecord {
                inode: Inode(3),
                kind: Kind::Regular,
                name: "ghost".into(),
            };
            v.put(&Key::Cookie(Inode(1), 6), &record);
            v.own(1, |own| own.next_cookie = 7);
        },
        &["cookie-without-name"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.inode = Inode(6);
            });
        },
        &["name-and-cookie-differ"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.kind = Kind::Fifo;
            });
        },
        &["name-and-cookie-differ"],
    ),
    (
        |v| {
            v.edit::<CookieRecord>(&Key::Cookie(Inode(1), 4), |record| {
                record.name = "elif".into();
            });
        },
        &["cookie-without-name", "name-and-cookie-differ"],
    ),
    (
        |v| v.delete(&Key::Garbage(Inode(7))),
        &["blocks-without-file"],
    ),
    (
        |v| v.inode(3, |record| record.size = 4999),
        // Quotas count no more of a file than its size; here both are rounded up to the same number.
        &["block-behind-end"],
    ),
    // Truncated and removed within one checkpoint: its maps are as they were, and are collected whole.
    (
        |v| v.edit::<Garbage>(&Key::Garbage(Inode(7)), |record| record.size = 4 << 20),
        &[],
    ),
    // Truncated, and one block is still to be collected.
    (
        |v| {
            v.inode(6, |record| {
                (record.size, record.used) = (4096, 4096);
                record.truncated.add_from(BlockIndex(1));
            });
            v.put(&Key::Truncated(Inode(6)), &Truncated);
            v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.bytes = 4096);
            v.state(|state| state.charged_bytes = Some(5120 + 4096));
        },
        &[],
    ),
    // All blocks except that one.
    (
        |v| {
            v.inode(6, |record| {
                record.truncated.add_from(BlockIndex(1));
                record.truncated.remove(BlockIndex(2));
            });
            v.put(&Key::Truncated(Inode(6)), &Truncated);
        },
        &[],
    ),
    (
        |v| {
            let key = Key::Truncated(Inode(6)).encode();
            drop(v.entries.insert(key, "x".into()));
        },
        &["damaged-record"],
    ),
    (|v| moved(v, |_| 20), &["damaged-frame", "impossible-frame"]),
    (
        |v| moved(v, |offset| offset + 460),
        &["damaged-frame", "impossible-frame"],
    ),
    (
        |v| {
            v.inode(6, |record| record.used += 1);
        },
        // Both are rounded up to the same.
        &["wrong-used"],
    ),
    (
        |v| {
            let garbage = Garbage {
                size: 6000,
                first_block: BlockIndex(0),
            };
            v.put(&Key::Garbage(Inode(3)), &garbage);
        },
        &["garbage-of-living"],
    ),
    (
        |v| {
            v.edit::<Garbage>(&Key::Garbage(Inode(7)), |record| {
                record.first_block = BlockIndex(2);
            });
        },
        &["collected-block"],
    ),
    (
        |v| v.put(&Key::Scrub(pack(9)), &ScrubRecord::default()),
        &["check-of-no-pack"],
    ),
    (
        |v| {
            drop(
                v.entries
                    .insert(Key::Scrub(pack(2)).encode(), vec![1, 2].into()),
            )
        },
        &["damaged-record"],
    ),
    (|v| v.delete(&Key::Pack(pack(1))), &["pack-without-account"]),
    (
        |v| v.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.live_bytes -= 1),
        &["wrong-live-bytes"],
    ),
    (
        |v| v.put(&Key::DeadPack(pack(1)), &DeadPack::default()),
        &["dead-pack-in-use"],
    ),
    (
        |v| {
            v.delete(&Key::Pack(pack(1)));
            v.put(&Key::DeadPack(pack(1)), &DeadPack::default());
        },
        &["dead-pack-in-use"],
    ),
    (
        |v| v.edit::<PackRecord>(&Key::Pack(pack(1)), |record| record.raw_bytes = 9095),
        &["bad-pack-account", "damaged-pack"],
    ),
    (
        |v| drop(v.objects.remove(&object_name(pack(1)))),
        &["damaged-frame", "missing-pack"],
    ),
    (
        |v| {
            let pack = v.objects.get_mut(&object_name(pack(2))).unwrap();
            // The frame of the removed file and all that follows.
            pack.truncate(40 + 128 + 100);
        },
        &["damaged-frame", "wrong-pack-length"],
    ),
    (
        |v| {
            let quota = QuotaRecord {
                limit_bytes: 1,
                limit_files: 1,
                recount: Recount::Done,
            };
            v.put(&Key::Quota(Inode(6)), &quota);
        },
        &["quota-of-no-directory"],
    ),
    (
        |v| v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.bytes = 512),
        &["wrong-usage"],
    ),
    (|v| v.delete(&Key::Usage(Inode(2))), &["wrong-usage"]),
    (|v| v.delete(&Key::Quota(Inode(2))), &["tree-without-quota"]),
    (
        |v| {
            v.inode(5, |record| record.tree = None);
            v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.files = 2);
        },
        &["wrong-tree"],
    ),
    (
        |v| {
            v.inode(5, |record| record.tree = None);
            v.edit::<UsageRecord>(&Key::Usage(Inode(2)), |record| record.files = 2);
            v.edit::<QuotaRecord>(&Key::Quota(Inode(2)), |record| {
                record.recount = Recount::Leaving;
            });
        },
        // It is being counted out.
        &[],
    ),
    (
        |v| v.objects.get_mut(&object_name(pack(1))).unwrap()[40 + 128 + 77] ^= 1,
        &["damaged-frame"],
    ),
    (
        |v| v.objects.get_mut(&object_name(pack(1))).unwrap()[3] ^= 1,
        &["damaged-pack"],
    ),
    (
        |v| {
            *v.objects
                .get_mut(&object_name(pack(1)))
                .unwrap()
                .last_mut()
                .unwrap() ^= 1
        },
        &["damaged-pack"],
    ),
    (
        Volume::notes_on_a_pack_that_is_not_there,
        &["note-without-pack"],
    ),
    (Volume::impossible_note, &["impossible-note"]),
    (Volume::share_without_a_note, &["missing-sharers"]),
    (Volume::share, &[]),
    (Volume::with_snapshots, &[]),
    // Snapshots and held packs.
    (|v| with(v, |v| spoil(v, &snapshot(1))), &["damaged-record"]),
    (|v| with(v, |v| spoil(v, &held(4))), &["damaged-record"]),
    (|v| with(v, |v| spoil(v, &mark(1, 4))), &["damaged-record"]),
    (
        |v| with(v, |v| spoil(v, &Key::DeadPack(pack(7)))),
        &["damaged-record"],
    ),
    (
        |v| with(v, |v| v.state(|state| state.history.held_bytes -= 1)),
        &["wrong-volume-count"],
    ),
    (
        |v| with(v, |v| v.state(|state| state.history.commit.0 = 7)),
        &["history-too-low"],
    ),
    (
        |v| with(v, |v| v.state(|state| state.history.last_snapshot = 3)),
        &["history-too-low"],
    ),
    (
        // The account of a pack is of a later commit than all others.
        |v| {
            with(v, |v| {
                let born = |record: &mut PackRecord| record.born = CommitNumber(10);
                v.edit(&Key::Pack(pack(2)), born);
            });
        },
        &["history-too-low"],
    ),
    (
        |v| with(v, |v| v.state(|state| state.history = Default::default())),
        &["history-too-low", "wrong-volume-count"],
    ),
    (
        // Missing: a snapshot that was deleted.
        |v| with(v, |v| hold(v, 5, (4, 3))),
        &["wrong-holder"],
    ),
    (
        // An older one than the newest that refers to it.
        |v| with(v, |v| hold(v, 5, (4, 1))),
        &["wrong-holder"],
    ),
    (
        // One that was made after its death.
        |v| with(v, |v| hold(v, 4, (1, 4))),
        &["wrong-holder"],
    ),
    (
        // No snapshot was made in its life.
        |v| {
            with(v, |v| {
                v.held(4, |record| {
                    record.life.born = CommitNumber(1);
                    record.life.died = CommitNumber(2);
                });
            });
        },
        &["wrong-holder"],
    ),
    (|v| with(v, |v| v.delete(&snapshot(4))), &["wrong-holder"]),
    (|v| with(v, |v| v.delete(&mark(4, 5))), &["wrong-mark"]),
    (
        |v| with(v, |v| v.put(&mark(1, 5), &Holding)),
        &["wrong-mark"],
    ),
    (
        |v| with(v, |v| v.put(&mark(1, 2), &Holding)),
        &["wrong-mark"],
    ),
    (
        |v| with(v, |v| v.delete(&held(4))),
        &["wrong-mark", "wrong-volume-count"],
    ),
    (
        |v| {
            with(v, |v| {
                let name = |record: &mut SnapshotRecord| record.name = "weekly".to_owned();
                v.edit(&snapshot(4), name);
            });
        },
        &["snapshots-with-one-name"],
    ),
    (Volume::hold_a_live_pack, &["held-pack-in-use"]),
    (
        |v| {
            v.hold_a_live_pack();
            v.delete(&Key::Pack(pack(1)));
        },
        &["held-pack-in-use"],
    ),
    (
        |v| with(v, |v| v.put(&Key::DeadPack(pack(4)), &DeadPack::default())),
        &["dead-pack-in-use"],
    ),
    (
        |v| with(v, |v| drop(v.objects.remove(&object_name(pack(4))))),
        &["missing-pack"],
    ),
    (
        |v| {
            with(v, |v| {
                v.objects
                    .get_mut(&object_name(pack(4)))
                    .unwrap()
                    .truncate(39)
            })
        },
        &["wrong-pack-length"],
    ),
    (Volume::with_past, &[]),
    (
        |v| {
            v.with_past();
            v.lived(4, 9);
        },
        &["pack-not-held"],
    ),
    (
        |v| {
            v.with_past();
            v.past = Some(Default::default());
        },
        &["unreadable-snapshot"],
    ),
    (
        |v| {
            v.with_past();
            v.damage(4, 0);
            v.damage(5, 1);
        },
        &["damaged-frame-of-snapshot"],
    ),
];

/// Damages a volume that has snapshots.
fn with(volume: &mut Volume, damage: fn(&mut Volume)) {
    volume.with_snapshots();
    damage(volume);
}

fn spoil(volume: &mut Volume, key: &Key) {
    volume.entries.insert(key.encode(), "x".into());
}

/// Gives a held pack another holder, with its mark.
fn hold(volume: &mut Volume, n: u64, (from, to): (u64, u64)) {
    volume.held(n, |record| record.holder = SnapshotId(to));
    volume.delete(&mark(from, n));
    volume.put(&mark(to, n), &Holding);
}
