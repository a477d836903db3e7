//! Scenarios of GETATTR, SETATTR and ACCESS.

use super::*;
use crate::{Access, SetTime, Timestamp};

fn owned_by(fs: &MemoryFileSystem, name: &str, (uid, gid): (u32, u32), bits: u32) -> Inode {
    let file = fs.file(Inode::ROOT, name);
    let set = SetAttributes {
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttributes::default()
    };
    fs.set(file, set);
    fs.set(file, mode(bits));
    file
}

#[test]
fn the_owner_reads_and_writes_whatever_the_mode_says_and_others_by_it() {
    let fs = MemoryFileSystem::new();
    let file = owned_by(&fs, "file", (5, 50), 0o040);
    let read = |caller: &Credentials| now(fs.read(caller, file, 0, 1)).map(drop);
    let write =
        |caller: &Credentials| now(fs.write(caller, file, 0, b"", Stability::Unstable)).map(drop);
    assert_eq!((read(&user(5, 1)), write(&user(5, 1))), (Ok(()), Ok(())));
    assert_eq!(
        (read(&user(6, 50)), write(&user(6, 50))),
        (Ok(()), Err(Error::Access))
    );
    assert_eq!(
        (read(&user(6, 1)), write(&user(6, 1))),
        (Err(Error::Access), Err(Error::Access))
    );
    let member = Credentials {
        uid: 6,
        gid: 1,
        groups: [7, 50].as_slice().into(),
        ..Credentials::default()
    };
    assert_eq!(
        (read(&member), read(&ROOT), write(&ROOT)),
        (Ok(()), Ok(()), Ok(()))
    );
    fs.set(file, mode(0o001));
    assert_eq!(read(&user(6, 1)), Ok(()));
}

#[test]
fn access_tells_the_rights_of_each_class() {
    let fs = MemoryFileSystem::new();
    let file = owned_by(&fs, "file", (5, 50), 0o654);
    let rights =
        |caller: &Credentials, inode| now(fs.access(caller, inode, Access(0x3f))).unwrap().0;
    fs.set(Inode::ROOT, mode(0o755));
    let (read, write) = (Access::READ.0, Access::MODIFY.0 | Access::EXTEND.0);
    assert_eq!(rights(&user(5, 1), file), Access(read | write));
    assert_eq!(rights(&user(6, 50), file), Access(read | Access::EXECUTE.0));
    assert_eq!(rights(&user(6, 1), file), Access(read));
    assert_eq!(
        rights(&ROOT, file),
        Access(read | write | Access::EXECUTE.0)
    );
    assert_eq!(
        rights(&user(6, 1), Inode::ROOT),
        Access(read | Access::LOOKUP.0)
    );
    let asked = now(fs.access(&ROOT, Inode::ROOT, Access::DELETE))
        .unwrap()
        .0;
    assert_eq!(asked, Access::DELETE);
    fs.set(file, mode(0o666));
    assert_eq!(rights(&ROOT, file), Access(read | write));
}

#[test]
fn names_change_only_with_write_permission_on_the_directory() {
    let fs = MemoryFileSystem::new();
    let caller = user(5, 50);
    let create = CreateMode::Guarded(SetAttributes::default());
    fs.set(Inode::ROOT, mode(0o755));
    assert_eq!(
        now(fs.create(&caller, Inode::ROOT, b"x", &create)),
        Err(Error::Access)
    );
    fs.set(Inode::ROOT, mode(0o777));
    let made = now(fs.create(&caller, Inode::ROOT, b"x", &create))
        .unwrap()
        .attributes;
    assert_eq!((made.uid, made.gid, made.mode), (5, 50, 0o644));
    fs.set(Inode::ROOT, mode(0o700));
    assert_eq!(
        now(fs.lookup(&caller, Inode::ROOT, b"x")),
        Err(Error::Access)
    );
    assert_eq!(
        now(fs.readdir(&caller, Inode::ROOT, 0, 1, false)),
        Err(Error::Access)
    );
}

#[test]
fn in_a_sticky_directory_names_belong_to_their_owners() {
    let fs = MemoryFileSystem::new();
    fs.set(Inode::ROOT, mode(0o1777));
    owned_by(&fs, "file", (5, 50), 0o644);
    let (owner, other) = (user(5, 50), user(6, 50));
    let away = |caller| now(fs.rename(caller, (Inode::ROOT, b"file"), (Inode::ROOT, b"moved")));
    assert_eq!(
        now(fs.remove(&other, Inode::ROOT, b"file")),
        Err(Error::NotOwner)
    );
    assert_eq!(away(&other), Err(Error::NotOwner));
    away(&owner).unwrap();
    now(fs.remove(&owner, Inode::ROOT, b"moved")).unwrap();
}

