//! Errors of callers without permission.

use forebay_conformance::Procedure::{self, *};
use forebay_conformance::call::{Node, Set, SetTime};
use forebay_conformance::{Call, Status};

use crate::stack::Stack;
use crate::table::{Caller, Scenario, Scene, make};

/// A mode to set.
fn mode(mode: u32) -> Set {
    Set {
        mode: Some(mode),
        ..Set::default()
    }
}

/// Attributes that set an owner other than the caller.
const FOREIGN: Set = Set {
    mode: None,
    uid: Some(7),
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

pub(crate) const RIGHTS: &[Scenario] = &[
    Scenario {
        name: "an export that is read-only for the client",
        gives: Status::ROFS,
        by: &Procedure::CHANGES,
        caller: Caller::ReadOnly,
        call: |scene, procedure| {
            let place = scene.place();
            scene.ordinary(procedure, &place)
        },
    },
    Scenario {
        name: "a directory that is closed to the caller",
        gives: Status::ACCES,
        by: &[
            Lookup,
            Create,
            Mkdir,
            Symlink,
            Mknod,
            Remove,
            Rmdir,
            Rename,
            Link,
            Readdir,
            Readdirplus,
        ],
        caller: Caller::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = scene.ordinary(procedure, &place);
            scene.root.chmod(&place, 0o700);
            call
        },
    },
    Scenario {
        name: "a directory that the caller may search and not change",
        gives: Status::ACCES,
        by: &[Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link],
        caller: Caller::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = scene.ordinary(procedure, &place);
            scene.root.chmod(&place, 0o755);
            call
        },
    },
    Scenario {
        name: "a file that is closed to the caller",
        gives: Status::ACCES,
        by: &[Setattr, Read, Write],
        caller: Caller::User,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            scene.root.chmod(&file, 0o600);
            match procedure {
                Setattr => {
                    let cut = Set {
                        size: Some(0),
                        ..Set::default()
                    };
                    Call::setattr(&file, &cut, None)
                }
                _ => Call::any(procedure, &file, b"", b""),
            }
        },
    },
    Scenario {
        name: "the mode of what belongs to another",
        gives: Status::PERM,
        by: &[Setattr],
        caller: Caller::User,
        call: |scene, _| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::setattr(&file, &mode(0o777), None)
        },
    },
    Scenario {
        name: "an object for another owner",
        gives: Status::PERM,
        by: &[Create, Mkdir, Symlink, Mknod],
        caller: Caller::User,
        call: |scene, procedure| make(procedure, &scene.place(), FOREIGN),
    },
    Scenario {
        name: "a block device by a user that is not root",
        gives: Status::PERM,
        by: &[Mknod],
        caller: Caller::User,
        call: |scene, _| Call::mknod(&scene.place(), b"sda", Node::Block(Set::default(), 8, 0)),
    },
    Scenario {
        name: "a character device by a user that is not root",
        gives: Status::PERM,
        by: &[Mknod],
        caller: Caller::User,
        call: |scene, _| {
            Call::mknod(
                &scene.place(),
                b"mem",
                Node::Character(Set::default(), 1, 1),
            )
        },
    },
    Scenario {
        name: "names of others in a sticky directory",
        gives: Status::PERM,
        by: &[Remove, Rmdir, Rename],
        caller: Caller::User,
        call: |scene, procedure| {
            let place = scene.place();
            let call = scene.ordinary(procedure, &place);
            scene.root.chmod(&place, 0o1777);
            call
        },
    },
];

#[test]
fn callers_without_the_right() {
    Scene::new(Stack::new()).prove(RIGHTS);
}
