//! What POSIX and RFC 1813 say about files, names and permissions.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use forebay_types::Inode;
use forebay_vfs::{
    Access, CreateMode, Credentials, Device, Error, FileKind, FileSystem, NewNode, SetAttributes,
    SetTime, Stability, Timestamp,
};

const TOP: Inode = Inode::ROOT;

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..Default::default()
    }
}

/// Makes a file as somebody, with a mode.
fn create_as(
    life: &Life,
    who: &Credentials,
    at: (Inode, &[u8]),
    bits: u32,
) -> Result<Inode, Error> {
    life.run(|volume| async move {
        let made = volume
            .create(who, at.0, at.1, &CreateMode::Guarded(mode(bits)))
            .await?;
        Ok(made.attributes.inode)
    })
}

fn mkdir_as(life: &Life, who: &Credentials, at: (Inode, &[u8]), bits: u32) -> Result<Inode, Error> {
    life.run(|volume| async move {
        let made = volume
            .make(who, at.0, at.1, NewNode::Directory, &mode(bits))
            .await?;
        Ok(made.attributes.inode)
    })
}

/// A directory in which everybody may do everything.
fn open_directory(life: &Life, name: &[u8]) -> Inode {
    mkdir_as(life, &ROOT, (TOP, name), 0o777).unwrap()
}

#[test]
fn hard_links_share_one_object_until_the_last_name_is_gone() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    let inode = life.create(b"one");
    life.link(inode, (directory, b"two")).unwrap();
    life.write(inode, 0, b"shared", Stability::FileSync);
    assert_eq!(life.getattr(inode).unwrap().nlink, 2);
    assert_eq!(life.try_lookup(directory, b"two").unwrap().inode, inode);
    assert_eq!(life.link(inode, (directory, b"two")), Err(Error::Exists));
    assert_eq!(
        life.link(directory, (TOP, b"directory")),
        Err(Error::NotOwner)
    );
    life.flush();
    life.crash();

    let life = bucket.start(|_| {});
    life.remove(b"one");
    assert_eq!(life.getattr(inode).unwrap().nlink, 1);
    assert_eq!(life.read(inode, 0, 100), b"shared");
    life.try_remove(directory, b"two").unwrap();
    assert_eq!(life.getattr(inode), Err(Error::Stale));
    assert_eq!(life.try_read(inode, 0, 100), Err(Error::Stale));
    assert_eq!(life.link(inode, (TOP, b"three")), Err(Error::Stale));
}