#[test]
fn owners_change_modes_and_groups_of_their_own_and_root_all() {
    let fs = MemoryFileSystem::new();
    let file = owned_by(&fs, "file", (5, 50), 0o644);
    let set = |caller: &Credentials, set| now(fs.setattr(caller, file, &set, None)).map(drop);
    let owner = Credentials {
        uid: 5,
        gid: 50,
        groups: [51].as_slice().into(),
        ..Credentials::default()
    };
    let group = |gid| SetAttributes {
        gid: Some(gid),
        ..SetAttributes::default()
    };
    let give = |uid| SetAttributes {
        uid: Some(uid),
        ..SetAttributes::default()
    };
    assert_eq!(set(&user(6, 50), mode(0o777)), Err(Error::NotOwner));
    assert_eq!(set(&user(6, 50), size(0)), Err(Error::Access));
    assert_eq!(set(&owner, mode(0o6755)), Ok(()));
    assert_eq!(set(&owner, group(51)), Ok(()));
    assert_eq!(
        fs.attributes(file).mode,
        0o755,
        "giving away takes set-id bits"
    );
    assert_eq!(set(&owner, group(52)), Err(Error::NotOwner));
    assert_eq!(set(&owner, give(6)), Err(Error::NotOwner));
    assert_eq!(set(&ROOT, give(6)), Ok(()));
    assert_eq!((fs.attributes(file).uid, fs.attributes(file).gid), (6, 51));
}

#[test]
fn a_write_by_another_than_root_takes_set_id_bits() {
    let fs = MemoryFileSystem::new();
    let file = owned_by(&fs, "file", (5, 50), 0o6755);
    fs.put(file, 0, b"root");
    assert_eq!(fs.attributes(file).mode, 0o6755);
    now(fs.write(&user(5, 50), file, 0, b"x", Stability::Unstable)).unwrap();
    assert_eq!(fs.attributes(file).mode, 0o755);
}

#[test]
fn new_names_in_a_set_group_id_directory_take_its_group() {
    let fs = MemoryFileSystem::new();
    let set = SetAttributes {
        gid: Some(77),
        ..mode(0o2777)
    };
    let directory = now(fs.make(&ROOT, Inode::ROOT, b"d", NewNode::Directory, &set)).unwrap();
    let directory = directory.attributes.inode;
    fs.set(directory, mode(0o2777));
    let caller = user(5, 50);
    let set = SetAttributes::default();
    let below = now(fs.make(&caller, directory, b"d", NewNode::Directory, &set))
        .unwrap()
        .attributes;
    assert_eq!((below.gid, below.mode), (77, 0o2755));
    let foreign = SetAttributes {
        gid: Some(1),
        ..set
    };
    let refused = now(fs.make(&caller, directory, b"e", NewNode::Fifo, &foreign));
    assert_eq!(refused.map(drop), Err(Error::NotOwner));
}

#[test]
fn a_guard_that_does_not_match_changes_nothing() {
    let fs = MemoryFileSystem::new();
    let file = fs.file(Inode::ROOT, "file");
    let before = fs.attributes(file);
    let earlier = Timestamp {
        seconds: before.ctime.seconds - 1,
        ..before.ctime
    };
    let refused = now(fs.setattr(&ROOT, file, &mode(0o600), Some(earlier)));
    assert_eq!(refused, Err(Error::NotSync));
    assert_eq!(fs.attributes(file), before);
    let change = now(fs.setattr(&ROOT, file, &mode(0o600), Some(before.ctime))).unwrap();
    assert_eq!(change.before, Some((&before).into()));
    assert_eq!(change.after, Some(fs.attributes(file)));
    assert_eq!(fs.attributes(file).mode, 0o600);
}

#[test]
fn times_are_set_by_owners_and_now_by_writers() {
    let fs = MemoryFileSystem::new();
    let file = owned_by(&fs, "file", (5, 50), 0o662);
    let moment = Timestamp {
        seconds: -5,
        nanos: 7,
    };
    let to = SetAttributes {
        mtime: SetTime::To(moment),
        ..SetAttributes::default()
    };
    let touch = SetAttributes {
        atime: SetTime::Now,
        ..SetAttributes::default()
    };
    let set = |caller: &Credentials, set| now(fs.setattr(caller, file, &set, None)).map(drop);
    assert_eq!(set(&user(6, 60), to), Err(Error::NotOwner));
    assert_eq!(set(&user(5, 50), to), Ok(()));
    assert_eq!(fs.attributes(file).mtime, moment);
    assert_eq!(set(&user(6, 60), touch), Ok(()));
    assert_eq!(fs.attributes(file).mtime, moment);
    fs.set(file, mode(0o600));
    assert_eq!(set(&user(6, 60), touch), Err(Error::Access));
}
