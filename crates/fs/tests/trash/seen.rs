//! The trash as clients see it.

use forebay_fs::LimitChange;
use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Change, Credentials, DirectoryEntry, Error, SetAttributes, Trash,
    trash_name,
};

use super::*;

const ALL: Access = Access(0x3f);

/// The user 7, whose files stay in the trash for an hour.
fn seven() -> Credentials {
    Credentials {
        trash: 3600,
        ..user(7, 7, &[])
    }
}

/// Makes a file that the user owns, and removes it. Returns it with its name in the trash.
fn removed(life: &Life, owner: u32, directory: Inode, name: &[u8], kib: u64) -> (Inode, Vec<u8>) {
    let inode = file(life, directory, name, kib);
    let set = SetAttributes {
        uid: Some(owner),
        mode: Some(0o600),
        ..Default::default()
    };
    life.set(&ROOT, inode, set).unwrap();
    remove(life, &keeping(1), directory, name);
    (inode, trash_name::of(name, inode).to_vec())
}

fn shown(life: &Life, caller: &Credentials, below: Inode, piece: usize) -> Vec<DirectoryEntry> {
    life.run(|volume| async move {
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        loop {
            let after = entries.last().map_or(Inode(0), |entry| entry.inode);
            let (found, end) = volume
                .list_removed(caller, below, after, piece)
                .await
                .unwrap();
            assert!(found.len() <= piece && (end || !found.is_empty()));
            entries.extend(found);
            if end {
                return entries;
            }
        }
    })
}

fn names(life: &Life, caller: &Credentials, below: Inode) -> Vec<String> {
    let name = |entry: DirectoryEntry| String::from_utf8(entry.name.to_vec()).unwrap();
    shown(life, caller, below, 1000)
        .into_iter()
        .map(name)
        .collect()
}

fn look_up(
    life: &Life,
    caller: &Credentials,
    below: Inode,
    name: &[u8],
) -> Result<Attributes, Error> {
    life.run(|volume| async move { volume.lookup_removed(caller, below, name).await })
}

fn read(life: &Life, caller: &Credentials, inode: Inode) -> Result<Vec<u8>, Error> {
    life.run(|volume| async move {
        let mut all = Vec::new();
        loop {
            let offset = all.len() as u64;
            let read = volume.read_removed(caller, inode, offset, 1 << 20).await?;
            assert_eq!(read.attributes.nlink, 1);
            read.data
                .iter()
                .for_each(|piece| all.extend_from_slice(piece));
            if read.eof {
                return Ok(all);
            }
        }
    })
}

fn bring_back(
    life: &Life,
    caller: &Credentials,
    from: &[u8],
    to: (Inode, &[u8]),
) -> Result<Change, Error> {
    let from = (Inode::ROOT, from);
    life.run(|volume| async move { volume.bring_back(caller, from, to).await })
}

fn delete(life: &Life, caller: &Credentials, name: &[u8]) -> Result<(), Error> {
    life.run(|volume| async move { volume.delete_removed(caller, Inode::ROOT, name).await })
}

fn getattr(life: &Life, inode: Inode) -> Result<Attributes, Error> {
    life.run(|volume| async move { volume.getattr_removed(inode).await })
}

#[test]
fn root_sees_all_files_and_everyone_else_their_own() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let mut life = start(&bucket, &clock, |_| {});
    let directory = life.mkdir(Inode::ROOT, b"directory");
    let (own, own_name) = removed(&life, 7, directory, b"own", 5);
    let (other, other_name) = removed(&life, 8, Inode::ROOT, b"other", 5);
    let (roots, roots_name) = removed(&life, 0, Inode::ROOT, b"root's", 5);
    rmdir(&life, &keeping(1), Inode::ROOT, b"directory");
    // What is in memory, in the log, and in the bucket.
    for step in 0..3 {
        let all = [(own, "own"), (other, "other"), (roots, "root's")];
        let all = all.map(|(inode, name)| format!("{name}.{inode}"));
        assert_eq!(names(&life, &ROOT, Inode::ROOT), all);
        assert_eq!(names(&life, &seven(), Inode::ROOT), all[..1]);
        assert_eq!(names(&life, &user(9, 7, &[8]), Inode::ROOT), [""; 0]);
        let attributes = look_up(&life, &seven(), Inode::ROOT, &own_name).unwrap();
        assert_eq!(getattr(&life, own), Ok(attributes));
        let shown = shown(&life, &seven(), Inode::ROOT, 9);
        assert_eq!(shown[0].attributes, Some(attributes));
        assert_eq!(
            (attributes.nlink, attributes.size, attributes.uid),
            (1, 5 * KIB, 7)
        );
        assert_eq!(attributes.used, 5 * KIB);
        for name in [&other_name, &roots_name] {
            assert!(look_up(&life, &ROOT, Inode::ROOT, name).is_ok());
            let hidden = look_up(&life, &seven(), Inode::ROOT, name);
            assert_eq!(hidden, Err(Error::NotFound));
        }
        for inode in [other, roots] {
            assert_eq!(read(&life, &seven(), inode), Err(Error::Access));
            let granted = life.run(|volume| async move {
                let access = volume.access_removed(&seven(), inode, ALL).await;
                access.unwrap().0
            });
            assert_eq!(granted, Access(0));
        }
        let granted = life.run(|volume| async move {
            let access = volume.access_removed(&seven(), own, ALL).await;
            access.unwrap().0
        });
        assert_eq!(granted, Access::READ);
        assert_bytes(
            &read(&life, &seven(), own).unwrap(),
            &pattern(own.0, 5 << 10),
        );
        assert_bytes(
            &read(&life, &ROOT, other).unwrap(),
            &pattern(other.0, 5 << 10),
        );
        // The handles of before stay stale, and a directory is no file.
        assert_eq!(life.getattr(own), Err(Error::Stale));
        assert_eq!(getattr(&life, directory), Err(Error::Stale));
        assert_eq!(getattr(&life, Inode::ROOT), Err(Error::Stale));
        if step > 0 {
            life.flush();
        }
        life.crash();
        life = start(&bucket, &clock, |_| {});
    }
}