#[test]
fn symbolic_links_and_special_files_keep_what_they_were_made_with() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let long = vec![b'x'; 4096];
    let device = Device {
        major: 0xfff,
        minor: 0xf_ffff,
    };
    let nodes: [(&[u8], NewNode<'_>, FileKind); 6] = [
        (
            b"link",
            NewNode::Symlink(b"../\xff\xfe/target"),
            FileKind::Symlink,
        ),
        (b"long", NewNode::Symlink(&long), FileKind::Symlink),
        (b"pipe", NewNode::Fifo, FileKind::Fifo),
        (b"socket", NewNode::Socket, FileKind::Socket),
        (
            b"block",
            NewNode::BlockDevice(device),
            FileKind::BlockDevice,
        ),
        (b"char", NewNode::CharDevice(device), FileKind::CharDevice),
    ];
    for (name, node, _) in nodes {
        life.run(|volume| async move {
            volume
                .make(&ROOT, TOP, name, node, &mode(0o640))
                .await
                .unwrap();
            assert_eq!(
                volume.make(&ROOT, TOP, name, node, &mode(0o640)).await,
                Err(Error::Exists)
            );
        });
    }
    let check = |life: &Life| {
        for (name, node, kind) in nodes {
            let found = life.lookup(name);
            assert_eq!((found.kind, found.mode, found.nlink), (kind, 0o640, 1));
            let target =
                life.run(|volume| async move { volume.readlink(&ROOT, found.inode).await });
            match node {
                NewNode::Symlink(expected) => {
                    assert_eq!(target.unwrap().0, expected);
                    assert_eq!(found.size, expected.len() as u64);
                }
                NewNode::BlockDevice(_) | NewNode::CharDevice(_) => {
                    assert_eq!(found.device, device);
                }
                _ => assert_eq!(target, Err(Error::Invalid)),
            }
            assert_eq!(life.try_read(found.inode, 0, 1), Err(Error::Invalid));
        }
    };
    check(&life);
    life.run(|volume| async move {
        for (target, error) in [
            (&b""[..], Error::Invalid),
            (&[b'x'; 4097], Error::NameTooLong),
        ] {
            let made = volume
                .make(&ROOT, TOP, b"bad", NewNode::Symlink(target), &mode(0o777))
                .await;
            assert_eq!(made, Err(error));
        }
    });
    life.crash();
    let life = bucket.start(|_| {});
    check(&life);
    life.flush();
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn rename_replaces_files_and_empty_directories_and_nothing_else() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (a, b) = (life.mkdir(TOP, b"a"), life.mkdir(TOP, b"b"));
    let (x, y) = (life.create_in(a, b"x"), life.create_in(b, b"y"));
    life.rename((a, b"x"), (b, b"y")).unwrap();
    assert_eq!(life.try_lookup(b, b"y").unwrap().inode, x);
    assert_eq!(life.getattr(y), Err(Error::Stale));
    assert_eq!(life.try_lookup(a, b"x"), Err(Error::NotFound));

    // Kinds must agree.
    assert_eq!(
        life.rename((TOP, b"a"), (b, b"y")),
        Err(Error::NotDirectory)
    );
    assert_eq!(life.rename((b, b"y"), (TOP, b"a")), Err(Error::IsDirectory));
    // Directories: only empty ones are replaced; links follow.
    let c = life.mkdir(a, b"c");
    assert_eq!(life.rename((TOP, b"b"), (TOP, b"a")), Err(Error::NotEmpty));
    life.rename((TOP, b"b"), (a, b"c")).unwrap();
    assert_eq!(life.getattr(c), Err(Error::Stale));
    assert_eq!(life.try_lookup(b, b"..").unwrap().inode, a);
    assert_eq!(life.getattr(a).unwrap().nlink, 3);
    assert_eq!(life.getattr(TOP).unwrap().nlink, 3);
    // Into itself or below.
    let d = life.mkdir(b, b"d");
    for to in [a, b, d] {
        assert_eq!(
            life.rename((TOP, b"a"), (to, b"new")),
            Err(Error::Invalid),
            "into {to}"
        );
    }
    // Over a directory that holds it, near and far.
    let e = life.mkdir(d, b"e");
    assert_eq!(life.rename((d, b"e"), (b, b"d")), Err(Error::NotEmpty));
    assert_eq!(life.rename((d, b"e"), (a, b"c")), Err(Error::NotEmpty));
    assert_eq!(life.rename((d, b"e"), (TOP, b"a")), Err(Error::NotEmpty));
    // Two names of one object: nothing happens.
    life.link(x, (b, b"other")).unwrap();
    life.rename((b, b"y"), (b, b"other")).unwrap();
    assert_eq!(life.getattr(x).unwrap().nlink, 2);
    life.rename((b, b"y"), (b, b"y")).unwrap();
    assert_eq!(life.try_lookup(b, b"y").unwrap().inode, x);
    for name in [&b"."[..], b".."] {
        assert_eq!(life.rename((b, name), (b, b"z")), Err(Error::Invalid));
        assert_eq!(life.rename((b, b"y"), (b, name)), Err(Error::Invalid));
    }
    assert_eq!(life.rename((b, b"none"), (b, b"z")), Err(Error::NotFound));
    life.crash();

    let life = bucket.start(|_| {});
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.try_lookup(a, b"c").unwrap().inode, b);
    assert_eq!(life.try_lookup(b, b"..").unwrap().inode, a);
    assert_eq!(life.try_lookup(d, b"e").unwrap().inode, e);
    assert_eq!(life.try_lookup(b, b"other").unwrap().inode, x);
}

#[test]
fn renames_over_a_distant_parent_and_removals_below_it_do_not_block_each_other() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(TOP, b"top");
    let middle = life.mkdir(top, b"middle");
    life.create_in(middle, b"keep");
    for _ in 0..50 {
        let low = life.mkdir(middle, b"low");
        life.mkdir(low, b"moved");
        let rename = life.spawn(move |volume| async move {
            volume
                .rename(&ROOT, (low, b"moved"), (top, b"middle"))
                .await
                .map(drop)
        });
        let remove =
            life.spawn(
                move |volume| async move { volume.rmdir(&ROOT, middle, b"low").await.map(drop) },
            );
        assert_eq!(life.join(rename), Err(Error::NotEmpty));
        assert_eq!(life.join(remove), Err(Error::NotEmpty));
        life.rmdir(low, b"moved").unwrap();
        life.rmdir(middle, b"low").unwrap();
    }
}

