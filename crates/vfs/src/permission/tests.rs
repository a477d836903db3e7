//! Rules of access, each in all its cases.

use super::*;
use crate::Timestamp;

fn file(mode: u32) -> Owned {
    Owned {
        kind: FileKind::Regular,
        mode,
        uid: 1000,
        gid: 100,
    }
}

fn directory(mode: u32) -> Owned {
    Owned {
        kind: FileKind::Directory,
        ..file(mode)
    }
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials {
        uid,
        gid,
        groups: groups.into(),
        ..Credentials::default()
    }
}

fn superuser() -> Credentials {
    user(0, 0, &[])
}

fn owner() -> Credentials {
    user(1000, 1, &[])
}

const NOTHING: SetAttributes = SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

const MOMENT: SetTime = SetTime::To(Timestamp {
    seconds: 1,
    nanos: 999_999_999,
});

#[test]
fn classes_are_exclusive_owner_then_group_then_others() {
    let object = file(0o007);
    assert!(object.allows(&user(1, 1, &[]), 7));
    assert!(!object.allows(&user(1, 100, &[]), 4));
    assert!(!object.allows(&user(1, 1, &[5, 100]), 4));
    assert!(!object.allows(&owner(), 4));
}

#[test]
fn owner_reads_and_writes_whatever_the_mode_says() {
    let object = file(0o000);
    assert_eq!(may_read(object, &owner()), Ok(()));
    assert_eq!(may_write(object, &owner()), Ok(()));
    assert_eq!(access(object, &owner(), Access(0x3f)), Access(0));
    assert_eq!(may_write(object, &user(2, 2, &[])), Err(Error::Access));
}

#[test]
fn execute_permission_allows_reading_and_not_writing() {
    let object = file(0o001);
    assert_eq!(may_read(object, &user(2, 2, &[])), Ok(()));
    assert_eq!(may_write(object, &user(2, 2, &[])), Err(Error::Access));
    assert_eq!(
        access(object, &user(2, 2, &[]), Access(0x3f)),
        Access::EXECUTE
    );
}

#[test]
fn root_executes_only_what_somebody_may() {
    assert!(!file(0o644).allows(&superuser(), EXECUTE));
    assert!(file(0o645).allows(&superuser(), EXECUTE | READ | WRITE));
    assert!(directory(0).allows(&superuser(), EXECUTE | READ | WRITE));
}

#[test]
fn access_tells_rights_of_directories_and_of_files_apart() {
    let all = Access(0x3f);
    let bits = |rights: &[Access]| Access(rights.iter().fold(0, |bits, right| bits | right.0));
    let (read, modify) = (Access::READ, Access::MODIFY);
    let extend = Access::EXTEND;
    assert_eq!(
        access(directory(0o700), &owner(), all),
        bits(&[read, Access::LOOKUP, modify, extend, Access::DELETE])
    );
    assert_eq!(
        access(file(0o700), &owner(), all),
        bits(&[read, modify, extend, Access::EXECUTE])
    );
    assert_eq!(access(file(0o700), &owner(), Access::READ), Access::READ);
}

#[test]
fn a_write_clears_set_id_bits_except_for_root() {
    assert_eq!(mode_after_write(0o6755, &user(5, 5, &[])), 0o755);
    assert_eq!(mode_after_write(0o6745, &user(5, 5, &[])), 0o2745);
    assert_eq!(mode_after_write(0o6755, &superuser()), 0o6755);
}

#[test]
fn names_in_sticky_directories_are_for_owners_who_may_change_names() {
    let (own, other) = (file(0o600), user(7, 7, &[]));
    let sticky = Owned {
        uid: 5,
        ..directory(0o1777)
    };
    for caller in [owner(), user(5, 5, &[]), superuser()] {
        assert_eq!(may_unlink(sticky, own, &caller), Ok(()));
    }
    assert_eq!(may_unlink(sticky, own, &other), Err(Error::NotOwner));
    assert_eq!(may_unlink(directory(0o777), own, &other), Ok(()));
    // The sticky bit makes no difference to a caller that may not write to the directory at all.
    let closed = directory(0o1755);
    assert_eq!(may_unlink(closed, own, &other), Err(Error::Access));
}

#[test]
fn the_owner_is_changed_by_root_and_the_group_by_members_only() {
    let set = |uid, gid| SetAttributes {
        uid,
        gid,
        ..NOTHING
    };
    let member = user(1000, 1, &[30]);
    let change = |caller: &Credentials, uid, gid| {
        after_setattr(file(0o644), caller, &set(uid, gid)).map(|new| (new.uid, new.gid))
    };
    assert_eq!(change(&member, Some(7), None), Err(Error::NotOwner));
    assert_eq!(change(&member, Some(1000), Some(30)), Ok((1000, 30)));
    assert_eq!(change(&member, None, Some(31)), Err(Error::NotOwner));
    // The owner has left the group of the file: the group may stay nevertheless.
    assert_eq!(change(&member, None, Some(100)), Ok((1000, 100)));
    let other = user(7, 100, &[30]);
    assert_eq!(change(&other, None, Some(30)), Err(Error::NotOwner));
    assert_eq!(change(&other, Some(1000), None), Err(Error::NotOwner));
    assert_eq!(change(&superuser(), Some(7), Some(8)), Ok((7, 8)));
}