#[test]
fn names_are_unique_and_found_as_they_are_written_only() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let mut all = Vec::new();
    for name in [
        &b"name"[..],
        b"name",
        b"name.7",
        b"\xff\n\x1b[31m",
        b".trash",
        &[b'x'; 255],
    ] {
        all.push(removed(&life, 7, Inode::ROOT, name, 1));
    }
    let listed = shown(&life, &seven(), Inode::ROOT, 2);
    let found: Vec<(Inode, Vec<u8>)> = listed
        .iter()
        .map(|entry| (entry.inode, entry.name.to_vec()))
        .collect();
    assert_eq!(found, all);
    for (inode, name) in &all {
        assert!(name.len() <= 255);
        let found = look_up(&life, &seven(), Inode::ROOT, name);
        assert_eq!(found.map(|found| found.inode), Ok(*inode));
    }
    let (first, _) = all[0];
    for name in ["name", "other", "other.1", "nam"].map(str::to_owned) {
        let name = format!("{name}.{first}");
        let found = look_up(&life, &ROOT, Inode::ROOT, name.as_bytes());
        assert_eq!(found.is_ok(), name == format!("name.{first}"), "{name}");
    }
    for name in [
        "name",
        "name.",
        "name.1",
        "name.99999",
        "name.18446744073709551616",
    ] {
        let found = look_up(&life, &ROOT, Inode::ROOT, name.as_bytes());
        assert_eq!(found, Err(Error::NotFound), "{name}");
    }
}

#[test]
fn a_listing_goes_on_where_it_was_whatever_happens() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    for number in 0..100_u32 {
        removed(
            &life,
            7 + number % 2,
            Inode::ROOT,
            format!("{number}").as_bytes(),
            0,
        );
    }
    let all = shown(&life, &ROOT, Inode::ROOT, 1000);
    assert_eq!(all.len(), 100);
    assert_eq!(shown(&life, &ROOT, Inode::ROOT, 1), all);
    let own = shown(&life, &seven(), Inode::ROOT, 7);
    assert_eq!(own.len(), 50);
    life.flush();
    life.crash();
    let life = start(&bucket, &clock, |_| {});
    // Its last entry leaves; the rest is listed all the same.
    let last = &own[20];
    delete(&life, &seven(), &last.name).unwrap();
    let (after, below) = (last.inode, Inode::ROOT);
    let (rest, end) = life.run(|volume| async move {
        let listed = volume.list_removed(&seven(), below, after, 1000).await;
        listed.unwrap()
    });
    assert_eq!((&rest[..], end), (&own[21..], true));
}