#[test]
fn holes_read_as_zeros_and_sizes_reach_63_bits() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 16 << 20);
    let inode = life.create(b"sparse");
    let far = (1u64 << 62) + 12_345;
    life.write(inode, far, b"far away", Stability::Unstable);
    life.write(inode, 10 << 20, b"near", Stability::FileSync);
    let check = |life: &Life| {
        let found = life.getattr(inode).unwrap();
        assert_eq!(found.size, far + 8);
        assert!(found.used < 1 << 20, "{} bytes are used", found.used);
        assert_eq!(life.read(inode, far - 4, 100), b"\0\0\0\0far away");
        assert_eq!(life.read(inode, (10 << 20) - 2, 8), b"\0\0near\0\0");
        assert!(life.read(inode, 0, 1 << 20).iter().all(|byte| *byte == 0));
        assert_eq!(life.read(inode, far + 8, 10), b"");
        assert_eq!(life.read(inode, u64::MAX, 10), b"");
    };
    check(&life);
    let largest = i64::MAX as u64;
    assert_eq!(
        life.try_write(inode, largest, b"x"),
        Err(Error::FileTooLarge)
    );
    assert_eq!(
        life.try_write(inode, u64::MAX, b"x"),
        Err(Error::FileTooLarge)
    );
    let too_large = SetAttributes {
        size: Some(largest + 1),
        ..Default::default()
    };
    assert_eq!(life.set(&ROOT, inode, too_large), Err(Error::FileTooLarge));
    let made = life.run(|volume| async move {
        volume
            .create(&ROOT, TOP, b"huge", &CreateMode::Guarded(too_large))
            .await
    });
    assert_eq!(made, Err(Error::FileTooLarge));
    life.flush();
    life.evict();
    check(&life);
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn written_bytes_are_read_back_and_survive_in_the_bucket_alone() {
    let bucket = Bucket::new();
    let data = pattern(1, 10 << 20);
    let life = bucket.start(|config| config.memory_limit = 64 << 20);
    let inode = life.create(b"file");
    life.write(inode, 0, &data, Stability::Unstable);
    life.write(inode, 12 << 20, b"tail", Stability::FileSync);
    let check = |life: &Life| {
        assert_bytes(&life.read(inode, 0, 10 << 20), &data);
        assert_bytes(&life.read(inode, 10 << 20, 2 << 20), &vec![0; 2 << 20]);
        assert_eq!(life.read(inode, 12 << 20, 100), b"tail");
    };
    check(&life);
    life.flush();
    life.crash();
    check(&bucket.start_elsewhere(|_| {}));
}

#[test]
fn exclusive_create_finds_its_own_file_and_no_other() {
    let bucket = Bucket::new();
    let exclusive = |life: &Life, verifier: u8| {
        life.run(|volume| async move {
            let mode = CreateMode::Exclusive([verifier; 8]);
            Ok(volume
                .create(&ROOT, TOP, b"file", &mode)
                .await?
                .attributes
                .inode)
        })
    };
    let life = bucket.start(|_| {});
    let inode = exclusive(&life, 1).unwrap();
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(exclusive(&life, 1), Ok(inode));
    assert_eq!(exclusive(&life, 2), Err(Error::Exists));
    life.create(b"guarded");
    life.run(|volume| async move {
        let mode = CreateMode::Exclusive([0; 8]);
        assert_eq!(
            volume.create(&ROOT, TOP, b"guarded", &mode).await,
            Err(Error::Exists)
        );
    });
}

#[test]
fn unchecked_create_takes_an_existing_file_and_may_empty_it() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let inode = life.create(b"file");
    life.mkdir(TOP, b"directory");
    life.write(inode, 0, b"content", Stability::Unstable);
    let unchecked = |name: &'static [u8], size| {
        life.run(|volume| async move {
            let mode = CreateMode::Unchecked(SetAttributes {
                size,
                ..Default::default()
            });
            volume
                .create(&ROOT, TOP, name, &mode)
                .await
                .map(|made| made.attributes)
        })
    };
    let kept = unchecked(b"file", None).unwrap();
    assert_eq!((kept.inode, kept.size), (inode, 7));
    assert_eq!(unchecked(b"file", Some(0)).unwrap().size, 0);
    assert_eq!(life.read(inode, 0, 10), b"");
    assert_eq!(unchecked(b"directory", None), Err(Error::Exists));
}

