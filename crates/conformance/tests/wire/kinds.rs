//! Errors of objects of the wrong kind, and of impossible values.

use forebay_conformance::Procedure::*;
use forebay_conformance::call::{Node, Set, SetTime, Stable};
use forebay_conformance::{Call, Status};

use crate::stack::Stack;
use crate::table::{Caller, Scenario, Scene, make};

/// A size to set.
fn size(size: u64) -> Set {
    Set {
        size: Some(size),
        ..Set::default()
    }
}

/// An invalid time: a second has 10^9 nanoseconds.
const NO_TIME: Set = Set {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::To((5, 1_000_000_000)),
};

pub(crate) const KINDS: &[Scenario] = &[
    Scenario {
        name: "a file in place of a directory",
        gives: Status::NOTDIR,
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
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::any(procedure, &file, b"name", &file)
        },
    },
    Scenario {
        name: "a symbolic link in place of a directory",
        gives: Status::NOTDIR,
        by: &[Lookup, Create, Readdir],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let link = Call::symlink(&place, b"link", &Set::default(), b".");
            let link = scene.root.made(&link);
            Call::any(procedure, &link, b"name", &link)
        },
    },
    Scenario {
        name: "the second directory is a file",
        gives: Status::NOTDIR,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            Call::rename((&place, b"file"), (&file, b"new"))
        },
    },
    Scenario {
        name: "RMDIR of a file",
        gives: Status::NOTDIR,
        by: &[Rmdir],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.file(&place, b"file");
            Call::rmdir(&place, b"file")
        },
    },
    Scenario {
        name: "a directory over a file",
        gives: Status::NOTDIR,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.directory(&place, b"directory");
            scene.root.file(&place, b"file");
            Call::rename((&place, b"directory"), (&place, b"file"))
        },
    },
    Scenario {
        name: "a file over a directory",
        gives: Status::ISDIR,
        by: &[Rename],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            scene.root.directory(&place, b"directory");
            scene.root.file(&place, b"file");
            Call::rename((&place, b"file"), (&place, b"directory"))
        },
    },
    Scenario {
        name: "a directory in place of a file",
        gives: Status::ISDIR,
        by: &[Setattr, Read, Write, Remove, Commit],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let directory = scene.root.directory(&place, b"name");
            match procedure {
                Setattr => Call::setattr(&directory, &size(0), None),
                Remove => Call::remove(&place, b"name"),
                _ => Call::any(procedure, &directory, b"", b""),
            }
        },
    },
    Scenario {
        name: "a named pipe in place of a file",
        gives: Status::INVAL,
        by: &[Setattr, Read, Write, Commit, Readlink],
        caller: Caller::Root,
        call: |scene, procedure| {
            let node = Call::mknod(&scene.place(), b"fifo", Node::Fifo(Set::default()));
            let fifo = scene.root.made(&node);
            match procedure {
                Setattr => Call::setattr(&fifo, &size(0), None),
                _ => Call::any(procedure, &fifo, b"", b""),
            }
        },
    },
    Scenario {
        name: "READLINK of a file",
        gives: Status::INVAL,
        by: &[Readlink],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            Call::readlink(&scene.root.file(&place, b"file"))
        },
    },
    Scenario {
        name: "a directory with a name in it",
        gives: Status::NOTEMPTY,
        by: &[Rmdir, Rename],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let full = scene.root.directory(&place, b"full");
            scene.root.file(&full, b"file");
            scene.root.directory(&place, b"empty");
            match procedure {
                Rmdir => Call::rmdir(&place, b"full"),
                _ => Call::rename((&place, b"empty"), (&place, b"full")),
            }
        },
    },
    Scenario {
        name: "a further name of a directory",
        gives: Status::PERM,
        by: &[Link],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            let directory = scene.root.directory(&place, b"directory");
            Call::link(&directory, &place, b"new")
        },
    },
    Scenario {
        name: "MKNOD of a regular file",
        gives: Status::BADTYPE,
        by: &[Mknod],
        caller: Caller::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(1)),
    },
    Scenario {
        name: "MKNOD of a directory",
        gives: Status::BADTYPE,
        by: &[Mknod],
        caller: Caller::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(2)),
    },
    Scenario {
        name: "MKNOD of a symbolic link",
        gives: Status::BADTYPE,
        by: &[Mknod],
        caller: Caller::Root,
        call: |scene, _| Call::mknod(&scene.place(), b"new", Node::Other(5)),
    },
    Scenario {
        name: "a symbolic link without a path",
        gives: Status::INVAL,
        by: &[Symlink],
        caller: Caller::Root,
        call: |scene, _| Call::symlink(&scene.place(), b"new", &Set::default(), b""),
    },
    Scenario {
        name: "a time with 10^9 nanoseconds",
        gives: Status::INVAL,
        by: &[Setattr, Create, Mkdir, Symlink, Mknod],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            match procedure {
                Setattr => Call::setattr(&place, &NO_TIME, None),
                _ => make(procedure, &place, NO_TIME),
            }
        },
    },
    Scenario {
        name: "a size of 2^63",
        gives: Status::FBIG,
        by: &[Setattr, Create, Write],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            let file = scene.root.file(&place, b"file");
            match procedure {
                Setattr => Call::setattr(&file, &size(1 << 63), None),
                Create => make(Create, &place, size(1 << 63)),
                _ => Call::write(&file, (1 << 63) - 1, b"x", Stable::Unstable),
            }
        },
    },
    Scenario {
        name: "the guard is another moment",
        gives: Status::NOT_SYNC,
        by: &[Setattr],
        caller: Caller::Root,
        call: |scene, _| {
            let place = scene.place();
            let (seconds, nanos) = scene.root.attributes(&place).ctime;
            let another = (seconds, (nanos + 1) % 1_000_000_000);
            Call::setattr(&place, &Set::default(), Some(another))
        },
    },
    Scenario {
        name: "a reply too small for one name",
        gives: Status::TOOSMALL,
        by: &[Readdir, Readdirplus],
        caller: Caller::Root,
        call: |scene, procedure| {
            let place = scene.place();
            match procedure {
                Readdir => Call::readdir(&place, 0, [0; 8], 100),
                _ => Call::readdirplus(&place, 0, [0; 8], 8192, 100),
            }
        },
    },
];

#[test]
fn objects_of_the_wrong_kind_and_values_that_cannot_be() {
    Scene::new(Stack::new()).prove(KINDS);
}
