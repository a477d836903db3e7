//! Permissions: which users may do what.

use forebay_types::Inode;
use forebay_vfs::{
    Access, CreateMode, Credentials, Error, FileSystem, NewNode, SetAttributes, SetTime, Stability,
    Timestamp,
};

use super::{TOP, create_as, mkdir_as, mode, open_directory};
use crate::common::*;

#[test]
fn classes_of_permission_bits_are_owner_group_and_others() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = open_directory(&life, b"open");
    let (owner, member) = (user(10, 20, &[]), user(11, 99, &[1, 20]));
    let other = user(12, 22, &[]);
    let file = create_as(&life, &owner, (top, b"f"), 0o640).unwrap();
    let write = |caller: &Credentials| {
        life.run(|volume| async move {
            volume
                .write(caller, file, 0, b"x", Stability::Unstable)
                .await
                .map(drop)
        })
    };
    let read = |caller: &Credentials| {
        life.run(|volume| async move { volume.read(caller, file, 0, 1).await.map(drop) })
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
    let granted = |caller: &Credentials, inode| {
        life.run(|volume| async move { volume.access(caller, inode, all).await.unwrap().0.0 })
    };
    assert_eq!(
        granted(&owner, file),
        Access::READ.0 | Access::MODIFY.0 | Access::EXTEND.0
    );
    assert_eq!(granted(&member, file), Access::READ.0);
    assert_eq!(granted(&other, file), 0);

    let closed = mkdir_as(&life, &owner, (top, b"closed"), 0o710).unwrap();
    create_as(&life, &owner, (closed, b"f"), 0o666).unwrap();
    let lookup = |caller: &Credentials| {
        life.run(|volume| async move { volume.lookup(caller, closed, b"f").await.map(drop) })
    };
    let list = |caller: &Credentials| {
        life.run(
            |volume| async move { volume.readdir(caller, closed, 0, 9, false).await.map(drop) },
        )
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
    // A user who may write may set the time to now, and to no other time.
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
    // The guard of SETATTR.
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
    let rename = |caller: &Credentials, from: &[u8], to: (Inode, &[u8])| {
        life.run(|volume| async move { volume.rename(caller, (sticky, from), to).await.map(drop) })
    };
    let remove = |caller: &Credentials| {
        life.run(|volume| async move { volume.remove(caller, sticky, b"f").await.map(drop) })
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
    let rename = |caller: &Credentials, place: (Inode, &[u8])| {
        life.run(|volume| async move { volume.rename(caller, (top, b"d"), place).await.map(drop) })
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
    let (caller, other) = (user(10, 20, &[77]), user(11, 11, &[]));
    let file = create_as(&life, &caller, (shared, b"f"), 0o6777).unwrap();
    let found = life.getattr(file).unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (10, 77, 0o6777));
    let below = mkdir_as(&life, &caller, (shared, b"d"), 0o755).unwrap();
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
        &caller,
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
fn in_sticky_directories_directories_are_moved_and_removed_by_owners_only() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (one, other) = (user(10, 10, &[]), user(11, 11, &[]));
    let sticky = mkdir_as(&life, &ROOT, (TOP, b"tmp"), 0o1777).unwrap();
    mkdir_as(&life, &one, (sticky, b"d"), 0o777).unwrap();
    mkdir_as(&life, &other, (sticky, b"own"), 0o777).unwrap();
    life.run(|volume| async move {
        let (d, own) = ((sticky, &b"d"[..]), (sticky, &b"own"[..]));
        let refused = Err(Error::NotOwner);
        assert_eq!(volume.rmdir(&other, d.0, d.1).await.map(drop), refused);
        assert_eq!(volume.rename(&other, own, d).await.map(drop), refused);
        assert_eq!(
            volume.rename(&other, d, (TOP, b"d")).await,
            Err(Error::Access)
        );
        volume.rename(&one, d, (sticky, b"e")).await.unwrap();
        volume.rmdir(&one, sticky, b"e").await.unwrap();
        // A user's own directory may be emptied by every user, and by the directory's owner.
        let mine = mode(0o1777);
        let made = volume
            .make(&one, sticky, b"mine", NewNode::Directory, &mine)
            .await;
        let mine = made.unwrap().attributes.inode;
        let guarded = CreateMode::Guarded(mode(0o600));
        volume.create(&other, mine, b"f", &guarded).await.unwrap();
        volume.remove(&one, mine, b"f").await.unwrap();
    });
}

#[test]
fn setgid_directories_give_their_group_to_everything_and_setgid_to_directories_alone() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let shared = open_directory(&life, b"shared");
    let set = SetAttributes {
        gid: Some(77),
        ..mode(0o2777)
    };
    life.set(&ROOT, shared, set).unwrap();
    let (member, stranger) = (user(10, 20, &[77]), user(11, 21, &[]));
    let nodes: [(&[u8], NewNode<'_>, u32); 3] = [
        (b"link", NewNode::Symlink(b"x"), 0o644),
        (b"pipe", NewNode::Fifo, 0o644),
        (b"directory", NewNode::Directory, 0o2644),
    ];
    life.run(|volume| async move {
        for (name, node, expected) in nodes {
            let made = volume
                .make(&stranger, shared, name, node, &mode(0o644))
                .await;
            let made = made.unwrap().attributes;
            assert_eq!((made.uid, made.gid, made.mode), (11, 77, expected));
        }
        // No user makes a program that runs as a group of which the user is not a member: not at once, and not later.
        let setgid = CreateMode::Guarded(mode(0o2755));
        let made = volume
            .create(&member, shared, b"own", &setgid)
            .await
            .unwrap();
        assert_eq!(made.attributes.mode, 0o2755);
        let made = volume
            .create(&stranger, shared, b"foreign", &setgid)
            .await
            .unwrap();
        assert_eq!((made.attributes.gid, made.attributes.mode), (77, 0o755));
        let inode = made.attributes.inode;
        let change = volume
            .setattr(&stranger, inode, &mode(0o2755), None)
            .await
            .unwrap();
        assert_eq!(change.after.unwrap().mode, 0o755);
    });
}

#[test]
fn truncations_and_changes_of_owner_clear_set_id_bits() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = open_directory(&life, b"open");
    let (owner, writer) = (user(10, 20, &[30]), user(11, 21, &[]));
    let file = create_as(&life, &owner, (top, b"f"), 0o666).unwrap();
    let after = |caller: &Credentials, set: SetAttributes| {
        life.set(&ROOT, file, mode(0o6777)).unwrap();
        life.set(caller, file, set).unwrap();
        life.getattr(file).unwrap().mode
    };
    let size = SetAttributes {
        size: Some(0),
        ..Default::default()
    };
    let group = SetAttributes {
        gid: Some(30),
        ..Default::default()
    };
    assert_eq!(after(&writer, size), 0o777);
    assert_eq!(after(&owner, size), 0o777);
    assert_eq!(after(&ROOT, size), 0o6777);
    assert_eq!(after(&owner, group), 0o777);
    assert_eq!(after(&ROOT, group), 0o777);
    // A call that sets all at once gets all.
    let with_mode = SetAttributes {
        gid: Some(30),
        ..mode(0o4711)
    };
    assert_eq!(after(&ROOT, with_mode), 0o4711);
}

#[test]
fn without_search_permission_a_listing_has_names_and_no_attributes() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let directory = mkdir_as(&life, &ROOT, (TOP, b"d"), 0o744).unwrap();
    life.create_in(directory, b"f");
    let (reader, all) = (user(10, 10, &[]), [&b"."[..], b"..", b"f"]);
    life.run(|volume| async move {
        for (caller, seen) in [(&ROOT, true), (&reader, false)] {
            let listed = volume.readdir(caller, directory, 0, 9, true).await.unwrap();
            let names: Vec<_> = listed.entries.iter().map(|entry| &entry.name[..]).collect();
            assert_eq!(names, all);
            assert!(
                listed
                    .entries
                    .iter()
                    .all(|entry| entry.attributes.is_some() == seen)
            );
        }
        let found = volume.lookup(&reader, directory, b"f").await;
        assert_eq!(found, Err(Error::Access));
    });
}