#[test]
fn names_are_any_255_bytes_but_slash_and_nul() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let long: Vec<u8> = (0..255u8)
        .map(|i| if i == b'/' { 0xff } else { i.max(1) })
        .collect();
    let names = [&long[..], &[0xff; 255], b"\xc3\x28", b" ", b"...", b"\n"];
    let inodes: Vec<Inode> = names.iter().map(|name| life.create(name)).collect();
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    for (name, inode) in names.iter().zip(inodes) {
        assert_eq!(life.lookup(name).inode, inode);
    }
    let listed: BTreeSet<_> = life
        .list(TOP, 3)
        .into_iter()
        .skip(2)
        .map(|entry| entry.name.to_vec())
        .collect();
    assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
    let bad: [(&[u8], Error); 4] = [
        (b"", Error::Invalid),
        (b"a/b", Error::Invalid),
        (b"a\0", Error::Invalid),
        (&[b'x'; 256], Error::NameTooLong),
    ];
    for (name, error) in bad {
        life.run(|volume| async move {
            let guarded = CreateMode::Guarded(SetAttributes::default());
            assert_eq!(volume.create(&ROOT, TOP, name, &guarded).await, Err(error));
            assert_eq!(volume.lookup(&ROOT, TOP, name).await, Err(error));
            assert_eq!(volume.remove(&ROOT, TOP, name).await, Err(error));
            let made = volume
                .make(&ROOT, TOP, name, NewNode::Fifo, &mode(0o600))
                .await;
            assert_eq!(made, Err(error));
        });
        assert_eq!(life.rename((TOP, b" "), (TOP, name)), Err(error));
    }
}

#[test]
fn directories_are_removed_only_when_empty_and_only_by_rmdir() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    life.create_in(directory, b"f");
    assert_eq!(life.rmdir(TOP, b"d"), Err(Error::NotEmpty));
    assert_eq!(life.try_remove(TOP, b"d"), Err(Error::IsDirectory));
    assert_eq!(life.rmdir(directory, b"f"), Err(Error::NotDirectory));
    assert_eq!(life.rmdir(TOP, b"none"), Err(Error::NotFound));
    assert_eq!(life.rmdir(directory, b"."), Err(Error::Invalid));
    life.flush();
    assert_eq!(life.rmdir(TOP, b"d"), Err(Error::NotEmpty));
    life.try_remove(directory, b"f").unwrap();
    life.rmdir(TOP, b"d").unwrap();
    assert_eq!(life.getattr(TOP).unwrap().nlink, 2);
    life.run(|volume| async move {
        let guarded = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(
            volume.create(&ROOT, directory, b"f", &guarded).await,
            Err(Error::Stale)
        );
        assert_eq!(
            volume.readdir(&ROOT, directory, 0, 9, false).await,
            Err(Error::Stale)
        );
    });
}

/// Makes many files at once, as a busy client does.
fn make_many(life: &Life, directory: Inode, names: std::ops::Range<usize>) {
    life.run(|volume| async move {
        // A flush for each of so many creations is not what this is about.
        let volume = volume.with_commit_mode(forebay_fs::CommitMode::Async);
        let guarded = CreateMode::Guarded(SetAttributes::default());
        for i in names {
            let name = format!("file-{i:06}");
            volume
                .create(&ROOT, directory, name.as_bytes(), &guarded)
                .await
                .unwrap();
        }
    });
}

#[test]
fn many_entries_are_listed_once_each_while_others_come_and_go() {
    // A hundred thousand take half a minute without optimisation.
    let entries = if std::env::var_os("FOREBAY_LONG_TESTS").is_some() {
        100_000
    } else {
        16_000
    };
    let bucket = Bucket::new();
    let change = |config: &mut forebay_fs::FsConfig| {
        config.log = forebay_fs::LogConfig::Disk {
            limit: 256 << 20,
            segment: 16 << 20,
        };
    };
    let life = bucket.start(change);
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..entries * 3 / 4);
    life.flush();
    // The rest lies in the overlay.
    make_many(&life, directory, entries * 3 / 4..entries);

    let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let (mut cookie, mut pieces) = (0, 0);
    let mut life = life;
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, entries / 30, false)
                .await
                .unwrap()
        });
        for entry in found.entries {
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            assert_eq!(
                seen.insert(entry.name.to_vec(), entry.cookie),
                None,
                "{:?}",
                entry.name
            );
        }
        if found.end {
            break;
        }
        pieces += 1;
        // Odd ones go: some that were listed and some that were not; others come.
        for i in 0..20 {
            let number = ((pieces * 7919 + i * 4001) % entries) | 1;
            let _ = life.try_remove(directory, format!("file-{number:06}").as_bytes());
        }
        life.create_in(directory, format!("new-{pieces}").as_bytes());
        if pieces == 10 {
            life.crash();
            life = bucket.start(change);
        }
        if pieces == 20 {
            life.flush();
        }
    }
    for i in (0..entries).step_by(2) {
        let name = format!("file-{i:06}");
        assert!(
            seen.contains_key(name.as_bytes()),
            "{name} stayed and was skipped"
        );
    }
    assert!(pieces > 20);
    let attributes = life.getattr(directory).unwrap();
    let again = life.list(directory, 4096);
    assert_eq!(attributes.nlink, 2);
    for entry in again.iter().skip(2) {
        if let Some(cookie) = seen.get(&entry.name[..]) {
            assert_eq!(
                entry.cookie, *cookie,
                "the cookie of {:?} has changed",
                entry.name
            );
        }
    }
}