#[test]
fn an_export_sees_what_was_removed_below_it() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let beside = life.mkdir(Inode::ROOT, b"beside");
    let middle = life.mkdir(top, b"middle");
    let deep = life.mkdir(middle, b"deep");
    let (_, in_top) = removed(&life, 7, top, b"in-top", 1);
    let (_, in_deep) = removed(&life, 7, deep, b"in-deep", 1);
    let (_, in_beside) = removed(&life, 7, beside, b"in-beside", 1);
    let (_, in_root) = removed(&life, 7, Inode::ROOT, b"in-root", 1);
    let text = |names: &[&Vec<u8>]| -> Vec<String> {
        let text = |name: &&Vec<u8>| String::from_utf8((*name).clone()).unwrap();
        names.iter().map(text).collect()
    };
    for caller in [ROOT, seven()] {
        assert_eq!(names(&life, &caller, Inode::ROOT).len(), 4);
        assert_eq!(names(&life, &caller, top), text(&[&in_top, &in_deep]));
        assert_eq!(names(&life, &caller, beside), text(&[&in_beside]));
        assert_eq!(
            look_up(&life, &caller, top, &in_beside),
            Err(Error::NotFound)
        );
        assert_eq!(look_up(&life, &caller, top, &in_root), Err(Error::NotFound));
        assert!(look_up(&life, &caller, top, &in_deep).is_ok());
    }
    let elsewhere = life.run(|volume| async move {
        let caller = seven();
        let deleted = volume.delete_removed(&caller, top, &in_beside).await;
        let from = (top, &in_root[..]);
        (
            deleted,
            volume.bring_back(&caller, from, (top, b"new")).await,
        )
    });
    assert_eq!(elsewhere, (Err(Error::NotFound), Err(Error::NotFound)));
    // Its directory is in the trash, and then the one above.
    rmdir(&life, &keeping(1), middle, b"deep");
    rmdir(&life, &keeping(1), top, b"middle");
    assert_eq!(names(&life, &seven(), top), text(&[&in_top, &in_deep]));
    // A directory that is moved takes its files with it.
    rename(&life, &ROOT, (Inode::ROOT, b"beside"), (top, b"beside"));
    assert_eq!(names(&life, &seven(), top).len(), 3);
    // One that is gone leaves them to the root of the volume.
    rmdir(&life, &keeping(0), top, b"beside");
    assert_eq!(names(&life, &seven(), top).len(), 2);
    assert_eq!(names(&life, &seven(), Inode::ROOT).len(), 4);
}

#[test]
fn a_file_that_is_moved_out_is_the_same_file() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let home = life.mkdir(Inode::ROOT, b"home");
    let own = SetAttributes {
        uid: Some(7),
        mode: Some(0o700),
        ..Default::default()
    };
    life.set(&ROOT, home, own).unwrap();
    let (inode, name) = removed(&life, 7, home, b"report", 300);
    file(&life, home, b"taken", 1);
    let changed = |life: &Life| life.volume.trash_changed();
    let before = changed(&life);
    for (caller, name, to, refused) in [
        (seven(), &name[..], (home, &b"taken"[..]), Error::Exists),
        (seven(), b"report.99", (home, b"report"), Error::NotFound),
        (seven(), &name, (home, b""), Error::Invalid),
        (seven(), &name, (home, b".."), Error::Exists),
        (seven(), &name, (inode, b"report"), Error::Stale),
        (user(8, 7, &[]), &name, (home, b"report"), Error::NotFound),
    ] {
        assert_eq!(bring_back(&life, &caller, name, to), Err(refused));
    }
    let closed = life.mkdir(Inode::ROOT, b"closed");
    let to = (closed, &b"report"[..]);
    assert_eq!(bring_back(&life, &seven(), &name, to), Err(Error::Access));
    assert_eq!(changed(&life), before);

    let change = bring_back(&life, &seven(), &name, (home, b"again")).unwrap();
    let directory = life.getattr(home).unwrap();
    assert_eq!(change.after, Some(directory));
    assert_ne!(changed(&life), before, "clients list it again");
    assert_eq!(
        look_up(&life, &seven(), Inode::ROOT, &name),
        Err(Error::NotFound)
    );
    assert_eq!(getattr(&life, inode), Err(Error::Stale));
    assert_eq!(read(&life, &ROOT, inode), Err(Error::Stale));
    assert_eq!(
        bring_back(&life, &seven(), &name, (home, b"twice")),
        Err(Error::NotFound)
    );
    life.crash();
    let life = start(&bucket, &clock, |_| {});
    let attributes = life.try_lookup(home, b"again").unwrap();
    assert_eq!((attributes.inode, attributes.nlink), (inode, 1));
    assert_whole(&life, inode, 300);
    assert_eq!(
        (names(&life, &ROOT, Inode::ROOT).len(), count(&life)),
        (0, (0, 0))
    );
    // It may go there again.
    remove(&life, &seven(), home, b"again");
    assert_eq!(
        names(&life, &seven(), Inode::ROOT),
        [format!("again.{inode}")]
    );
    assert_eq!(
        look_up(&life, &seven(), Inode::ROOT, &name),
        Err(Error::NotFound)
    );
}