#[test]
fn without_write_permission_an_answer_does_not_depend_on_what_a_name_refers_to() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let closed = mkdir_as(&life, &ROOT, (TOP, b"closed"), 0o755).unwrap();
    let open = open_directory(&life, b"open");
    let full = mkdir_as(&life, &ROOT, (closed, b"full"), 0o777).unwrap();
    life.create_in(full, b"f");
    let file = life.create_in(closed, b"f");
    let caller = user(10, 10, &[]);
    create_as(&life, &caller, (open, b"own"), 0o600).unwrap();
    life.run(|volume| async move {
        let caller = &caller;
        let refused = Err(Error::Access);
        assert_eq!(volume.rmdir(caller, closed, b"full").await, refused);
        assert_eq!(volume.rmdir(caller, closed, b"f").await, refused);
        assert_eq!(volume.remove(caller, closed, b"full").await, refused);
        let renamed = volume
            .rename(caller, (open, b"own"), (closed, b"full"))
            .await;
        assert_eq!(renamed, Err(Error::Access));
        let renamed = volume
            .rename(caller, (closed, b"f"), (closed, b"full"))
            .await;
        assert_eq!(renamed, Err(Error::Access));
        let refused = Err(Error::Access);
        assert_eq!(volume.link(caller, full, closed, b"new").await, refused);
        assert_eq!(volume.link(caller, file, closed, b"new").await, refused);
    });
}