#[test]
fn a_directory_is_emptied_while_it_is_listed() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    make_many(&life, directory, 0..500);
    life.flush();
    make_many(&life, directory, 500..1000);
    // As `rm -r`: list a piece, remove it, go on behind it.
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let found = life.run(|volume| async move {
            volume
                .readdir(&ROOT, directory, cookie, 64, true)
                .await
                .unwrap()
        });
        for entry in &found.entries {
            cookie = entry.cookie;
            assert!(entry.attributes.is_some());
            if !matches!(&entry.name[..], b"." | b"..") {
                life.try_remove(directory, &entry.name).unwrap();
                removed += 1;
            }
        }
        if found.end {
            break;
        }
    }
    assert_eq!(removed, 1000);
    assert_eq!(life.list(directory, 10).len(), 2);
    life.rmdir(TOP, b"d").unwrap();
}

#[test]
fn listings_give_dot_and_dot_dot_first_also_one_at_a_time() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = life.mkdir(TOP, b"d");
    life.create_in(directory, b"f");
    for piece in [1, 2, 3, 100] {
        let entries = life.list(directory, piece);
        let found: Vec<_> = entries
            .iter()
            .map(|entry| (&entry.name[..], entry.inode))
            .collect();
        let file = life.try_lookup(directory, b"f").unwrap().inode;
        assert_eq!(found, [(&b"."[..], directory), (b"..", TOP), (b"f", file)]);
        assert!(entries.iter().all(|entry| entry.cookie > 0));
    }
    assert_eq!(life.try_lookup(TOP, b"..").unwrap().inode, TOP);
}

#[test]
fn classes_of_permission_bits_are_owner_group_and_others() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = open_directory(&life, b"open");
    let (owner, member) = (user(10, 20, &[]), user(11, 99, &[1, 20]));
    let other = user(12, 22, &[]);
    let file = create_as(&life, &owner, (top, b"f"), 0o640).unwrap();
    let write = |who: &Credentials| {
        life.run(|volume| async move {
            volume
                .write(who, file, 0, b"x", Stability::Unstable)
                .await
                .map(drop)
        })
    };
    let read = |who: &Credentials| {
        life.run(|volume| async move { volume.read(who, file, 0, 1).await.map(drop) })
    };
    assert_eq!((write(&owner), read(&owner)), (Ok(()), Ok(())));
    assert_eq!(
        (write(&member), read(&member)),
        (Err(Error::Access), Ok(()))
    );
    assert_eq!(
        (write(&other), read(&other)),
        (Err(Error::Access), Err(Error::Access))
    );
    assert_eq!((write(&ROOT), read(&ROOT)), (Ok(()), Ok(())));
    let all = Access(0x3f);
    let granted = |who: &Credentials, inode| {
        life.run(|volume| async move { volume.access(who, inode, all).await.unwrap().0.0 })
    };
    assert_eq!(
        granted(&owner, file),
        Access::READ.0 | Access::MODIFY.0 | Access::EXTEND.0
    );
    assert_eq!(granted(&member, file), Access::READ.0);
    assert_eq!(granted(&other, file), 0);

    let closed = mkdir_as(&life, &owner, (top, b"closed"), 0o710).unwrap();
    create_as(&life, &owner, (closed, b"f"), 0o666).unwrap();
    let lookup = |who: &Credentials| {
        life.run(|volume| async move { volume.lookup(who, closed, b"f").await.map(drop) })
    };
    let list = |who: &Credentials| {
        life.run(|volume| async move { volume.readdir(who, closed, 0, 9, false).await.map(drop) })
    };
    assert_eq!(
        (lookup(&member), list(&member)),
        (Ok(()), Err(Error::Access))
    );
    assert_eq!(
        (lookup(&other), list(&other)),
        (Err(Error::Access), Err(Error::Access))
    );
    assert_eq!(
        create_as(&life, &member, (closed, b"new"), 0o600),
        Err(Error::Access)
    );
    life.run(|volume| async move {
        assert_eq!(
            volume.remove(&member, closed, b"f").await,
            Err(Error::Access)
        );
        let moved = volume.rename(&member, (closed, b"f"), (top, b"f2")).await;
        assert_eq!(moved, Err(Error::Access));
        assert_eq!(
            volume.link(&member, file, closed, b"l").await,
            Err(Error::Access)
        );
    });
}