#[test]
fn what_comes_back_counts_in_the_quota_of_its_directory() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let top = life.mkdir(Inode::ROOT, b"top");
    let (inode, name) = removed(&life, 0, top, b"large", 80);
    life.run(|volume| async move {
        let limit = LimitChange::To(40 << 10);
        let set = volume.set_quota(b"/top", limit, LimitChange::Keep);
        set.await.unwrap();
    });
    assert_eq!(
        bring_back(&life, &ROOT, &name, (top, b"large")),
        Err(Error::Quota)
    );
    assert_eq!(count(&life), (1, 80 * KIB));
    bring_back(&life, &ROOT, &name, (Inode::ROOT, b"large")).unwrap();
    assert_whole(&life, inode, 80);
}

#[test]
fn owners_and_root_delete_for_good_and_nobody_else() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let (own, own_name) = removed(&life, 7, Inode::ROOT, b"own", 10);
    let (other, other_name) = removed(&life, 8, Inode::ROOT, b"other", 20);
    life.flush();
    assert_eq!(delete(&life, &seven(), &other_name), Err(Error::NotFound));
    assert_eq!(delete(&life, &seven(), b"own"), Err(Error::NotFound));
    assert_eq!(count(&life), (2, 30 * KIB));
    let before = life.volume.trash_changed();
    delete(&life, &seven(), &own_name).unwrap();
    assert_ne!(life.volume.trash_changed(), before);
    assert_eq!(delete(&life, &seven(), &own_name), Err(Error::NotFound));
    assert_eq!(getattr(&life, own), Err(Error::Stale));
    life.crash();
    let life = start(&bucket, &clock, |_| {});
    assert_eq!(count(&life), (1, 20 * KIB));
    assert_eq!(getattr(&life, own), Err(Error::Stale));
    assert!(undelete(&life, "/own").is_err());
    assert!(getattr(&life, other).is_ok());
    delete(&life, &ROOT, &other_name).unwrap();
    assert_eq!((listed(&life), count(&life)), (Vec::new(), (0, 0)));
    // Their bytes are collected.
    eventually("nothing is left", || {
        life.flush();
        life.volume.status().used_bytes == 0
    });
}

#[test]
fn files_leave_the_listing_when_their_time_is_over() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let (inode, name) = removed(&life, 7, Inode::ROOT, b"short", 10);
    life.flush();
    clock.pass(HOUR);
    empty(&life);
    eventually("it is deleted", || count(&life) == (0, 0));
    for caller in [ROOT, seven()] {
        assert_eq!(names(&life, &caller, Inode::ROOT), [""; 0]);
        assert_eq!(
            look_up(&life, &caller, Inode::ROOT, &name),
            Err(Error::NotFound)
        );
    }
    assert_eq!(getattr(&life, inode), Err(Error::Stale));
}

#[test]
fn a_sealed_volume_that_shares_frames_shows_it_on_another_gateway() {
    let bucket = crate::sealing::sealed(1);
    let clock = Still::new();
    let life = start(&bucket, &clock, |config| {
        config.dedup = forebay_fs::Dedup::Full
    });
    let bytes = pattern(1, 3 << 20);
    for name in [&b"kept"[..], b"gone"] {
        let inode = life.create(name);
        life.write(inode, 0, &bytes, Stability::FileSync);
        life.flush();
    }
    let gone = life.lookup(b"gone").inode;
    remove(&life, &keeping(1), Inode::ROOT, b"gone");
    life.remove(b"kept");
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|config| config.dedup = forebay_fs::Dedup::Full);
    assert_bytes(&read(&life, &ROOT, gone).unwrap(), &bytes);
    let name = trash_name::of(b"gone", gone);
    bring_back(&life, &ROOT, &name, (Inode::ROOT, b"back")).unwrap();
    assert_bytes(&life.read(gone, 0, bytes.len()), &bytes);
}

#[test]
fn while_the_bucket_is_away_what_is_here_is_shown_and_brought_back() {
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |_| {});
    let (old, old_name) = removed(&life, 7, Inode::ROOT, b"old", 100);
    life.flush();
    bucket.controls.set_down(true);
    let (new, new_name) = removed(&life, 7, Inode::ROOT, b"new", 100);
    assert!(look_up(&life, &seven(), Inode::ROOT, &new_name).is_ok());
    for inode in [old, new] {
        assert_bytes(
            &read(&life, &seven(), inode).unwrap(),
            &pattern(inode.0, 100 << 10),
        );
    }
    bring_back(&life, &ROOT, &new_name, (Inode::ROOT, b"back")).unwrap();
    assert_whole(&life, new, 100);
    bucket.controls.set_down(false);
    bring_back(&life, &ROOT, &old_name, (Inode::ROOT, b"old")).unwrap();
    assert_whole(&life, old, 100);
}