#[test]
fn a_change_of_owner_or_group_clears_set_id_bits_for_root_too() {
    let set = SetAttributes {
        gid: Some(30),
        ..NOTHING
    };
    let after =
        |object, caller: &Credentials, set| after_setattr(object, caller, set).unwrap().mode;
    for caller in [user(1000, 1, &[30]), superuser()] {
        assert_eq!(after(file(0o6755), &caller, &set), 0o755);
        assert_eq!(after(file(0o6745), &caller, &set), 0o2745);
        assert_eq!(after(directory(0o2755), &caller, &set), 0o2755);
    }
    let with_mode = SetAttributes {
        mode: Some(0o4755),
        ..set
    };
    assert_eq!(after(file(0o6755), &superuser(), &with_mode), 0o4755);
}

#[test]
fn setgid_is_not_given_to_files_of_a_foreign_group() {
    let set = SetAttributes {
        mode: Some(0o1_6755),
        ..NOTHING
    };
    let after = |object, caller: &Credentials| after_setattr(object, caller, &set).unwrap().mode;
    assert_eq!(after(file(0), &owner()), 0o4755);
    assert_eq!(after(directory(0), &owner()), 0o6755);
    assert_eq!(after(file(0), &user(1000, 1, &[100])), 0o6755);
    assert_eq!(after(file(0), &superuser()), 0o6755);
    let other = user(7, 100, &[]);
    assert_eq!(after_setattr(file(0), &other, &set), Err(Error::NotOwner));
}

#[test]
fn sizes_are_for_writers_and_of_files_only() {
    let set = SetAttributes {
        size: Some(3),
        ..NOTHING
    };
    let other = user(7, 7, &[]);
    let after = |object| after_setattr(object, &other, &set).map(|new| new.mode);
    assert_eq!(after(file(0o6757)), Ok(0o757));
    assert_eq!(after(file(0o755)), Err(Error::Access));
    assert_eq!(after(directory(0o777)), Err(Error::IsDirectory));
    let link = Owned {
        kind: FileKind::Symlink,
        ..file(0o777)
    };
    assert_eq!(after(link), Err(Error::Invalid));
}

#[test]
fn times_are_set_to_a_moment_by_owners_and_to_now_by_writers() {
    let other = user(7, 7, &[]);
    let (moment, now) = (
        SetAttributes {
            mtime: MOMENT,
            ..NOTHING
        },
        SetAttributes {
            atime: SetTime::Now,
            mtime: SetTime::Now,
            ..NOTHING
        },
    );
    let object = file(0o602);
    assert_eq!(after_setattr(object, &other, &moment), Err(Error::NotOwner));
    assert_eq!(after_setattr(object, &other, &now), Ok(object));
    let closed = file(0o600);
    assert_eq!(after_setattr(closed, &other, &now), Err(Error::Access));
    for caller in [owner(), superuser()] {
        assert_eq!(after_setattr(file(0), &caller, &moment), Ok(file(0)));
        assert_eq!(after_setattr(file(0), &caller, &now), Ok(file(0)));
    }
}

#[test]
fn new_objects_belong_to_their_maker_or_to_the_group_of_a_setgid_directory() {
    let caller = user(7, 8, &[9]);
    let made = |parent, kind, set| of_new(parent, kind, &caller, &set).unwrap();
    let set = SetAttributes {
        mode: Some(0o640),
        ..NOTHING
    };
    let new = made(directory(0o777), FileKind::Regular, set);
    assert_eq!((new.uid, new.gid, new.mode), (7, 8, 0o640));
    let new = made(directory(0o2777), FileKind::Fifo, set);
    assert_eq!((new.uid, new.gid, new.mode), (7, 100, 0o640));
    let new = made(directory(0o2777), FileKind::Directory, set);
    assert_eq!((new.uid, new.gid, new.mode), (7, 100, 0o2640));
    let own_group = SetAttributes {
        gid: Some(9),
        ..NOTHING
    };
    let new = made(directory(0o2777), FileKind::Regular, own_group);
    assert_eq!((new.gid, new.mode), (9, 0o644));
    assert_eq!(made(directory(0), FileKind::Symlink, NOTHING).mode, 0o777);
    for set in [
        SetAttributes {
            gid: Some(100),
            ..NOTHING
        },
        SetAttributes {
            uid: Some(8),
            ..NOTHING
        },
    ] {
        let parent = directory(0o2777);
        let made = |caller: &Credentials| of_new(parent, FileKind::Regular, caller, &set);
        assert_eq!(made(&caller), Err(Error::NotOwner));
        assert!(made(&superuser()).is_ok());
    }
}

#[test]
fn nobody_makes_a_setgid_file_of_a_group_that_he_is_not_in() {
    let set = SetAttributes {
        mode: Some(0o6755),
        ..NOTHING
    };
    let made =
        |caller: &Credentials, kind| of_new(directory(0o2777), kind, caller, &set).unwrap().mode;
    assert_eq!(made(&user(7, 8, &[]), FileKind::Regular), 0o4755);
    assert_eq!(made(&user(7, 8, &[100]), FileKind::Regular), 0o6755);
    assert_eq!(made(&superuser(), FileKind::Regular), 0o6755);
    assert_eq!(made(&user(7, 8, &[]), FileKind::Directory), 0o6755);
}

#[test]
fn devices_are_made_by_root_alone() {
    let made =
        |caller: &Credentials, kind| of_new(directory(0o777), kind, caller, &NOTHING).map(drop);
    for kind in [FileKind::BlockDevice, FileKind::CharDevice] {
        assert_eq!(made(&user(7, 8, &[0]), kind), Err(Error::NotOwner));
        assert_eq!(made(&superuser(), kind), Ok(()));
    }
    for kind in [FileKind::Fifo, FileKind::Socket] {
        assert_eq!(made(&user(7, 8, &[]), kind), Ok(()));
    }
}