#[test]
fn attributes_are_changed_by_owners_only_and_owners_by_root_only() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = open_directory(&life, b"open");
    let (owner, other) = (user(10, 20, &[30]), user(12, 22, &[]));
    let file = create_as(&life, &owner, (top, b"f"), 0o666).unwrap();
    let to = SetTime::To(Timestamp {
        seconds: 1_000,
        nanos: 5,
    });
    let owned = |uid, gid| SetAttributes {
        uid,
        gid,
        ..Default::default()
    };
    assert_eq!(life.set(&other, file, mode(0o600)), Err(Error::NotOwner));
    assert_eq!(
        life.set(&other, file, owned(None, Some(22))),
        Err(Error::NotOwner)
    );
    assert_eq!(
        life.set(&owner, file, owned(Some(12), None)),
        Err(Error::NotOwner)
    );
    assert_eq!(
        life.set(&owner, file, owned(None, Some(22))),
        Err(Error::NotOwner)
    );
    let times = SetAttributes {
        atime: to,
        mtime: to,
        ..Default::default()
    };
    assert_eq!(life.set(&other, file, times), Err(Error::NotOwner));
    // Who may write may set the time to now, and no other.
    let now = SetAttributes {
        mtime: SetTime::Now,
        ..Default::default()
    };
    life.set(&other, file, now).unwrap();
    life.set(&owner, file, mode(0o600)).unwrap();
    assert_eq!(life.set(&other, file, now), Err(Error::Access));
    let cut = SetAttributes {
        size: Some(0),
        ..Default::default()
    };
    assert_eq!(life.set(&other, file, cut), Err(Error::Access));

    life.set(&owner, file, owned(None, Some(30))).unwrap();
    life.set(&owner, file, times).unwrap();
    let found = life.getattr(file).unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (10, 30, 0o600));
    assert_eq!(
        found.mtime,
        Timestamp {
            seconds: 1_000,
            nanos: 5
        }
    );
    life.set(&ROOT, file, owned(Some(12), Some(22))).unwrap();
    let found = life.getattr(file).unwrap();
    assert_eq!((found.uid, found.gid), (12, 22));
    // The guard.
    let stale = Timestamp {
        seconds: 1,
        nanos: 1,
    };
    life.run(|volume| async move {
        let set = mode(0o777);
        let set_guarded = volume.setattr(&ROOT, file, &set, Some(stale)).await;
        assert_eq!(set_guarded, Err(Error::NotSync));
        volume
            .setattr(&ROOT, file, &set, Some(found.ctime))
            .await
            .unwrap();
    });
    assert_eq!(life.getattr(file).unwrap().mode, 0o777);
}

#[test]
fn in_sticky_directories_names_belong_to_their_owners() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let sticky = mkdir_as(&life, &ROOT, (TOP, b"tmp"), 0o1777).unwrap();
    let top = open_directory(&life, b"open");
    let (one, other) = (user(10, 10, &[]), user(11, 11, &[]));
    create_as(&life, &one, (sticky, b"f"), 0o666).unwrap();
    create_as(&life, &other, (sticky, b"own"), 0o666).unwrap();
    let rename = |who: &Credentials, from: &[u8], to: (Inode, &[u8])| {
        life.run(|volume| async move { volume.rename(who, (sticky, from), to).await.map(drop) })
    };
    let remove = |who: &Credentials| {
        life.run(|volume| async move { volume.remove(who, sticky, b"f").await.map(drop) })
    };
    assert_eq!(remove(&other), Err(Error::NotOwner));
    assert_eq!(rename(&other, b"f", (top, b"f")), Err(Error::NotOwner));
    assert_eq!(rename(&other, b"own", (sticky, b"f")), Err(Error::NotOwner));
    rename(&one, b"f", (sticky, b"g")).unwrap();
    rename(&one, b"g", (sticky, b"f")).unwrap();
    remove(&one).unwrap();
    create_as(&life, &one, (sticky, b"f"), 0o666).unwrap();
    remove(&ROOT).unwrap();
}

#[test]
fn moving_a_directory_elsewhere_needs_the_right_to_write_to_it() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (top, to) = (open_directory(&life, b"open"), open_directory(&life, b"to"));
    let (owner, other) = (user(10, 10, &[]), user(11, 11, &[]));
    mkdir_as(&life, &owner, (top, b"d"), 0o755).unwrap();
    let rename = |who: &Credentials, place: (Inode, &[u8])| {
        life.run(|volume| async move { volume.rename(who, (top, b"d"), place).await.map(drop) })
    };
    assert_eq!(rename(&other, (to, b"d")), Err(Error::Access));
    rename(&other, (top, b"d")).unwrap();
    rename(&owner, (to, b"d")).unwrap();
}

#[test]
fn setgid_directories_give_their_group_and_writes_clear_set_id_bits() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let shared = mkdir_as(&life, &ROOT, (TOP, b"shared"), 0o777).unwrap();
    life.set(
        &ROOT,
        shared,
        SetAttributes {
            gid: Some(77),
            ..mode(0o2777)
        },
    )
    .unwrap();
    let (who, other) = (user(10, 20, &[77]), user(11, 11, &[]));
    let file = create_as(&life, &who, (shared, b"f"), 0o6777).unwrap();
    let found = life.getattr(file).unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (10, 77, 0o6777));
    let below = mkdir_as(&life, &who, (shared, b"d"), 0o755).unwrap();
    let found = life.getattr(below).unwrap();
    assert_eq!((found.gid, found.mode), (77, 0o2755));
    life.run(|volume| async move {
        volume
            .write(&other, file, 0, b"x", Stability::FileSync)
            .await
            .unwrap();
    });
    assert_eq!(life.getattr(file).unwrap().mode, 0o777);
    life.crash();
    let life = bucket.start(|_| {});
    assert_eq!(
        life.getattr(file).unwrap().mode,
        0o777,
        "the log knows the mode too"
    );
    life.set(&ROOT, file, mode(0o6777)).unwrap();
    life.set(
        &who,
        file,
        SetAttributes {
            gid: Some(20),
            ..Default::default()
        },
    )
    .unwrap();
    assert_eq!(life.getattr(file).unwrap().mode, 0o777);
}

#[test]
fn replies_carry_the_attributes_from_before_and_after() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    life.run(|volume| async move {
        let before = volume.getattr(TOP).await.unwrap();
        let mode = CreateMode::Guarded(SetAttributes::default());
        let made = volume.create(&ROOT, TOP, b"f", &mode).await.unwrap();
        let now = volume.getattr(TOP).await.unwrap();
        assert_eq!(made.directory.before, Some((&before).into()));
        assert_eq!(made.directory.after, Some(now));
        assert!(now.mtime > before.mtime && now.ctime > before.ctime);

        let inode = made.attributes.inode;
        let wrote = volume
            .write(&ROOT, inode, 0, b"abc", Stability::Unstable)
            .await
            .unwrap();
        assert_eq!(wrote.change.before, Some((&made.attributes).into()));
        let after = wrote.change.after.unwrap();
        assert_eq!(after.size, 3);
        assert!(after.mtime > made.attributes.mtime);
        assert_eq!(volume.getattr(inode).await.unwrap(), after);

        let set = SetAttributes {
            size: Some(1),
            ..Default::default()
        };
        let cut = volume.setattr(&ROOT, inode, &set, None).await.unwrap();
        assert_eq!(cut.before, Some((&after).into()));
        assert_eq!(cut.after.unwrap().size, 1);
        let (linked, change) = volume.link(&ROOT, inode, TOP, b"g").await.unwrap();
        assert_eq!(linked.nlink, 2);
        assert_eq!(change.before, Some((&now).into()));
        let removed = volume.remove(&ROOT, TOP, b"g").await.unwrap();
        assert_eq!(removed.before, change.after.as_ref().map(Into::into));
        let (from, to) = volume
            .rename(&ROOT, (TOP, b"f"), (TOP, b"h"))
            .await
            .unwrap();
        assert_eq!(from.before, removed.after.as_ref().map(Into::into));
        assert_eq!(from, to);
        let (commit, _) = volume.commit(&ROOT, inode, 0, 0).await.unwrap();
        assert_eq!(commit.after.unwrap().size, 1);
    });
}

#[test]
fn a_full_volume_says_so_and_takes_writes_again_when_something_was_removed() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| {
        config.volume_limit = 8 << 20;
        config.inode_limit = 4;
    });
    let inode = life.create(b"file");
    for i in 0..8 {
        life.write(inode, i << 20, &pattern(i, 1 << 20), Stability::Unstable);
    }
    assert_eq!(life.try_write(inode, 8 << 20, b"x"), Err(Error::NoSpace));
    let found = life.run(|volume| async move { volume.statistics().await.unwrap() });
    assert_eq!((found.total_bytes, found.free_bytes), (8 << 20, 0));
    // Two objects beside the root.
    let other = life.create(b"other");
    assert_eq!(life.try_write(other, 0, b"x"), Err(Error::NoSpace));
    life.create(b"third");
    life.run(|volume| async move {
        let guarded = CreateMode::Guarded(SetAttributes::default());
        assert_eq!(
            volume.create(&ROOT, TOP, b"f", &guarded).await,
            Err(Error::NoSpace)
        );
        let found = volume.statistics().await.unwrap();
        assert_eq!((found.total_files, found.free_files), (4, 0));
    });
    // Published or not: what is removed or cut off makes room at once.
    life.flush();
    life.truncate(inode, 4 << 20);
    life.write(other, 0, &pattern(9, 1 << 20), Stability::FileSync);
    life.remove(b"file");
    for i in 1..8 {
        life.write(other, i << 20, &pattern(i, 1 << 20), Stability::FileSync);
    }
    assert_eq!(life.try_write(other, 8 << 20, b"x"), Err(Error::NoSpace));
    life.create(b"again");
}

#[test]
fn rewriting_unpublished_bytes_again_and_again_needs_no_more_space_than_they_take() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.volume_limit = 8 << 20);
    let inode = life.create(b"file");
    for round in 0..20 {
        for i in 0..3 {
            life.write(
                inode,
                i << 20,
                &pattern(round, 1 << 20),
                Stability::Unstable,
            );
        }
        if round % 3 == 0 {
            life.flush();
        }
    }
    assert_bytes(&life.read(inode, 0, 1 << 20), &pattern(19, 1 << 20));
}

#[test]
fn many_clients_at_once_leave_a_tree_that_is_whole() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 32 << 20);
    let directories: Vec<Inode> = (0..4u8).map(|i| life.mkdir(TOP, &[b'a' + i])).collect();
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8u64)
        .map(|client| {
            let directories = directories.clone();
            life.spawn(move |volume| async move {
                let mut state = client + 1;
                for i in 0..150u64 {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let from = directories[(state >> 33) as usize % 4];
                    let to = directories[(state >> 40) as usize % 4];
                    let name = format!("n{}", (state >> 50) % 6);
                    let other = format!("n{}", (state >> 55) % 6);
                    let guarded = CreateMode::Unchecked(SetAttributes::default());
                    // Each may fail because others did something else before: what counts is the
                    // tree.
                    match i % 5 {
                        0 => drop(
                            volume
                                .rename(&ROOT, (from, name.as_bytes()), (to, other.as_bytes()))
                                .await,
                        ),
                        1 => drop(volume.remove(&ROOT, from, name.as_bytes()).await),
                        2 => drop(volume.rmdir(&ROOT, from, name.as_bytes()).await),
                        3 => drop(
                            volume
                                .make(
                                    &ROOT,
                                    from,
                                    name.as_bytes(),
                                    NewNode::Directory,
                                    &Default::default(),
                                )
                                .await,
                        ),
                        _ => {
                            if let Ok(made) =
                                volume.create(&ROOT, from, name.as_bytes(), &guarded).await
                            {
                                let _ = volume
                                    .link(&ROOT, made.attributes.inode, to, other.as_bytes())
                                    .await;
                            }
                        }
                    }
                }
            })
        })
        .collect();
    let flusher = {
        let done = done.clone();
        life.spawn(move |volume| async move {
            while !done.load(Ordering::SeqCst) {
                volume.flush().await.unwrap();
            }
        })
    };
    for client in clients {
        life.join(client);
    }
    done.store(true, Ordering::SeqCst);
    life.join(flusher);
    let inodes = check_tree(&life);
    life.flush();
    life.crash();
    assert_eq!(check_tree(&bucket.start_elsewhere(|_| {})), inodes);
}

/// Walks the tree: every name leads to an object, link counts are right, nothing is left over.
fn check_tree(life: &Life) -> BTreeMap<u64, u32> {
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    let mut kinds = BTreeMap::from([(TOP.0, (FileKind::Directory, 2))]);
    let mut todo = vec![(TOP, TOP)];
    while let Some((directory, parent)) = todo.pop() {
        let mut below = 0;
        for entry in life.list(directory, 7) {
            match &entry.name[..] {
                b"." => assert_eq!(entry.inode, directory),
                b".." => assert_eq!(entry.inode, parent),
                name => {
                    let found = life.try_lookup(directory, name).unwrap();
                    assert_eq!(found.inode, entry.inode);
                    *links.entry(found.inode.0).or_default() += 1;
                    if found.kind == FileKind::Directory {
                        below += 1;
                        todo.push((found.inode, directory));
                    }
                    kinds.entry(found.inode.0).or_insert((found.kind, 0));
                }
            }
        }
        assert_eq!(life.getattr(directory).unwrap().nlink, 2 + below);
    }
    for (inode, (kind, _)) in &kinds {
        if *kind != FileKind::Directory {
            let nlink = life.getattr(Inode(*inode)).unwrap().nlink;
            assert_eq!(nlink, links[inode], "inode {inode}");
        } else {
            assert!(links.get(inode).copied().unwrap_or(1) == 1);
        }
    }
    let statistics = life.run(|volume| async move { volume.statistics().await.unwrap() });
    let used = statistics.total_files - statistics.free_files;
    assert_eq!(used, kinds.len() as u64, "objects without a name");
    links
}
